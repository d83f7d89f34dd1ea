"""One request's attempts: reserve, journal, call, fail over until the first good event and never after.

The plain loop that every answer runs through. Knows no wire format; which backend comes next was decided by routing, which error
may be tried again by routing/retry.py, what it costs by money/.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from msgspec.structs import replace

from gateway.catalog import Backend, Price
from gateway.errors import DeadlinePassed, GatewayError
from gateway.exchange import Attempt, Exchange
from gateway.money.accounts import Accounts
from gateway.money.budgets import Hold, Refusal
from gateway.money.owned import Owned
from gateway.money.pricing import cost
from gateway.money.records import AttemptEnd, Intent
from gateway.money.worst_case import UNKNOWN_OUTPUT_TOKENS, Bound, fitting_max_tokens, output_tokens, prompt_tokens, worst, worst_case
from gateway.race import Runner, race
from gateway.routing.retry import after
from gateway.routing.router import Router
from gateway.traces import Traces
from providers import tokens
from providers.dialects import DecodeError
from providers.errors import BadAnswer, ProviderError, Rejected
from providers.factors import Factors
from providers.types import Deadline, Failed, Finished, Frame, Metered, Provider, Target, Usage

CLAMP_LEAST = 16  # tokens of output: fewer are no answer
CLAMP_TRIES = 3  # others may take what was left in between
HELD_FRAMES = 256  # frames without an event that may wait for an answer's first event; an upstream that sends more is given up
CUT, OVER, LOST = "cut_at_reservation", "over_reserved", "lost_race"  # remarks on attempts that ended without an error
DEFAULT_DEADLINE_S = 600.0  # of a request that names none
LEAST_S = 0.01  # with less time than this left, nobody is asked any more: it would cost and not answer
NOTHING = Usage()


class Attempts:
    """Runs exchanges against backends. One per worker; all state of a request lives in its Exchange."""

    def __init__(
        self, accounts: Accounts, router: Router, providers: Mapping[str, Provider], over_budget_status: int, owned: Owned
    ) -> None:
        self.accounts = accounts
        self.router = router
        self.providers = providers
        self.over_budget_status = over_budget_status
        self.factors = Factors()
        self.owned = owned
        self.traces: Traces | None = None

    async def run(self, x: Exchange) -> AsyncGenerator[Frame, None]:
        """Frames of the first attempt that answers. Raises GatewayError before the first frame; a Failed event comes after it."""
        rule = x.route.quality
        if rule is not None:
            x.features = replace(x.features, quality=await self.router.judges.of(x.route, rule, x.request))
        plan = self._choose(x)
        position = 0
        refusal: Refusal | None = None
        failures: list[ProviderError] = []
        while position < len(plan):
            begun = await self._begin(x, plan[position])
            if isinstance(begun, Refusal):
                refusal = refusal or begun
                position += 1
                continue
            try:
                async with aclosing(self._frames(x, begun)) as frames:
                    async for frame in frames:
                        yield frame
                return
            except ProviderError as failure:
                failures.append(failure)
            if x.deadline_at is not None and time.monotonic() + LEAST_S >= x.deadline_at:
                raise DeadlinePassed("The request passed its deadline.")
            action, delay_s = after(failures[-1], len(x.ends), x.route.max_attempts, position + 1 < len(plan), random.random())
            if action == "stop" or not self.router.retries.take(time.monotonic()):
                break
            if action == "next":
                position += 1
            await asyncio.sleep(delay_s)
            position += self._drained(plan, position)
        if failures:
            raise self.router.exhausted(failures, plan, time.monotonic())
        assert refusal is not None
        self.accounts.refused(refusal)
        raise refusal.error(self.over_budget_status)

    def _choose(self, x: Exchange) -> tuple[Backend, ...]:
        """Step 4 of the path: filter, predict, choose. Raises what the client is told when no backend is left."""
        now = time.monotonic()
        choice = self.router.plan(x.features, x.route, x.catalog, now, random.random())
        x.decision = choice.decision
        if choice.refusal is not None:
            raise choice.refusal
        self.router.placed(choice.decision, x.route)
        self.router.retries.request(now)
        self.router.hedges.request()
        return choice.plan

    def _drained(self, plan: tuple[Backend, ...], position: int) -> int:
        """How many from this place on were drained since the choice: they get no new call, not even from a request that runs."""
        states = [self.router.state(backend) for backend in plan[position:]]
        return next((place for place, state in enumerate(states) if not state.drained), len(states))

    def _frames(self, x: Exchange, attempt: Attempt) -> AsyncGenerator[Frame, None]:
        """The frames of an attempt; of a request's first one, where it may be hedged, those of whoever answers first."""
        hedge_s = self.router.hedge_after_s(x.features, x.decision) if x.decision is not None and attempt.n == 1 else None
        if hedge_s is None or x.clamped is not None:
            return self._call(x, attempt)
        wait_s = max(0.0, x.started + hedge_s - time.monotonic())
        first = Runner(attempt, self._call(x, attempt))
        return race(x, first, wait_s, lambda: self._hedge(x, attempt), lambda loser: self._lost(x, loser))

    def _lost(self, x: Exchange, loser: Attempt) -> None:
        """Another attempt answered first: this one is booked."""
        if x.decision is not None and x.decision.hedge is not None:
            x.decision.hedge.won = 2 if loser.n == 1 else 1
        self._end(x, loser, "cancelled", None, LOST)

    async def _hedge(self, x: Exchange, late: Attempt) -> Runner | None:
        """A second attempt beside one that is late; reserved in memory and journalled like any other, else not sent."""
        now = time.monotonic()
        if x.route.max_attempts < 2:
            return None
        other = self.router.hedge((x.features, x.route, x.catalog), (late.backend.name,), now - x.started, now, x.decision)
        if other is None:
            return None
        most = worst(self.owned.reserving(other), _bound(x, other, x.features.input_tokens_upper))
        if most and isinstance(self._take(x, most), Refusal):
            self.router.hedges.give_back()
            _unsent(x, "no_money")
            return None
        try:
            attempt = await self._dispatch(x, other, most)
        except GatewayError:  # the journal takes no intent: the first attempt goes on alone
            self._end(x, x.running[-1], "cancelled", None)
            _unsent(x, "no_journal")
            return None
        return Runner(attempt, self._call(x, attempt))

    async def _call(self, x: Exchange, attempt: Attempt) -> AsyncGenerator[Frame, None]:
        """One attempt. ProviderError = it failed before anything was given away; it is ended either way when this returns."""
        held: list[Frame] = []
        source = self.providers[attempt.backend.name].call(x.request, self._target(x, attempt), self._deadline(x, attempt.backend))
        try:
            async with aclosing(source):
                async for frame in source:
                    failed = self._take_in(x, attempt, frame)
                    held.append(frame)
                    if x.committed:
                        yield held.pop() if len(held) == 1 else _join(held)
                        if failed is not None or self._runs_over(attempt):
                            break
                    elif len(held) > HELD_FRAMES:
                        raise BadAnswer(f"backend {attempt.backend.name} sent {HELD_FRAMES} events without content")
            if not x.committed:
                raise BadAnswer(f"backend {attempt.backend.name} ended its answer without content")
        except DecodeError as fault:  # in a part of the body that only a translation reads, before anything is sent
            error = Rejected(fault.message, sent=False, param=fault.param, code=fault.code)
            self._end(x, attempt, "failed", error)
            raise error from None
        except ProviderError as error:
            self._end(x, attempt, "failed", error)
            if not x.committed:
                raise
            yield Frame(events=[Failed(error)])
            return
        if attempt in x.running and self._runs_over(attempt):
            self._end(x, attempt, "completed", None, CUT)
            yield _cut_off(x)
        await self._complete(x, attempt)

    async def _complete(self, x: Exchange, attempt: Attempt) -> None:
        """An attempt came to its end. Where its vendor said nothing of usage, a long exchange is counted off the loop first."""
        if attempt in x.running and attempt.meter.usage is None:
            attempt.counted = await tokens.count_long(x.request, attempt.meter.text, attempt.backend.model)
        self._end(x, attempt, "completed", None)

    def _take_in(self, x: Exchange, attempt: Attempt, frame: Frame) -> ProviderError | None:
        """Meter a frame; the first one that carries something commits the exchange. The error it ends with, raised if nothing was given."""
        now = time.monotonic()
        if frame.limits is not None:
            attempt.call.told(now, frame.limits)
        carries = attempt.meter.feed(frame, now)
        if carries and not x.committed:
            x.committed = True
            x.answered_by = attempt
            attempt.call.first_token(now)
        failed = frame.events[-1].error if frame.events and type(frame.events[-1]) is Failed else None
        if failed is not None:
            if not x.committed:
                raise failed
            self._end(x, attempt, "failed", failed)
        return failed

    def _runs_over(self, attempt: Attempt) -> bool:
        """Under a budget: a stream that ignores its token limit and has brought more than was reserved for it."""
        meter, backend, most = attempt.meter, attempt.backend, attempt.most_tokens
        return most is not None and not meter.finished and meter.beyond(most, self._factor(backend), backend.model)

    def _factor(self, backend: Backend) -> float:
        return max(backend.token_factor, self.factors.learnt(backend.model))

    async def _begin(self, x: Exchange, backend: Backend) -> Attempt | Refusal:
        """Reserve the worst case, write the intent. No money, no call."""
        most = await self._reserve(x, backend)
        if isinstance(most, Refusal):
            return most
        return await self._dispatch(x, backend, most)

    async def _dispatch(self, x: Exchange, backend: Backend, most: int | None) -> Attempt:
        """An attempt whose worst case is reserved: from here on it is running, and its intent stands in the journal."""
        who = x.principal
        now, features = time.monotonic(), x.features
        share = self.owned.enter(backend, features.input_tokens + features.expected_output_tokens, now)
        n = len(x.ends) + len(x.running) + 1
        attempt = Attempt(n, backend, most, self.router.state(backend).started(now, features), share)
        x.running.append(attempt)
        if most and x.request.stream and x.hold is not None and x.hold.charges:  # a whole answer cannot be cut
            attempt.most_tokens = x.clamped * x.request.n if x.clamped is not None else output_tokens(_bound(x, backend, 0))
        await self.accounts.intend(
            Intent(
                request_id=x.id,
                n=attempt.n,
                started_at_us=x.started_us,
                team_id=who.team_id,
                key_id=who.key_id,
                org_id=who.org_id,
                route=x.route.name,
                backend=backend.name,
                vendor=backend.vendor,
                model=backend.model,
                price_id=backend.price.id if backend.price is not None else "",
                worst=most,
                charges=x.hold.charges if x.hold is not None else (),
                tag=x.tag,
            )
        )
        attempt.dispatched = True
        return attempt

    async def _reserve(self, x: Exchange, backend: Backend) -> int | Refusal | None:
        """Nano-USD held for one attempt on this backend; None = unpriced (takes no window)."""
        x.clamped = None
        price = self.owned.reserving(backend)
        most = worst(price, _bound(x, backend, x.features.input_tokens_upper))
        if most == 0 and x.features.budgeted and not x.route.free_when_spent and x.hold is None:
            return await self._something_left(x)
        if not most:
            return most
        got = self._take(x, most)
        if isinstance(got, Refusal):  # near the cap the bound by bytes is too coarse: count, then ask the database
            upper = min(x.features.input_tokens_upper, await tokens.count_input(x.request, self._factor(backend), backend.model))
            most = worst(price, _bound(x, backend, upper)) or 0
            got = self._take(x, most)
            if isinstance(got, Refusal):
                got = await self._obtain(x, most)
            if isinstance(got, Refusal) and x.clamp and price is not None:
                return await self._clamp(x, price, _bound(x, backend, upper)) or got
        return got if isinstance(got, Refusal) else most

    async def _something_left(self, x: Exchange) -> int | Refusal:
        """For a free attempt on a route that stops with its budgets: the smallest amount there is must be left in each."""
        got = self._take(x, 1)
        if isinstance(got, Refusal):
            got = await self._obtain(x, 1)
        return replace(got, worst_nanousd=0) if isinstance(got, Refusal) else 1

    async def _clamp(self, x: Exchange, price: Price, bound: Bound) -> int | None:
        """Reserve for as much output as the budgets leave; None where that is no answer any more."""
        for _ in range(CLAMP_TRIES):
            left = self.accounts.obtainable(x.scope, x.started_us)
            fitting = fitting_max_tokens(price, bound, left)
            if fitting < CLAMP_LEAST:
                return None
            lowered = replace(bound, max_tokens=fitting)
            most = worst_case(price, prompt_tokens(lowered), output_tokens(lowered))
            got = self._take(x, most)
            if isinstance(got, Refusal):
                got = await self._obtain(x, most)
            if not isinstance(got, Refusal):
                x.clamped = fitting if fitting * bound.n < output_tokens(bound) else None
                return most
        return None

    async def _obtain(self, x: Exchange, most: int) -> Hold | Refusal:
        """Ask the database, for a second attempt as for a first: its lease was cut for what the first could cost."""
        if x.hold is not None:
            return await self.accounts.grow(x.hold, most, x.scope, x.started_us)
        got = await self.accounts.obtain(x.scope, most, x.started_us)
        if isinstance(got, Hold):
            x.hold = got
        return got

    def _take(self, x: Exchange, most: int) -> Hold | Refusal:
        if x.hold is not None:
            return x.hold if x.hold.grow(most) else self.accounts.refusal(x.hold, most)
        got = self.accounts.reserve(x.scope, most, x.started_us)
        if isinstance(got, Hold):
            x.hold = got
        return got

    def _target(self, x: Exchange, attempt: Attempt) -> Target:
        backend = attempt.backend
        supplied = x.clamped
        if (
            supplied is None
            and x.request.max_tokens is None
            and backend.max_output_tokens is None
            and x.hold is not None
            and x.hold.charges
        ):
            supplied = UNKNOWN_OUTPUT_TOKENS  # what was reserved must bind the backend too
        return Target(
            backend=backend.name,
            model=backend.model,
            max_tokens=supplied,
            most_tokens=backend.max_output_tokens,
            clamp=x.clamp,
            priority=x.features.priority,
            salt=x.principal.salt,
            headers=self.traces.headers(x.trace, backend.name, attempt.n) if self.traces is not None and x.trace is not None else {},
        )

    def _deadline(self, x: Exchange, backend: Backend) -> Deadline:
        total = DEFAULT_DEADLINE_S if x.deadline_at is None else max(0.001, x.deadline_at - time.monotonic())
        return Deadline(connect_s=backend.connect_s, first_byte_s=backend.first_byte_s, idle_s=backend.idle_s, total_s=total)

    def _end(self, x: Exchange, attempt: Attempt, outcome: str, error: ProviderError | None, remark: str = "") -> None:
        """Price an attempt that is over, put back what it did not use, teach the router, journal its end."""
        if attempt not in x.running:
            return  # ended before: a cancelled generator is closed after its request was settled
        x.running.remove(attempt)
        now = time.monotonic()
        backend = attempt.backend
        usage = _usage(x, attempt, error, self.factors.expected(backend.model))
        spent = cost(backend.price, usage) if attempt.share is None else attempt.share.leave(now)
        if usage is NOTHING:
            spent = 0
        if spent is not None and attempt.worst is not None and spent > attempt.worst:
            remark = remark or OVER
            self._learn_factor(x, backend, usage)
        end = _attempt_end(x, attempt, outcome, error, (usage, spent, remark))
        x.ends.append(end)
        if x.hold is not None and attempt.worst:
            x.hold.shrink(attempt.worst - (spent or 0))
        if error is not None:
            attempt.call.failed(now, error)
            self.accounts.attempt_ended(end)
        elif outcome == "completed":
            attempt.call.ended(now, usage.completion_tokens, None if usage.estimated else usage.cache_read)
            if not usage.estimated:
                self.factors.offer(x.request, backend.model, usage.prompt_tokens)
            said = usage.completion_tokens // x.request.n
            self.router.outputs.learn(x.route.name, x.principal.team_id, x.features.input_tokens, said)
        else:
            attempt.call.left(now)

    def _learn_factor(self, x: Exchange, backend: Backend, usage: Usage) -> None:
        """A vendor billed more than the worst case: where it counted more prompt than we did, the next bound is larger."""
        if not usage.estimated:
            self.factors.learn(backend.model, tokens.count_input_now(x.request, backend.model), usage.prompt_tokens)

    def abandon(self, x: Exchange, outcome: str) -> None:
        """Book what is still running when its request ends (client gone, drain, deadline). Synchronous."""
        for attempt in tuple(x.running):
            self._end(x, attempt, outcome, None)


def _unsent(x: Exchange, why: str) -> None:
    """A hedge that was decided was not sent after all."""
    if x.decision is not None and x.decision.hedge is not None:
        x.decision.hedge.result = why


def _join(held: list[Frame]) -> Frame:
    """The frames that waited and the one that ended the waiting, as one; the list is emptied."""
    last = held[-1]
    events = [event for frame in held for event in frame.events]
    wire = b"".join([frame.wire for frame in held])
    held.clear()
    return Frame(events=events, wire=wire, usage_wire=last.usage_wire, dialect=last.dialect, whole=last.whole)


def _cut_off(x: Exchange) -> Frame:
    """The end of a stream that its backend did not end."""
    return Frame(events=[Metered(x.ends[-1].usage), *(Finished("length", choice) for choice in range(x.request.n))])


def _usage(x: Exchange, attempt: Attempt, error: ProviderError | None, factor: float) -> Usage:
    """What an attempt used: the vendor's word, else what was sent and received, counted here and flagged.

    factor: our count × this is what the vendor would probably state.
    """
    meter, model = attempt.meter, attempt.backend.model
    stated = meter.usage
    if not attempt.dispatched or (error is not None and (error.answered or not error.sent) and stated is None):
        return NOTHING
    if stated is not None and meter.finished:
        return stated
    if attempt.counted is not None:
        asked, received = attempt.counted
        return Usage(input=round(asked * factor), output=max(meter.pieces, round(received * factor)), estimated=True)
    received = tokens.count_output(meter.text, meter.pieces, model)
    received = max(meter.pieces, round(received * factor))
    if stated is None:
        return Usage(input=round(tokens.count_input_now(x.request, model) * factor), output=received, estimated=True)
    if x.request.inputs and error is not None and error.sent and not error.answered:
        asked = tokens.count_input_now(x.request, model)  # cut within one of several calls: all of it may be billed
        return replace(stated, input=max(stated.input, asked), estimated=True, stated_nanousd=None)
    missing = received - stated.completion_tokens  # cut: the running total is the vendor's, but may lag behind what came
    return stated if missing <= 0 else replace(stated, output=stated.output + missing, estimated=True, stated_nanousd=None)


def _attempt_end(
    x: Exchange, attempt: Attempt, outcome: str, error: ProviderError | None, bill: tuple[Usage, int | None, str]
) -> AttemptEnd:
    usage, spent, remark = bill
    backend, meter = attempt.backend, attempt.meter
    return AttemptEnd(
        request_id=x.id,
        n=attempt.n,
        backend=backend.name,
        vendor=backend.vendor,
        model=backend.model,
        price_id=backend.price.id if backend.price is not None else "",
        outcome=outcome,
        cost=spent,
        worst=attempt.worst,
        usage=usage,
        error=error.code if error is not None else remark,
        status=(error.status if error.answered else 0) if error is not None else 200,
        ttft_ms=None if meter.first_at is None else round((meter.first_at - attempt.started) * 1000),
        duration_ms=round((time.monotonic() - attempt.started) * 1000),
        provider_id=meter.provider_id,
        began_ms=max(0, round((attempt.started - x.started) * 1000)),
    )


def _bound(x: Exchange, backend: Backend, input_tokens: int) -> Bound:
    return Bound(
        input_tokens=input_tokens,  # images and the like are in it
        max_tokens=x.request.max_tokens,
        n=x.request.n,
        context_tokens=backend.context_tokens,
        max_output_tokens=backend.max_output_tokens,
    )
