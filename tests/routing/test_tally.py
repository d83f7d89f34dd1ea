"""What a batch of decisions is counted as, off records as `choose` makes them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gateway.routing.choose import Knobs, choose
from gateway.routing.decision import Candidate, Decision, Quality
from gateway.routing.state import BackendState
from gateway.routing.tally import tally, verdict, why
from tests.routing.conftest import make_backend, make_features


def decided(*backends: str, **features: Any) -> Decision:
    states = [BackendState(make_backend(name, ttft_prior_ms=400.0)) for name in backends]
    return choose(make_features(**features), states, 0.0, 0.5, Knobs())[1]


def test_the_first_is_the_cheapest_in_time_or_the_least_late() -> None:
    assert why(decided("a", "b")) == "cheapest"
    assert why(decided("a", "b", ttft_ms=60_000.0)) == "cheapest"
    assert why(decided("a", "b", ttft_ms=1.0)) == "late"
    assert why(decided("a", "b", deadline_ms=1.0)) == "late"


def test_one_that_is_left_alone_is_no_choice() -> None:
    assert why(decided("a")) == "only"
    narrow = choose(
        make_features(input_tokens=50_000),
        [BackendState(make_backend("a")), BackendState(make_backend("b", context_tokens=1000))],
        0.0,
        0.5,
        Knobs(),
    )[1]
    assert why(narrow) == "only"
    assert tally([narrow]) == {("tollway_decisions_total", ("assistant", "only")): 1, ("tollway_set_aside_total", ("b", "context")): 1}


def test_a_guess_about_health_is_overridden_as_a_last_resort_and_a_fact_is_not() -> None:
    d = decided("a")
    assert why(replace(d, candidates=(Candidate("a", reason="ejected"),))) == "last_resort"
    assert why(replace(d, order=(), candidates=(Candidate("a", reason="not_allowed"),))) == "none"


def test_an_explored_one_is_said_to_be() -> None:
    assert why(replace(decided("a", "b"), explored=True)) == "explored"


def test_verdicts_of_quality_are_counted_where_a_route_asks() -> None:
    said = Quality("m", gain=10, weak_odds=900_000, unseen=0, limit=20, unseen_most=500_000, weak=("a",))
    weak, strong, unseen = (decided("a", "b", quality=replace(said, **more)) for more in ({}, {"gain": 30}, {"unseen": 600_000}))
    assert [verdict(one) for one in (weak, strong, unseen)] == ["weak", "strong", "unseen"]
    found = tally([weak, weak, strong, unseen, decided("a", "b")])
    assert {labels: times for (name, labels), times in found.items() if name == "tollway_quality_total"} == {
        ("assistant", "weak"): 2,
        ("assistant", "strong"): 1,
        ("assistant", "unseen"): 1,
    }
    assert found["tollway_set_aside_total", ("a", "quality")] == 2
