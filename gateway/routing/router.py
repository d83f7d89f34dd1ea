"""Holds what this worker knows of every backend and makes the choice for a request. Plain calls: no I/O, clock and draw passed in.

Knows no wire format and no money but prices; what it has learnt survives a reload of the catalog by the backend's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gateway.catalog import Backend, Catalog, Route
from gateway.errors import GatewayError
from gateway.routing.choose import Knobs, Plan, choose
from gateway.routing.decision import SENT, Decision, Hedge
from gateway.routing.engine_load import LastHour
from gateway.routing.features import Features
from gateway.routing.filters import exhausted, refusal, unready
from gateway.routing.hedging import HedgeBudget, late_after_us
from gateway.routing.judges import Judges
from gateway.routing.outputs import Outputs
from gateway.routing.predict import predicted95_us
from gateway.routing.retry import RetryBudget
from gateway.routing.scarcity import learn
from gateway.routing.state import BackendState
from gateway.settings import Routing
from providers.errors import ProviderError
from providers.figures import Figures


class Choice(Struct, gc=False):
    """plan: backends in the order to ask them, empty exactly when `refusal` is an error to raise. decision: stored either way."""

    plan: Plan
    decision: Decision
    refusal: GatewayError | None = None


class EngineView(Struct, frozen=True, kw_only=True):
    """What an engine of one's own said of itself, over all its clients. age_s: of the figures, null before the first; figures: as long
    as they are fresh. problem: why there are none, or no newer ones. lately: null before it was read for a minute."""

    problem: str
    age_s: float | None
    figures: Figures | None
    lately: LastHour | None = None


class LeftView(Struct, frozen=True, kw_only=True):
    """What its vendor's answers leave this worker of its rate limits, until they are whole again; null = it said nothing that holds.

    input, output: tokens of prompts and of answers, where they are limited apart.
    """

    requests: float | None
    tokens: float | None
    input: float | None
    output: float | None


class BackendView(Struct, frozen=True, kw_only=True):
    """What this worker believes. state: ready | drained | ejected | probing | cooling | rate_limited | parallel | stalled | headroom.
    ttft95_ms: of an empty prompt sent now. failure_odds: of the next attempt, to 1. engine: of an engine of one's own, else null."""

    backend: str
    state: str
    drained: bool
    ready_in_s: float
    in_flight: int
    waiting: int
    samples: int
    ttft95_ms: float
    tpot95_ms: float
    failure_odds: float
    left: LeftView
    engine: EngineView | None


class Router:
    """One per worker. `retries` and `hedges` are its budgets for attempts beyond a request's first; `outputs` foretells lengths,
    `judges` whether a weak model will do."""

    def __init__(self, settings: Routing | None = None, workers: int = 1) -> None:
        self._settings = settings or Routing()
        self._workers = workers  # that share a vendor's rate limits
        self._catalog: Catalog | None = None
        self._knobs = Knobs()
        self._states: dict[str, BackendState] = {}
        self._by_route: dict[str, tuple[BackendState, ...]] = {}
        self._own: dict[str, tuple[tuple[int, BackendState], ...]] = {}  # and where engines of one's own stand there
        self._drained: frozenset[str] = frozenset()
        self._probed: dict[str, int] = {}  # the last order of each backend to end its waiting
        self.outputs = Outputs()
        self.judges = Judges()
        self.hedges = HedgeBudget(self._settings.hedge_share)
        self.retries = RetryBudget(self._settings.retry_budget_share, self._settings.retry_budget_floor)

    def plan(self, features: Features, route: Route, catalog: Catalog, now: float, draw: float) -> Choice:
        """Choose among the route's backends. now: monotonic seconds. draw: uniform in [0, 1)."""
        if catalog is not self._catalog:
            self._adopt(catalog)
        states = self._by_route.get(route.name)
        if states is None:
            states = self._by_route[route.name] = tuple(self._states[name] for name in route.backends if name in self._states)
        plan, decision = choose(features, states, now, draw, self._knobs)
        if plan:
            return Choice(plan, decision)
        return Choice(plan, decision, refusal(features, states, decision.candidates))

    def placed(self, decision: Decision, route: Route) -> None:
        """A request goes where a plan of this moment says; a plan alone teaches nothing."""
        own = self._own.get(route.name)
        if own is None:
            states = self._by_route[route.name]
            own = self._own[route.name] = tuple((place, state) for place, state in enumerate(states) if state.backend.own)
        if own:
            learn(decision, own)

    def share(self, workers: int) -> None:
        """So many workers live, this one included: each has its part of a vendor's rate limits."""
        if workers != self._workers:
            self._workers = workers
            for state in self._states.values():
                state.share(workers)

    def obey(self, drained: frozenset[str], probes: Mapping[str, int | None], now: float) -> None:
        """What operators ask: these backends get no new request; one whose order to probe is new need not wait for its ejection's end."""
        self._drained = drained
        for name, state in self._states.items():
            state.drained = name in drained
        for name, ordered in probes.items():
            if ordered is not None and ordered != self._probed.get(name):
                self._probed[name] = ordered
                if name in self._states:
                    self._states[name].health.retry(now)

    def open_backends(self, route: Route) -> int:
        """How many of a route's backends take requests."""
        return sum(name not in self._drained for name in route.backends)

    def states(self, catalog: Catalog) -> Mapping[str, BackendState]:
        """Of the backends of the catalog in force, by name."""
        if catalog is not self._catalog:
            self._adopt(catalog)
        return self._states

    def state(self, backend: Backend) -> BackendState:
        """The state behind a plan's entry; `state(b).started(now, features)` opens an attempt."""
        state = self._states.get(backend.name)
        if state is None:  # the catalog was swapped between the choice and this attempt
            state = self._states[backend.name] = BackendState(backend, self._settings, self._workers)
        return state

    def exhausted(self, errors: list[ProviderError], plan: Iterable[Backend], now: float) -> GatewayError:
        """The error for a request whose attempts all failed; errors: of its attempts, in order, at least one."""
        return exhausted(errors, [self.state(backend) for backend in plan], now)

    def hedge_after_s(self, features: Features, decision: Decision) -> float | None:
        """When a request without a first token may be hedged, in seconds; None = never. Not while it is well within what was predicted."""
        objective_ms = features.deadline_ms if features.ttft_ms is None else features.ttft_ms
        if self.hedges.share <= 0.0 or objective_ms is None or not features.stream or len(decision.order) < 2:
            return None
        wait_s = late_after_us(objective_ms, decision.candidates[decision.order[0]].ttft95_us) / 1e6
        return wait_s if wait_s < objective_ms / 1000.0 else None

    def hedge(
        self, x: tuple[Features, Route, Catalog], taken: Collection[str], waited_s: float, now: float, record: Decision | None = None
    ) -> Backend | None:
        """Whom to ask beside the backends `taken`: the cheapest that is predicted to be in time with what is left of the objective. Takes
        from the budget of hedges; None = nobody, or no hedge is left. record: the request's decision, which is told what was decided."""
        features, route, catalog = x
        first_token = features.ttft_ms is not None
        objective_ms = features.ttft_ms if first_token else features.deadline_ms
        if objective_ms is None:
            return None
        hedge = Hedge(0, int(waited_s * 1e6), "no_token")
        if record is not None:
            hedge.after_us = late_after_us(objective_ms, record.candidates[record.order[0]].ttft95_us)
            record.hedge = hedge
        if not self.hedges.take():
            return None
        left_ms = objective_ms - waited_s * 1000.0
        left = replace(features, ttft_ms=left_ms, tpot_ms=None) if first_token else replace(features, deadline_ms=left_ms)
        choice = self.plan(left, route, catalog, now, 0.5)
        decision = choice.decision
        for index, backend in zip(decision.order, choice.plan, strict=True):
            one = decision.candidates[index]
            predicted_us = one.ttft95_us if first_token else one.e2e95_us
            if backend.name not in taken and not one.reason and predicted_us <= left_ms * 1000.0:
                hedge.result, hedge.second, hedge.ttft95_us = SENT, index, one.ttft95_us
                return backend
        hedge.result = "nobody"
        self.hedges.give_back()
        return None

    def snapshot(self, now: float) -> list[BackendView]:
        """One entry per backend, for the admin pages and metrics."""
        known = self._states if self._catalog is None else self._catalog.backends
        views = []
        for name, s in self._states.items():
            if name not in known:
                continue
            reason, wait_s = unready(s, 0, 0, now)
            load = s.load(now) if s.backend.own else (0, 0)
            views.append(
                BackendView(
                    backend=name,
                    state="drained" if s.drained else reason or "ready",
                    drained=s.drained,
                    ready_in_s=round(wait_s, 3),
                    in_flight=s.in_flight,
                    waiting=len(s.waiting),
                    samples=len(s.predictor.ttft.window.samples),
                    ttft95_ms=predicted95_us(s.ttft_line(now), *load) / 1000,
                    tpot95_ms=predicted95_us(s.predictor.tpot.line(now), *load) / 1000,
                    failure_odds=s.odds_ppm(now) / 1e6,
                    left=LeftView(**{name: getattr(s.headroom, name).left(now) for name in LeftView.__struct_fields__}),
                    engine=_engine(s, now),
                )
            )
        return views

    def _adopt(self, catalog: Catalog) -> None:
        """A new snapshot: keep the states of backends that are still the same machine; of the rest each running Call keeps its own."""
        states: dict[str, BackendState] = {}
        for name, backend in catalog.backends.items():
            old = self._states.get(name)
            if old is not None and _same_machine(old.backend, backend):
                old.update(backend)
                states[name] = old
            else:
                states[name] = BackendState(backend, self._settings, self._workers)
                states[name].drained = name in self._drained
        self._states = states
        self._by_route, self._own = {}, {}
        self._catalog = catalog
        self._knobs = Knobs(catalog.version, self._settings.margin, self._settings.explore_share)


def _engine(state: BackendState, now: float) -> EngineView | None:
    engine = state.engine
    if not state.backend.own:
        return None
    age_s = None if engine.figures is None else round(now - engine.at, 3)
    return EngineView(problem=engine.problem, age_s=age_s, figures=engine.fresh(now), lately=engine.growth.lately(now))


def _same_machine(a: Backend, b: Backend) -> bool:
    return (a.vendor, a.model, a.base_url) == (b.vendor, b.model, b.base_url)
