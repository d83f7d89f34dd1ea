from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.catalog import Backend, Catalog, Price, Route
from gateway.routing.choose import differences
from gateway.routing.decision import Decision, decode, encode, explain, late
from gateway.routing.features import Features
from gateway.routing.router import Router
from gateway.routing.scarcity import MEMORY

MakeBackend = Callable[..., Backend]
MakeFeatures = Callable[..., Features]
USD = 10**9


class Place:
    """A route with an engine of one's own that costs nearly nothing, a slow and cheap backend and a fast and dear one."""

    def __init__(self, backend: MakeBackend, features: MakeFeatures, replicas: int = 1) -> None:
        def priced(usd: float) -> Price:
            return Price(id="p", input=int(usd * USD), output=int(usd * USD))

        engines = [
            backend(f"own{i}", vendor="vllm", own=True, ttft_prior_ms=400.0, tpot_prior_ms=20.0, price=priced(0.02))
            for i in range(replicas)
        ]
        slow = backend("slow", vendor="s", ttft_prior_ms=9000.0, tpot_prior_ms=100.0, price=priced(0.2))
        fast = backend("fast", vendor="f", ttft_prior_ms=200.0, tpot_prior_ms=5.0, price=priced(1.0))
        backends = {one.name: one for one in (*engines, slow, fast)}
        self.route = Route(name="assistant", backends=tuple(backends))
        self.catalog = Catalog(version="v1", backends=backends, routes={"assistant": self.route})
        self.router = Router()
        self.now = 0.0
        self.hurried = features(ttft_ms=1500.0, tpot_ms=60.0)
        self.relaxed = features(deadline_ms=60_000.0)

    def asked(self, features: Features) -> Decision:
        return self.router.plan(features, self.route, self.catalog, self.now, 0.5).decision

    def placed(self, features: Features) -> str:
        decision = self.asked(features)
        self.router.placed(decision, self.route)
        return first(decision)

    def scarcity(self, name: str = "own0") -> int:
        return self.router.states(self.catalog)[name].scarcity

    def answers(self, name: str, after_s: float) -> None:
        """An engine answers many requests, each so long after it was asked."""
        state = self.router.states(self.catalog)[name]
        for _ in range(150):
            self.now += 0.2
            call = state.started(self.now - after_s - 2.0, self.hurried)
            call.first_token(self.now - 2.0)
            call.ended(self.now, 100)

    def fill(self, name: str = "own0") -> None:
        """So much waits for it that a hurried request would be late there, one with a minute not."""
        self.answers(name, 3.0)

    def empty(self, name: str = "own0") -> None:
        self.answers(name, 0.3)


@pytest.fixture
def place(backend: MakeBackend, features: MakeFeatures) -> Place:
    return Place(backend, features)


def first(decision: Decision) -> str:
    return decision.candidates[decision.order[0]].backend


def test_relaxed_requests_leave_a_full_engine_to_those_for_whom_elsewhere_is_dear(place: Place) -> None:
    assert place.placed(place.hurried) == "own0" and place.placed(place.relaxed) == "own0" and place.scarcity() == 0
    place.fill()
    assert place.placed(place.relaxed) == "own0", "nobody was turned away yet"
    for _ in range(4 * MEMORY):
        assert place.placed(place.hurried) == "fast"
    assert place.scarcity() == pytest.approx(0.98 * USD, rel=0.05), "what a token costs more on the fast one"
    assert place.asked(place.relaxed).candidates[0].scarcity == place.scarcity()
    assert first(place.asked(place.relaxed)) == "slow"
    place.empty()
    for _ in range(4 * MEMORY):
        assert place.placed(place.hurried) == "own0", "it costs there what it costs elsewhere, less than that in the end"
    assert place.placed(place.relaxed) == "own0" and place.scarcity() < 0.05 * USD, "nobody is turned away any more"


def test_a_plan_that_is_not_carried_out_and_one_of_exploration_teach_nothing(place: Place) -> None:
    place.fill()
    for _ in range(MEMORY):
        place.asked(place.hurried)
    explored = place.asked(place.hurried)
    explored.explored = True
    place.router.placed(explored, place.route)
    assert place.scarcity() == 0


def test_whoever_was_late_anyway_or_paid_no_more_teaches_nothing(place: Place, features: MakeFeatures) -> None:
    place.fill()
    late_everywhere = features(ttft_ms=10.0)
    assert first(place.asked(late_everywhere)) == "fast"
    decision = place.asked(place.hurried)
    decision.candidates[2].cost = decision.candidates[0].cost
    place.router.placed(decision, place.route)
    assert place.scarcity() == 0


def test_each_objective_makes_late(place: Place, features: MakeFeatures) -> None:
    for goals, expected in (
        ({}, False),
        ({"ttft_ms": 500.0}, False),
        ({"ttft_ms": 410.0}, True),
        ({"tpot_ms": 22.0}, False),
        ({"tpot_ms": 21.0}, True),
        ({"deadline_ms": 2700.0}, False),
        ({"deadline_ms": 2500.0}, True),
    ):
        decision = place.asked(features(**goals))
        assert late(decision, decision.candidates[0]) is expected, goals


def test_replicas_with_a_price_of_scarcity_are_still_shared_by_what_is_pending(backend: MakeBackend, features: MakeFeatures) -> None:
    place = Place(backend, features, replicas=2)
    place.fill("own0")
    place.fill("own1")
    for _ in range(MEMORY):
        assert place.placed(place.hurried) == "fast"
    assert place.scarcity("own0") == place.scarcity("own1") > 0
    place.empty("own0")
    place.empty("own1")
    states = place.router.states(place.catalog)
    for name, other in (("own0", "own1"), ("own1", "own0")):
        call = states[name].started(place.now, features(input_tokens=500))
        assert first(place.asked(place.hurried)) == other
        call.left(place.now)


def test_it_stands_in_the_record_and_is_recomputed(place: Place) -> None:
    place.fill()
    for _ in range(4 * MEMORY):
        place.placed(place.hurried)
    stored = decode(encode(place.asked(place.relaxed)))
    assert differences(stored) == []
    assert "beside which others are expected to lose 0.00" in explain(stored)
    stored.candidates[0].scarcity = 0
    assert "choice" in differences(stored)[0]
