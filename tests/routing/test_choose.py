from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalog import Backend, Price, Tier
from gateway.routing.choose import Knobs, choose, differences, expected_cost, rates_of
from gateway.routing.decision import decode, encode
from gateway.routing.features import Features
from gateway.routing.filters import refusal
from gateway.routing.predict import GAP, WINDOW_S
from gateway.routing.state import BackendState
from providers.errors import RateLimited, ServerFailed

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


def price(usd_per_million: int) -> Price:
    return Price(id=f"test:{usd_per_million}", input=usd_per_million * 10**9, output=usd_per_million * 10**9)


def names(states: list[BackendState], features: Features, draw: float = 0.5, now: float = 0.0, **knobs: Any) -> list[str]:
    return [b.name for b in choose(features, states, now, draw, Knobs("v", **knobs))[0]]


def test_cheapest_first_without_objectives(state: Make, features: MakeFeatures) -> None:
    states = [state("dear", price=price(9)), state("cheap", price=price(1), ttft_prior_ms=9000.0), state("mid", price=price(3))]
    assert names(states, features()) == ["cheap", "mid", "dear"]


def test_cheapest_in_time_first_then_the_least_late(state: Make, features: MakeFeatures) -> None:
    states = [
        state("slow", price=price(1), ttft_prior_ms=3000.0),
        state("slower", price=price(1), ttft_prior_ms=5000.0),
        state("quick", price=price(5), ttft_prior_ms=200.0),
        state("fair", price=price(3), ttft_prior_ms=1200.0),
    ]
    assert names(states, features(ttft_ms=1500.0), margin=0.8) == ["fair", "quick", "slow", "slower"]
    assert names(states, features(ttft_ms=1499.0), margin=0.8)[0] == "quick", "1200 ms is beyond 0.8 of 1499"
    assert names(states, features(ttft_ms=100.0)) == ["quick", "fair", "slow", "slower"]


def test_each_objective_binds(state: Make, features: MakeFeatures) -> None:
    states = [
        state("cheap", price=price(1), ttft_prior_ms=500.0, tpot_prior_ms=50.0),
        state("dear", price=price(2), ttft_prior_ms=500.0, tpot_prior_ms=5.0),
    ]
    assert names(states, features(ttft_ms=1000.0))[0] == "cheap"
    assert names(states, features(ttft_ms=1000.0, tpot_ms=52.0))[0] == "dear"
    assert names(states, features(deadline_ms=5000.0), margin=0.8)[0] == "dear", "0.5 s + 100 x 50 ms = 5.5 s"
    assert names(states, features(deadline_ms=7000.0))[0] == "cheap"


def test_an_objective_of_zero_is_never_met_and_harms_nothing(state: Make, features: MakeFeatures) -> None:
    states = [state("cheap", price=price(1), ttft_prior_ms=500.0), state("quick", price=price(2), ttft_prior_ms=100.0)]
    assert names(states, features(ttft_ms=0.0)) == ["quick", "cheap"]


def test_unpriced_comes_last_and_is_not_free(state: Make, features: MakeFeatures) -> None:
    states = [state("unknown", price=None), state("dear", price=price(900)), state("free", price=price(0))]
    plan, decision = choose(features(), states, 0.0, 0.5, Knobs())
    assert [b.name for b in plan] == ["free", "dear", "unknown"]
    assert [c.cost for c in decision.candidates] == [None, 990_000_000, 0]


def test_replicas_of_one_price_are_balanced_by_load_then_by_chance(state: Make, features: MakeFeatures) -> None:
    states = [state(name, price=price(1)) for name in "abc"]
    firsts = Counter(names(states, features(), draw=(i + 0.5) / 300)[0] for i in range(300))
    assert firsts == {"a": 100, "b": 100, "c": 100}
    states[0].started(0.0, features())
    states[2].started(0.0, features())
    assert {names(states, features(), draw=d)[0] for d in (0.0, 0.5, 0.99)} == {"b"}
    assert {names(states, features(ttft_ms=5000.0), draw=d)[0] for d in (0.0, 0.5, 0.99)} == {"b"}


def test_relaxed_traffic_explores_what_has_no_fresh_sample(state: Make, features: MakeFeatures) -> None:
    states = [state("cheap", price=price(1)), state("stale", price=price(5)), state("hopeless", price=price(5), ttft_prior_ms=90_000.0)]
    relaxed = features(deadline_ms=60_000.0)
    firsts = Counter(names(states, relaxed, draw=(i + 0.5) / 1000)[0] for i in range(1000))
    assert firsts["cheap"] == 970 and abs(firsts["stale"] - 22.5) < 1 and abs(firsts["hopeless"] - 7.5) < 1, "a prior may be wrong"
    assert names(states, features(), draw=0.01)[0] == "cheap", "without an objective there is nothing to learn for"
    assert names(states, features(deadline_ms=60_000.0, ttft_ms=1500.0), draw=0.01)[0] == "cheap"
    states[1].started(0.0, relaxed).first_token(0.5)
    states[2].started(0.0, relaxed).first_token(0.5)
    assert names(states, relaxed, draw=0.01, now=10.0)[0] == "cheap", "it was seen ten seconds ago"
    assert names(states, relaxed, draw=0.02, now=40.0)[0] == "stale"
    assert names(states, relaxed, draw=0.01, now=40.0, explore_share=0.0)[0] == "cheap"


def test_who_was_far_better_once_is_tried_again_soon_by_relaxed_traffic(state: Make, features: MakeFeatures) -> None:
    states = [state("own", price=price(1)), state("browned", price=price(2)), state("stale", price=price(2))]
    relaxed = features(deadline_ms=60_000.0)
    for i in range(100):
        call = states[1].started(i * 0.1, features())
        call.first_token(i * 0.1 + (0.3 if i < 90 else 6.0))
        call.ended(i * 0.1 + 7.0, 50)
    now = 10.0 + GAP * WINDOW_S
    assert names(states, relaxed, draw=0.29, now=now)[0] == "browned"
    assert names(states, relaxed, draw=0.31, now=now)[0] == "own"
    assert names(states, features(ttft_ms=1500.0), draw=0.0, now=now)[-1] == "browned", "nobody who cannot wait"
    trial = states[1].started(now, relaxed)
    assert names(states, relaxed, draw=0.29, now=now + 0.2)[0] == "own", "one trial at a time"
    trial.first_token(now + 0.3)
    assert names(states, relaxed, draw=0.29, now=now + 0.4)[0] == "browned", "it went well"


def test_propensity_is_the_chance_over_the_draw(state: Make, features: MakeFeatures) -> None:
    states = [state("a", price=price(1)), state("b", price=price(1)), state("c", price=price(2))]
    relaxed = features(deadline_ms=60_000.0)
    seen: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for i in range(10_000):
        plan, decision = choose(relaxed, states, 0.0, (i + 0.5) / 10_000, Knobs())
        counts[plan[0].name] += 1
        seen[f"{plan[0].name}{decision.explored}"] = decision.propensity
    assert counts["a"] / 10_000 == pytest.approx(seen["aFalse"], abs=0.016)
    assert seen["cTrue"] == pytest.approx(0.0075)
    assert seen["aFalse"] == pytest.approx(0.485)


def test_a_long_prompt_pays_its_tier() -> None:
    tiered = Price(
        id="t",
        input=1,
        output=2,
        cache_read=1,
        tiers=(Tier(above=200, input=3, output=4), Tier(above=900, input=5, output=6, cache_read=2)),
    )
    assert rates_of(tiered, 200) == (1, 2, 1, 0)
    assert rates_of(tiered, 201) == (3, 4, 3, 0)
    assert rates_of(tiered, 901) == (5, 6, 2, 0)


@settings(max_examples=80, deadline=None)
@given(st.tuples(*[st.integers(0, 10**12)] * 4), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_expected_cost_is_exact_and_rounded_once(rates: tuple[int, int, int, int], fresh: int, cached: int, output: int) -> None:
    exact = Fraction(fresh * rates[0] + cached * rates[2] + output * rates[1], 10**6) + rates[3]
    assert abs(expected_cost(rates, fresh + cached, cached, output) - exact) <= Fraction(1, 2)


backends = st.builds(
    lambda i, usd, ttft, parallel, context: Backend(
        name=f"b{i}",
        vendor="v",
        model=f"m{i}",
        dialect="openai_chat",
        price=None if usd is None else Price(id=f"p{usd}", input=usd, output=3 * usd, cache_read=usd // 10),
        ttft_prior_ms=ttft,
        parallel=parallel,
        context_tokens=context,
    ),
    st.integers(0, 99),
    st.sampled_from([None, 0, 10**8, 10**8, 10**9, 10**10]),
    st.sampled_from([100.0, 800.0, 3000.0]),
    st.sampled_from([None, None, 1]),
    st.sampled_from([None, None, 500]),
)
objective = st.sampled_from([None, 50.0, 1500.0, 60_000.0])
happenings = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(["start", "token", "end", "fail", "limit", "left"]), st.floats(0.01, 3)), max_size=40
)


def live(states: list[BackendState], features: Features, events: list[tuple[int, str, float]]) -> float:
    now, calls = 0.0, []
    for index, what, passed in events:
        now += passed
        if what == "start" or not calls:
            calls.append(states[index % len(states)].started(now, features))
        elif what == "token":
            calls[index % len(calls)].first_token(now)
        elif what == "end":
            calls.pop(index % len(calls)).ended(now, 30)
        elif what == "fail":
            calls.pop(index % len(calls)).failed(now, ServerFailed("500", answered=True))
        elif what == "limit":
            calls.pop(index % len(calls)).failed(now, RateLimited("429", answered=True, retry_after_s=passed))
        else:
            calls.pop(index % len(calls)).left(now)
    return now


@settings(max_examples=120, deadline=None)
@given(
    st.lists(backends, min_size=1, max_size=8, unique_by=lambda b: b.name),
    happenings,
    st.tuples(objective, objective, objective),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0, 0, 10**8, 10**9]),
)
def test_a_choice_is_determined_and_recomputed_from_its_record(
    given_backends: list[Backend], events: list[tuple[int, str, float]], goals: tuple[float | None, ...], draw: float, scarcity: int
) -> None:
    features = Features(
        route="r", dialect="openai_chat", input_tokens=700, input_tokens_upper=2000, expected_output_tokens=80,
        ttft_ms=goals[0], tpot_ms=goals[1], deadline_ms=goals[2],
    )  # fmt: skip
    states = [BackendState(b) for b in given_backends]
    now = live(states, features, events)
    for state in states[::2]:
        state.scarcity = scarcity
    plan, decision = choose(features, states, now, draw, Knobs("v1"))
    again, same = choose(features, states, now, draw, Knobs("v1"))
    assert (plan, decision) == (again, same)
    stored = decode(encode(decision))
    assert stored == decision
    assert differences(stored) == []
    assert len({b.name for b in plan}) == len(plan)
    hard = {"rate_limited", "parallel"}
    if any(c.reason not in hard for c in decision.candidates):
        assert plan, "health and size alone never leave a request without a backend"
    eligible = [c.backend for c in decision.candidates if not c.reason]
    if eligible:
        assert sorted(b.name for b in plan) == sorted(eligible)
    assert 0 < decision.propensity <= 1


def test_a_falsified_record_is_noticed(state: Make, features: MakeFeatures) -> None:
    _, decision = choose(features(), [state("a", price=price(1)), state("b", price=price(2))], 0.0, 0.5, Knobs())
    assert differences(decision) == []
    for field, value in (
        ("cost", 1),
        ("ttft95_us", 5),
        ("e2e95_us", 5),
        ("tpot95_us", 5),
        ("ttft", (1,)),
        ("rates", (1, 1, 1, 0)),
        ("odds_ppm", 900_000),
    ):
        forged = decode(encode(decision))
        setattr(forged.candidates[0], field, value)
        assert differences(forged), field
    forged = decode(encode(decision))
    forged.order = (1, 0)
    assert "choice" in differences(forged)[0]


def test_failover_goes_to_another_vendor_first_but_not_to_one_that_is_late(state: Make, features: MakeFeatures) -> None:
    states = [
        state("cheap", price=price(1), vendor="x"),
        state("sister", price=price(2), vendor="x"),
        state("other", price=price(3), vendor="y"),
        state("late", price=price(1), vendor="z", ttft_prior_ms=9000.0),
    ]
    assert names(states, features(ttft_ms=1500.0)) == ["cheap", "other", "sister", "late"]


def test_low_priority_is_refused_where_nobody_is_in_time_and_others_get_the_least_bad(state: Make, features: MakeFeatures) -> None:
    states = [state("slow", ttft_prior_ms=3000.0), state("slower", ttft_prior_ms=5000.0)]
    assert names(states, features(ttft_ms=1000.0)) == ["slow", "slower"]
    asked = features(ttft_ms=1000.0, priority=-1)
    plan, decision = choose(asked, states, 0.0, 0.5, Knobs())
    assert plan == () and differences(decision) == []
    told = refusal(asked, states, decision.candidates)
    assert (told.status, told.code) == (503, "no_backend_in_time")
    assert names(states, features(ttft_ms=6000.0, priority=-1)) == ["slow", "slower"]


def test_the_last_places_of_a_contended_backend_go_by_priority_and_by_share(state: Make, features: MakeFeatures) -> None:
    cheap, dear = state("cheap", price=price(1), parallel=10), state("dear", price=price(9))
    for n in range(8):
        cheap.started(0.0, features(team=1 if n else 2))
    first = lambda **given: names([cheap, dear], features(**given))[0]  # noqa: E731
    assert first(team=1) == "dear", "it holds seven of eight"
    assert first(team=2) == "cheap"
    assert first(team=1, priority=1) == "cheap"
    assert first(team=2, priority=-1) == "dear"
    assert names([cheap], features(team=1, priority=-1)) == ["cheap"], "while there are other backends"
    cheap.started(0.0, features(team=2))
    cheap.started(0.0, features(team=2))
    assert names([cheap], features(team=2, priority=1)) == [], "the limit itself holds for all"
