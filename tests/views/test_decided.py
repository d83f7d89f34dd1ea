"""The sentence over a decision and the words beside each candidate, one case each; drawn from any record in test_decision_drawing.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.routing.choose import rank
from gateway.routing.decision import Candidate, Decision, Quality
from gateway.views.decided import overrun, tell


def made(*candidates: Candidate, ttft: float | None = 1000.0, **given: Any) -> Decision:
    goals = {"tpot_ms": None, "deadline_ms": None, "margin": 0.8, "explore_share": 0.03, "priority": 0, "draw": 0.5} | given
    quality, labels = goals.pop("quality", None), goals.pop("labels", "")
    decision = Decision("4", "c", "r", 41_000, 100, 200, ttft, *goals.values(), candidates, quality=quality, labels=labels)
    decision.order, decision.explored, decision.propensity = rank(decision)
    return decision


FAST, SLOW = Candidate("fast", cost=500, ttft95_us=100_000), Candidate("slow", cost=100, ttft95_us=950_000, kin=1)
SCARCE = Candidate("engine", own=True, cost=1, scarcity=10**9)
WEAK = Quality("m", 42_000, 500_000, 0, 0, 1_000_000, ("smol",))


@pytest.mark.parametrize(
    ("decision", "headline"),
    [
        (made(FAST, SLOW), "fast was the only one of 2 candidates predicted inside 0.8 of the 1.00 s objective."),
        (made(FAST, SLOW, ttft=None), "slow was the cheapest of 2 candidates; no objective was set."),
        (
            made(FAST, SLOW, ttft=None, tpot_ms=20.0, deadline_ms=8000.0),
            "slow was the cheapest of 2 candidates predicted inside 0.8 of the 20 ms per token and the 8.00 s deadline.",
        ),
        (
            made(FAST, SCARCE),
            "fast was the cheapest of 2 candidates predicted inside 0.8 of the 1.00 s objective; engine costs less, but the room there is "
            "kept for those who would pay more elsewhere.",
        ),
        (made(FAST), "fast is the only backend."),
        (made(FAST, Candidate("x", "ejected")), "fast was the only one left of 2 candidates."),
        (made(FAST, SLOW, ttft=50.0), "None was predicted in time; fast had the smallest overrun, 2.0 × its objective."),
        (
            made(Candidate("x", "ejected", ready_ms=5), Candidate("y", "labels")),
            "Every backend was set aside; x was the first to be ready.",
        ),
        (made(Candidate("y", "labels")), "No backend could be asked."),
        (
            made(FAST, SLOW, Candidate("smol", "quality", cost=1), quality=WEAK),
            "fast was the cheapest of those that are strong enough: the prompt is predicted to need more than smol.",
        ),
        (
            made(FAST, Candidate("new", cost=900, doubt=1), ttft=None, deadline_ms=60_000.0, draw=0.001),
            "Sent to new to refresh its samples: 3 % of traffic that has time explores.",
        ),
    ],
)
def test_the_sentence(decision: Decision, headline: str) -> None:
    assert tell(decision).headline == headline


@pytest.mark.parametrize(
    ("candidate", "given", "verdict"),
    [
        (Candidate("x", cost=2000), {}, "Costs 4.0 × as much"),
        (Candidate("x", cost=14_000), {}, "Costs 28 × as much"),
        (Candidate("x", cost=500, e2e95_us=10**8, kin=2), {}, "Costs the same"),
        (Candidate("x"), {}, "No known price"),
        (SCARCE, {}, "Costs less, its room is scarce"),
        (Candidate("x", cost=1, ttft95_us=1_710_000), {}, "Too slow: 1.71 s, limit is 800 ms"),
        (Candidate("x", cost=1, tpot95_us=40_000), {"tpot_ms": 20.0}, "Too slow per token: 40 ms, limit is 16 ms"),
        (Candidate("x", cost=1, e2e95_us=9_200_000), {"deadline_ms": 10_000.0}, "Deadline: 9.20 s, limit is 8.00 s"),
        (Candidate("x", "labels"), {"labels": "residency=eu"}, "Lacks a label: residency: eu"),
        (Candidate("x", "context"), {}, "Prompt of 41.0k tokens, its context is too short"),
        (Candidate("x", "ejected", ready_ms=12_000), {}, "Ejected, probe in 12 s"),
        (Candidate("x", "ejected"), {}, "Ejected"),
        (Candidate("x", "rate_limited", ready_ms=18_000), {}, "Rate limit, 18 s"),
        (Candidate("smol", "quality", cost=1), {"quality": WEAK}, "Weaker: a strong model is right 4.2 points more often"),
        (Candidate("x", "of_a_later_version"), {}, "Of a later version"),
    ],
)
def test_what_was_against_a_candidate(candidate: Candidate, given: dict[str, Any], verdict: str) -> None:
    told = tell(made(FAST, candidate, **given))
    assert [row.verdict for row in told.rows if row.backend == candidate.backend] == [verdict]


def test_what_is_in_time_is_what_the_ranking_took_for_it() -> None:
    """The first of the plan is in time whenever any is."""
    for ttft in (50.0, 500.0, 1000.0, 5000.0):
        decision = made(FAST, SLOW, Candidate("mid", cost=300, ttft95_us=400_000, kin=2), ttft=ttft)
        told = tell(decision)
        assert told.rows[0].in_time == any(row.in_time for row in told.rows)
        assert [overrun(decision, c)[0] <= 0.8 for c in decision.candidates] == [c.ttft95_us <= 800 * ttft for c in decision.candidates]


def test_a_record_that_disagrees_is_told() -> None:
    decision = made(FAST, SLOW)
    decision.order = (1, 0)
    assert any(text.startswith("choice:") for text in tell(decision).differences)
