"""What choices would have cost otherwise, by hand-made records whose other choice is plain to see."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.routing.choose import rank
from gateway.routing.decision import POLICY, Candidate, Decision, Quality
from gateway.routing.what_if import DEADLINE, GAIN_STEP, ROOM, TPOT, TTFT, Way, WhatIf

CHEAP = {"cost": 1_000, "ttft95_us": 2_000_000, "tpot95_us": 40_000, "e2e95_us": 9_000_000}
DEAR = {"cost": 5_000, "ttft95_us": 400_000, "tpot95_us": 10_000, "e2e95_us": 2_000_000}


def made(*candidates: Candidate, **more: Any) -> Decision:
    """A record of one choice among these."""
    given: dict[str, Any] = {"ttft_ms": None, "tpot_ms": None, "deadline_ms": None, "priority": 0, "draw": 0.5} | more
    quality = given.pop("quality", None)
    decision = Decision(POLICY, "c", "assistant", 1000, 100, 100, margin=1.0, explore_share=0.0, candidates=candidates, **given)
    decision.quality = quality
    decision.order, decision.explored, decision.propensity = rank(decision)
    return decision


def two(reason: str = "", **more: Any) -> Decision:
    return made(Candidate("dear", **DEAR), Candidate("cheap", reason, **CHEAP), **more)  # type: ignore[arg-type]


def found(*decisions: Decision) -> dict[Way, tuple[int, dict[str, int]]]:
    all_of = WhatIf()
    all_of.add(decisions)
    return {way: (effect.saved, dict(effect.moved)) for way, effect in all_of.best().items()}


@pytest.mark.parametrize(
    "kind, goal, percent",
    [
        (TTFT, {"ttft_ms": 1500.0}, 150),
        (TTFT, {"ttft_ms": 900.0}, 300),
        (TPOT, {"tpot_ms": 25.0}, 200),
        (DEADLINE, {"deadline_ms": 8000.0}, 150),
    ],
)
def test_the_least_looser_objective_that_lets_the_cheaper_one_in(kind: str, goal: dict[str, float], percent: int) -> None:
    record = two(**goal)
    assert record.candidates[record.order[0]].backend == "dear"
    assert found(record, record) == {Way(kind, "assistant", percent=percent): (8_000, {"cheap": 2})}
    before = two(**goal)
    found(before)
    assert before == record, "records stay as they are"


def test_no_objective_that_is_not_in_the_way_is_told() -> None:
    assert found(two(ttft_ms=2500.0)) == {}, "the cheap one was taken"
    assert found(two(ttft_ms=500.0)) == {}, "three times as long is not enough"
    assert found(two(ttft_ms=1500.0, tpot_ms=10.0)) == {}, "it would be late by the other objective"
    only = made(Candidate("dear", **DEAR), ttft_ms=100.0)  # type: ignore[arg-type]
    assert found(only, made(Candidate("a", "labels"))) == {}


def test_a_looser_objective_brings_nearly_all_before_it_is_told() -> None:
    near, far = two(ttft_ms=1500.0), two(ttft_ms=900.0)
    assert list(found(*[near] * 19, far)) == [Way(TTFT, "assistant", percent=150)], "95 % of what three times as long would bring"
    assert list(found(*[near] * 2, far)) == [Way(TTFT, "assistant", percent=300)]


@pytest.mark.parametrize("reason", ["rate_limited", "headroom", "parallel"])
def test_room_where_there_was_none(reason: str) -> None:
    assert found(two(reason)) == {Way(ROOM, "assistant", "cheap"): (4_000, {"cheap": 1})}


@pytest.mark.parametrize("reason", ["labels", "not_allowed", "ejected", "share", "yields", "context"])
def test_what_is_set_aside_for_a_rule_or_a_fault_stays_aside(reason: str) -> None:
    assert found(two(reason)) == {}


def test_a_lower_floor_counts_prompts_just_above_it_alone() -> None:
    def asked(gain: int, unseen: int = 0) -> Decision:
        return two("quality", quality=Quality("m", gain, 800_000, unseen, 100_000, 500_000, ("cheap",)))

    all_of = WhatIf()
    all_of.add([asked(100_000 + GAIN_STEP), asked(100_001), asked(100_001 + GAIN_STEP), asked(0, unseen=600_000)])
    (way, effect), *others = all_of.best().items()
    assert (way, others) == (Way("quality", "assistant"), [])
    assert (effect.saved, effect.requests, effect.gain) == (8_000, 2, 200_001 + GAIN_STEP)


def test_what_a_way_costs_more_is_taken_off_what_it_saves() -> None:
    """Both were late; with a longer objective the dearer one is in time and would be asked."""
    worse = made(
        Candidate("slow", cost=4_000, ttft95_us=2_000_000, tpot95_us=12_000),
        Candidate("quick", cost=9_000, ttft95_us=3_000_000, tpot95_us=9_000),
        ttft_ms=1000.0,
        tpot_ms=10.0,
    )
    assert worse.order[0] == 0
    assert found(worse) == {}
    assert found(worse, two(ttft_ms=1000.0), two(ttft_ms=1000.0)) == {Way(TTFT, "assistant", percent=200): (8_000, {"cheap": 2})}
    all_of = WhatIf()
    all_of.add([worse])
    assert all_of.ways[Way(TTFT, "assistant", percent=300)].saved == -5_000


def test_what_choices_came_to() -> None:
    all_of = WhatIf()
    all_of.add([two(), two(ttft_ms=1500.0), made(Candidate("free", cost=None)), made(Candidate("a", "labels"))])
    assert (all_of.seen, all_of.routes["assistant"].requests, all_of.routes["assistant"].cost) == (4, 2, 6_000)
