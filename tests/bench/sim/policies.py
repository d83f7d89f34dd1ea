"""Our policy and its peers, behind one interface. Ours is the gateway's own Router; peers are written after the strategies that known
gateways ship, each with the same ejection, rate-limit waiting, retry table and attempts as ours, so that only the choice differs.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from gateway.catalog import Backend, Catalog, Price, Route
from gateway.routing.features import Features
from gateway.routing.router import Router
from gateway.routing.state import BackendState, Call
from gateway.settings import Routing
from providers.errors import ProviderError
from tests.bench.sim.run import World
from tests.bench.sim.traces import INTERACTIVE_TPOT_S, INTERACTIVE_TTFT_S, RELAXED_DEADLINE_S, Asked
from tests.bench.sim.world import OFFERS

ROUTE = "chat"


OWN_PRIORS = {"ttft_prior_ms": 1000.0, "tpot_prior_ms": 40.0}


def catalog(world: World, cold: bool = False) -> Catalog:
    """The configuration of the world, with priors as published. cold: none given, so the shipped ones hold."""
    backends = {}
    for name, rates in zip(world.names, world.rates, strict=True):
        offer = next((one for one in OFFERS if one.name == name), None)
        backends[name] = Backend(
            name=name,
            vendor=offer.provider if offer is not None else "vllm",
            model=name.rpartition("-")[0] if offer is None else offer.model,
            dialect="openai_chat",
            own=offer is None,
            rpm=None if offer is None else offer.rpm,
            tpm=None if offer is None else offer.tpm,
            price=Price(id=f"config:{name}", input=rates[0], output=rates[1]),
            **({} if cold else world.priors.get(name, OWN_PRIORS)),
        )
    route = Route(name=ROUTE, backends=tuple(world.names), max_attempts=3)
    return Catalog(version="simulated", backends=backends, routes={ROUTE: route})


def features_of(asked: Asked, expected: tuple[int, int]) -> Features:
    return Features(
        route=ROUTE,
        dialect="openai_chat",
        input_tokens=asked.input_tokens,
        input_tokens_upper=asked.input_tokens * 2,
        expected_output_tokens=expected[0],
        output_high_tokens=expected[1],
        stream=True,
        team=asked.team,
        prefix=asked.prefix,
        ttft_ms=None if asked.relaxed else INTERACTIVE_TTFT_S * 1000,
        tpot_ms=None if asked.relaxed else INTERACTIVE_TPOT_S * 1000,
        deadline_ms=RELAXED_DEADLINE_S * 1000 if asked.relaxed else None,
    )


class Ours:
    """The gateway's router with the settings that ship, or those given."""

    name = "tollway"

    def __init__(self, world: World, seed: int, settings: Routing | None = None, cold: bool = False, goals: bool = True) -> None:
        self.settings = settings or Routing()
        self.goals = goals  # False: nobody waits for a time
        self.router = Router(self.settings)
        self.catalog = catalog(world, cold)
        self.route = self.catalog.routes[ROUTE]
        self.backends = [self.catalog.backends[name] for name in world.names]
        self.number = {name: i for i, name in enumerate(world.names)}
        self.draw = random.Random(f"ours:{seed}")

    def features(self, asked: Asked) -> Features:
        features = features_of(asked, self.router.outputs.expected(ROUTE, asked.team, None, asked.input_tokens))
        return features if self.goals else replace(features, ttft_ms=None, tpot_ms=None, deadline_ms=None)

    def plan(self, asked: Asked, now: float) -> Sequence[int]:
        choice = self.router.plan(self.features(asked), self.route, self.catalog, now, self.draw.random())
        self.decision = choice.decision
        self.router.placed(choice.decision, self.route)
        return [self.number[one.name] for one in choice.plan]

    def started(self, backend: int, asked: Asked, now: float) -> Call:
        return self.router.state(self.backends[backend]).started(now, self.features(asked))

    def answered(self, asked: Asked, output_tokens: int) -> None:
        self.router.outputs.learn(ROUTE, asked.team, asked.input_tokens, output_tokens)

    def hedge_after_s(self, asked: Asked) -> float | None:
        self.router.hedges.request()
        return self.router.hedge_after_s(self.features(asked), self.decision)

    def hedge(self, asked: Asked, taken: int, now: float) -> int | None:
        x = (self.features(asked), self.route, self.catalog)
        other = self.router.hedge(x, (self.backends[taken].name,), now - asked.at, now)
        return None if other is None else self.number[other.name]


class PeerCall:
    """One attempt of a peer: the state that all share, and what the peer itself learns."""

    def __init__(self, peer: Peer, backend: int, now: float) -> None:
        self.peer, self.backend, self.began = peer, backend, now
        state = peer.states[backend]
        state.health.began(now, self)
        peer.in_flight[backend] += 1
        self.open = True

    def first_token(self, now: float) -> None:
        self.peer.states[self.backend].health.succeeded(self, self.began)
        self.peer.learn(self.backend, now, now - self.began)

    def ended(self, now: float, output_tokens: int) -> None:
        self._close()

    def failed(self, now: float, error: ProviderError) -> None:
        self._close()
        self.peer.states[self.backend].health.failed(now, error, self, self.began)
        if not error.answered:
            self.peer.learn(self.backend, now, now - self.began)

    def left(self, now: float) -> None:
        self._close()
        self.peer.states[self.backend].health.left(self)

    def _close(self) -> None:
        if self.open:
            self.open = False
            self.peer.in_flight[self.backend] -= 1


class Peer:
    """Ranks by `score`, smallest first; those set aside for health come last."""

    name = ""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.states = [BackendState(one) for one in catalog(world).backends.values()]
        self.in_flight = [0] * len(self.states)
        self.draw = random.Random(f"{self.name}:{seed}")
        self.limits = [one.offer.rpm for one in world.hosted] + [300] * len(world.engines)

    def score(self, backend: int, asked: Asked, now: float) -> float:
        raise NotImplementedError

    def learn(self, backend: int, now: float, ttft_s: float) -> None:
        pass

    def ranked(self, fit: list[int], asked: Asked, now: float) -> list[int]:
        self.draw.shuffle(fit)
        return sorted(fit, key=lambda i: self.score(i, asked, now))

    def plan(self, asked: Asked, now: float) -> Sequence[int]:
        reasons = [state.health.reason(now) for state in self.states]
        fit = [i for i, reason in enumerate(reasons) if not reason]
        return self.ranked(fit, asked, now) if fit else [i for i, reason in enumerate(reasons) if reason != "rate_limited"]

    def started(self, backend: int, asked: Asked, now: float) -> PeerCall:
        return PeerCall(self, backend, now)

    def answered(self, asked: Asked, output_tokens: int) -> None:
        pass

    def hedge_after_s(self, asked: Asked) -> float | None:
        return None

    def hedge(self, asked: Asked, taken: int, now: float) -> int | None:
        return None


class RoundRobin(Peer):
    name = "round robin"
    _next = 0

    def ranked(self, fit: list[int], asked: Asked, now: float) -> list[int]:
        self._next += 1
        first = self._next % len(self.states)
        return sorted(fit, key=lambda i: (i - first) % len(self.states))


class WeightedShuffle(Peer):
    """By chance, in proportion to the requests a minute that each allows."""

    name = "weighted shuffle"

    def score(self, backend: int, asked: Asked, now: float) -> float:
        return -math.log(1.0 - self.draw.random()) / self.limits[backend]


class LeastBusy(Peer):
    name = "least busy"

    def score(self, backend: int, asked: Asked, now: float) -> float:
        return self.in_flight[backend]


class LowestLatency(Peer):
    """The mean time to first token of the last ten answers; whoever has none is tried."""

    name = "lowest latency"

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.recent: list[deque[float]] = [deque(maxlen=10) for _ in self.states]

    def learn(self, backend: int, now: float, ttft_s: float) -> None:
        self.recent[backend].append(ttft_s)

    def score(self, backend: int, asked: Asked, now: float) -> float:
        seen = self.recent[backend]
        return sum(seen) / len(seen) if seen else 0.0


class LowestCost(Peer):
    name = "lowest cost"

    def score(self, backend: int, asked: Asked, now: float) -> float:
        rates = self.world.rates[backend]
        return rates[0] + rates[1]


class UsageBased(Peer):
    """The fewest tokens in the present minute; whoever would pass its limit is left out."""

    name = "usage based"

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.minute = 0
        self.used = [[0, 0] for _ in self.states]
        self.tpm = [one.offer.tpm for one in world.hosted] + [600_000] * len(world.engines)

    def ranked(self, fit: list[int], asked: Asked, now: float) -> list[int]:
        if int(now // 60) != self.minute:
            self.minute = int(now // 60)
            self.used = [[0, 0] for _ in self.states]
        room = [i for i in fit if self.used[i][0] < self.limits[i] and self.used[i][1] + asked.input_tokens <= self.tpm[i]]
        return sorted(room or fit, key=lambda i: (self.used[i][1], self.draw.random()))

    def started(self, backend: int, asked: Asked, now: float) -> PeerCall:
        self.used[backend][0] += 1
        self.used[backend][1] += asked.input_tokens + 200
        return super().started(backend, asked, now)


class PeakEwma(Peer):
    """Two by chance; the smaller of decayed peak latency times requests in flight."""

    name = "p2c peak-ewma"
    DECAY_S = 10.0

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.cost = [0.0] * len(self.states)
        self.stamp = [0.0] * len(self.states)

    def learn(self, backend: int, now: float, ttft_s: float) -> None:
        kept = math.exp(-(now - self.stamp[backend]) / self.DECAY_S)
        self.stamp[backend] = now
        old = self.cost[backend]
        self.cost[backend] = ttft_s if ttft_s > old else old * kept + ttft_s * (1.0 - kept)

    def score(self, backend: int, asked: Asked, now: float) -> float:
        return (self.cost[backend] or 1e-6) * (self.in_flight[backend] + 1)

    def ranked(self, fit: list[int], asked: Asked, now: float) -> list[int]:
        self.draw.shuffle(fit)
        two = sorted(fit[:2], key=lambda i: self.score(i, asked, now))
        return [*two, *fit[2:]]


class LocalFirst(Peer):
    """Our own engine until so many are in flight there, then the cheapest hosted backend."""

    name = "local first"
    SPILL = 24

    def score(self, backend: int, asked: Asked, now: float) -> float:
        rates = self.world.rates[backend]
        local = backend >= len(self.world.hosted)
        if local:
            return 0.0 if self.in_flight[backend] < self.SPILL else math.inf
        return rates[0] + rates[1]


class Clairvoyant(Peer):
    """Knows what each backend would do with this request, if nobody came after it: the cheapest in time by that, request by request."""

    name = "clairvoyant"

    def __init__(self, world: World, seed: int, margin: float = 0.8) -> None:
        super().__init__(world, seed)
        self.margin = margin

    def plan(self, asked: Asked, now: float) -> Sequence[int]:
        keys = [(*self.key(i, asked, now), i) for i in range(len(self.states))]
        return [i for late, _, i in sorted(keys) if late < math.inf][:3]

    def key(self, backend: int, asked: Asked, now: float) -> tuple[float, float]:
        world = self.world
        rates = world.rates[backend]
        cost = asked.input_tokens * rates[0] + asked.output_tokens * rates[1]
        number = backend - len(world.hosted)
        if number >= 0:
            engine = world.engines[number]
            if engine.frozen:
                return math.inf, cost
            ttft, tpot = engine.foresee((asked.input_tokens, asked.output_tokens), asked.prefix, now)
        else:
            hosted = world.hosted[backend]
            outcome = hosted.outcome(asked.index, asked.input_tokens, now)
            if outcome.first_s is None or hosted.limited_s(now, asked.input_tokens + asked.output_tokens) > 0.0:
                return math.inf, cost
            ttft, tpot = outcome.first_s, outcome.tpot_s
        if asked.relaxed:
            ratio = (ttft + tpot * (asked.output_tokens - 1)) / RELAXED_DEADLINE_S
        else:
            ratio = max(ttft / INTERACTIVE_TTFT_S, tpot / INTERACTIVE_TPOT_S)
        margin = self.margin if number >= 0 else 1.0  # a hosted answer is known for certain
        return (0.0, cost) if ratio <= margin else (ratio, cost)


PEERS: tuple[type[Peer], ...] = (RoundRobin, WeightedShuffle, LeastBusy, LowestLatency, LowestCost, UsageBased, PeakEwma)
