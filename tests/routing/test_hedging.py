from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.hedging import MOST, HedgeBudget


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
