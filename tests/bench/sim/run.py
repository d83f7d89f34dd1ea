"""One run: a trace, a world and a policy on a virtual clock. The loop of a request's attempts is the gateway's: plan, retry table, retry
budget, hedge; only sockets and money's bookkeeping are left out.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.routing.choose import expected_cost
from gateway.routing.retry import RetryBudget, after
from providers.errors import Cut, ProviderError, TimedOut, Unavailable
from tests.bench.sim import engine as engines
from tests.bench.sim.traces import INTERACTIVE_TPOT_S, INTERACTIVE_TTFT_S, RELAXED_DEADLINE_S, Asked
from tests.bench.sim.world import LOCAL, LOCAL_RATES, OFFERS, Hosted, Spell

FIRST_BYTE_S = 60.0  # as shipped
TOTAL_S = 600.0
MAX_ATTEMPTS = 3


class Handle(Protocol):
    """How a policy hears of one attempt: gateway.routing.state.Call, or a peer's own."""

    def first_token(self, now: float) -> None: ...
    def ended(self, now: float, output_tokens: int) -> None: ...
    def failed(self, now: float, error: ProviderError) -> None: ...
    def left(self, now: float) -> None: ...


class Policy(Protocol):
    name: str

    def plan(self, asked: Asked, now: float) -> Sequence[int]: ...
    def started(self, backend: int, asked: Asked, now: float) -> Handle: ...
    def answered(self, asked: Asked, output_tokens: int) -> None: ...
    def hedge(self, asked: Asked, taken: int, now: float) -> int | None:
        """The backend to ask beside `taken`, None = none; asked when `hedge_after_s` has passed."""
        ...

    def hedge_after_s(self, asked: Asked) -> float | None: ...


class Result(Struct, gc=False):
    """What a client and its team saw of one request. cost: nano-USD over all attempts."""

    asked: Asked
    met: bool = False
    done: bool = False
    cost: int = 0
    ttft_s: float = TOTAL_S
    e2e_s: float = TOTAL_S
    attempts: int = 0
    hedged: bool = False
    backend: str = ""


class _Try:
    __slots__ = ("backend", "began", "first_at", "handle", "live", "open", "sequence")

    def __init__(self, live: _Live, backend: int, handle: Handle, began: float) -> None:
        self.live, self.backend, self.handle, self.began = live, backend, handle, began
        self.first_at: float | None = None
        self.sequence: engines.Sequence | None = None
        self.open = True


class _Live:
    __slots__ = ("asked", "began", "committed", "plan", "position", "result", "running")

    def __init__(self, asked: Asked, plan: Sequence[int], now: float) -> None:
        self.asked, self.plan, self.began = asked, plan, now
        self.position = 0
        self.running: list[_Try] = []
        self.committed = False
        self.result = Result(asked)


class World:
    """Backends in the order of `names`; local ones are engines, and each of them is one replica."""

    def __init__(self, hosted: Sequence[Hosted], engines_at: Sequence[engines.Engine], befalls: dict[str, tuple[Spell, ...]]) -> None:
        self.hosted = hosted
        self.engines = engines_at
        self.befalls = befalls
        locals_ = [LOCAL] if len(engines_at) == 1 else [f"{LOCAL}-{i}" for i in range(len(engines_at))]
        self.names = [one.offer.name for one in hosted] + locals_
        self.priors = {one.offer.name: one.priors for one in hosted}
        self.rates = [(one.offer.input, one.offer.output, one.offer.input, 0) for one in hosted]
        self.rates += [(LOCAL_RATES[0], LOCAL_RATES[1], LOCAL_RATES[0], 0)] * len(engines_at)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._order = 0
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []

    def at(self, when: float, call: Callable[[float], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, call))

    def run(self) -> None:
        while self._queue:
            self.now, _, call = heapq.heappop(self._queue)
            call(self.now)


def build(published: dict[tuple[str, str], list[tuple[float, float, str]]], seed: int, befalls: dict[str, tuple[Spell, ...]], at: Clock,
          replicas: int = 1, speed: engines.Speed | None = None) -> World:  # fmt: skip
    hosted = [Hosted(one, published[one.provider, one.model], seed, befalls.get(one.name, ())) for one in OFFERS] if published else []
    return World(hosted, [engines.Engine(speed or engines.Speed(), at.at) for _ in range(replicas)], befalls)


class Simulation:
    def __init__(self, world: World, clock: Clock, policy: Policy, seed: int) -> None:
        self.world, self.clock, self.policy = world, clock, policy
        self.results: list[Result] = []
        self.retries = RetryBudget()
        self._draw = random.Random(f"retry:{seed}")
        for name, spells in world.befalls.items():
            if name in world.names and (number := world.names.index(name) - len(world.hosted)) >= 0:
                for spell in spells:
                    self._befall(world.engines[number], spell)

    def _befall(self, engine: engines.Engine, spell: Spell) -> None:
        def begin(now: float) -> None:
            engine.frozen = True
            if spell.kind == "outage":
                for sequence in engine.stop():
                    sequence.on_cut(now)

        self.clock.at(spell.begin, begin)
        self.clock.at(spell.end, engine.resume)

    def run(self, trace: Sequence[Asked]) -> list[Result]:
        for asked in trace:
            self.clock.at(asked.at, lambda now, asked=asked: self._arrive(asked, now))  # type: ignore[misc]
        self.clock.run()
        return self.results

    def _arrive(self, asked: Asked, now: float) -> None:
        live = _Live(asked, self.policy.plan(asked, now), now)
        self.results.append(live.result)
        self.retries.request(now)
        if not live.plan:
            return
        self._try(live, live.plan[0], now)
        limit = RELAXED_DEADLINE_S if asked.relaxed else TOTAL_S
        self.clock.at(now + limit, lambda at: self._abandon(live, at))
        wait = self.policy.hedge_after_s(asked)
        if wait is not None:
            self.clock.at(now + wait, lambda at: self._hedge(live, at))

    def _hedge(self, live: _Live, now: float) -> None:
        if live.committed or live.result.done or len(live.running) != 1:
            return
        other = self.policy.hedge(live.asked, live.running[0].backend, now)
        if other is not None:
            live.result.hedged = True
            self._try(live, other, now)

    def _abandon(self, live: _Live, now: float) -> None:
        """The deadline: what is still running is cancelled and booked."""
        for one in tuple(live.running):
            self._leave(one, now)
        live.result.done = True

    def _try(self, live: _Live, backend: int, now: float) -> None:
        asked = live.asked
        live.result.attempts += 1
        one = _Try(live, backend, self.policy.started(backend, asked, now), now)
        live.running.append(one)
        number = backend - len(self.world.hosted)
        if number >= 0:
            self._to_engine(one, self.world.engines[number], now)
        else:
            outcome = self.world.hosted[backend].send(asked.index, asked.input_tokens, asked.output_tokens, now)
            if outcome.first_s is not None:
                first, tpot = outcome.first_s, outcome.tpot_s
                self.clock.at(now + first, lambda at: self._first(one, at))
                self.clock.at(now + first + tpot * (asked.output_tokens - 1), lambda at: self._end(one, at))
            elif outcome.error is not None:
                error = outcome.error
                self.clock.at(now + outcome.error_s, lambda at: self._fail(one, error, at))
        self.clock.at(now + FIRST_BYTE_S, lambda at: self._late(one, at))

    def _to_engine(self, one: _Try, engine: engines.Engine, now: float) -> None:
        asked = one.live.asked
        if engine.frozen and engine.dead:
            self.clock.at(now + 0.05, lambda at: self._fail(one, Unavailable("the engine is down", answered=True), at))
            return
        one.sequence = engines.Sequence(
            (asked.input_tokens, asked.output_tokens), asked.prefix, lambda at: self._first(one, at), lambda at: self._end(one, at)
        )
        one.sequence.on_cut = lambda at: self._fail(one, Cut("the engine is gone"), at)
        engine.submit(one.sequence, now)

    def _first(self, one: _Try, now: float) -> None:
        live = one.live
        if not one.open:
            return
        one.first_at = now
        one.handle.first_token(now)
        live.committed = True
        live.result.ttft_s = now - live.began
        live.result.backend = self.world.names[one.backend]
        for other in tuple(live.running):
            if other is not one:
                self._leave(other, now)

    def _late(self, one: _Try, now: float) -> None:
        if one.open and one.first_at is None:
            self._fail(one, TimedOut("no first byte"), now)

    def _end(self, one: _Try, now: float) -> None:
        live, asked = one.live, one.live.asked
        if not self._close(one):
            return
        assert one.first_at is not None
        one.handle.ended(now, asked.output_tokens)
        self.policy.answered(asked, asked.output_tokens)
        result = live.result
        result.done = True
        result.e2e_s = now - live.began
        result.cost += expected_cost(self.world.rates[one.backend], asked.input_tokens, 0, asked.output_tokens)
        tpot = (now - one.first_at) / max(1, asked.output_tokens - 1)
        if asked.relaxed:
            result.met = result.e2e_s <= RELAXED_DEADLINE_S
        else:
            result.met = result.ttft_s <= INTERACTIVE_TTFT_S and tpot <= INTERACTIVE_TPOT_S

    def _leave(self, one: _Try, now: float) -> None:
        """Cancelled by us, and booked at its input and what came of it."""
        if self._close(one):
            one.handle.left(now)
            self._book(one)

    def _book(self, one: _Try) -> None:
        asked = one.live.asked
        received = 0 if one.first_at is None else asked.output_tokens // 2
        one.live.result.cost += expected_cost(self.world.rates[one.backend], asked.input_tokens, 0, received)

    def _fail(self, one: _Try, error: ProviderError, now: float) -> None:
        if not self._close(one):
            return
        live = one.live
        one.handle.failed(now, error)
        if not error.answered and error.sent:
            self._book(one)
        if live.committed or live.running:
            if live.committed:
                live.result.done = True
            return
        others = live.position + 1 < len(live.plan)
        action, wait = after(error, live.result.attempts, MAX_ATTEMPTS, others, self._draw.random())
        if action == "stop" or not self.retries.take(now):
            live.result.done = True
            return
        if action == "next":
            live.position += 1
        self.clock.at(now + wait, lambda at: self._again(live, at))

    def _again(self, live: _Live, now: float) -> None:
        if not live.result.done:
            self._try(live, live.plan[live.position], now)

    def _close(self, one: _Try) -> bool:
        if not one.open:
            return False
        one.open = False
        one.live.running.remove(one)
        number = one.backend - len(self.world.hosted)
        if one.sequence is not None:
            self.world.engines[number].cancel(one.sequence)
        return True
