from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.choose import Knobs, choose, differences
from gateway.routing.decision import Decision, Hedge, decode, encode, explain
from gateway.routing.decision import hedged as said
from gateway.routing.features import Features
from gateway.routing.hedging import MOST, HedgeBudget, late_after_us
from gateway.routing.state import BackendState

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=400), st.sampled_from([0.0, 0.05, 0.2, 1.0]))
def test_hedges_stay_within_their_share_of_the_requests(late: list[bool], share: float) -> None:
    budget, hedges = HedgeBudget(share), 0
    for requests, one in enumerate(late, 1):
        budget.request()
        hedges += one and budget.take()
        assert hedges <= share * requests + 1e-6


def test_what_was_not_sent_comes_back_and_a_calm_hour_is_not_saved_up() -> None:
    budget = HedgeBudget(0.5)
    budget.request()
    assert not budget.take()
    budget.request()
    assert budget.take() and not budget.take()
    budget.give_back()
    assert budget.take()
    for _ in range(10_000):
        budget.request()
    assert sum(budget.take() for _ in range(100)) == MOST


def test_late_is_six_tenths_of_the_objective_but_not_before_most_of_what_was_predicted() -> None:
    assert late_after_us(1500.0, 500_000) == 900_000
    assert late_after_us(1000.0, 900_000) == 855_000


@pytest.fixture
def hedged(state: Make, features: MakeFeatures) -> Callable[..., Decision]:
    """The record of a choice between a cheap and a dear backend whose request was late."""

    def make(result: str = "sent", won: int = 2, **given: int) -> Decision:
        states = [state("cheap", ttft_prior_ms=800.0), state("dear", ttft_prior_ms=200.0)]
        _, decision = choose(features(ttft_ms=1500.0), states, 0.0, 0.5, Knobs())
        told = {"after_us": 900_000, "waited_us": 903_000, "ttft95_us": 200_000, **given}
        decision.hedge = Hedge(told["after_us"], told["waited_us"], result, 1, told["ttft95_us"], won)
        return decode(encode(decision))

    return make


def test_the_record_tells_when_why_and_who_won(hedged: Callable[..., Decision]) -> None:
    assert (
        "late after 900.0 ms, noticed after 903.0 ms: dear was asked beside it (ttft95 200.0 ms); dear answered first"
        in explain(hedged(), differences(hedged())).splitlines()
    )
    assert "beside it (ttft95 200.0 ms); the first answered first" in explain(hedged(won=1))
    assert "beside it (ttft95 200.0 ms); neither answered" in explain(hedged(won=0))
    assert [said(hedged(won=won).hedge) for won in (0, 1, 2)] == ["unanswered", "lost", "won"]  # type: ignore[arg-type]
    assert said(hedged("no_token").hedge) == "no_token"  # type: ignore[arg-type]
    assert "no hedge was left" in explain(hedged("no_token"))
    assert "no other backend would be in time" in explain(hedged("nobody"))
    assert "a budget had no room for both" in explain(hedged("no_money"))


def test_what_was_recorded_of_a_hedge_is_recomputed(hedged: Callable[..., Decision]) -> None:
    assert differences(hedged()) == []
    assert differences(hedged(after_us=899_999)) == ["hedge after_us: recorded 899999, recomputed 900000"]
    assert differences(hedged(ttft95_us=597_002)) == ["hedge: 597002 us were not in time after 903000 us"]
