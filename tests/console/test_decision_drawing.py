"""The drawing of a decision: every candidate once, bars within their boxes, and the words say the numbers of the record."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.console.decision_drawing import COST_SCALE, TIME_SCALE, Bar, draw
from gateway.routing.choose import rank
from gateway.routing.decision import Candidate, Decision
from gateway.routing.filters import SOFT, STATIC
from gateway.views import figures
from gateway.views.decided import tell

REASONS = ("", "", "", *STATIC, *SOFT, "parallel", "rate_limited")


@st.composite
def candidates(draw: Any) -> list[Candidate]:
    found = []
    for n in range(draw(st.integers(1, 8))):
        reason = draw(st.sampled_from(REASONS))
        times = (0, 0, 0) if reason in STATIC else draw(st.tuples(*(st.integers(0, 3_600_000_000) for _ in range(3))))
        cost = None if reason in STATIC else draw(st.one_of(st.none(), st.integers(0, 10**12)))
        found.append(
            Candidate(
                f"backend-{n}",
                reason,
                cost=cost,
                ttft95_us=times[0],
                tpot95_us=times[1],
                e2e95_us=times[2],
                kin=n % 3,
                doubt=draw(st.integers(0, 2)),
                ready_ms=draw(st.integers(0, 60_000)),
            )
        )
    return found


GOAL = st.one_of(st.none(), st.floats(0.5, 1e6))


@st.composite
def decisions(draw: Any) -> Decision:
    made = Decision(
        "4",
        "c",
        "r",
        draw(st.integers(0, 200_000)),
        100,
        200,
        draw(GOAL),
        draw(GOAL),
        draw(GOAL),
        draw(st.sampled_from([0.8, 0.93, 1.0])),
        draw(st.sampled_from([0.0, 0.03, 0.5])),
        draw(st.integers(-1, 1)),
        draw(st.floats(0, 0.999)),
        tuple(draw(candidates())),
        labels=draw(st.sampled_from(["", "residency=eu"])),
    )
    made.order, made.explored, made.propensity = rank(made)
    return made


@settings(max_examples=60)
@given(decisions(), st.dictionaries(st.sampled_from([f"backend-{n}" for n in range(8)]), st.integers(0, 10**7)))
def test_every_candidate_is_drawn_once_and_nothing_leaves_its_box(decision: Decision, seen: dict[str, int]) -> None:
    told = tell(decision)
    drawing = draw(decision, told, seen, "backend-1")
    rows = [*drawing.planned, *drawing.aside, *drawing.filtered]
    assert sorted(one.row.index for one in rows) == list(range(len(decision.candidates)))
    assert [one.row.index for one in drawing.planned] == list(decision.order)
    assert [one.row.place for one in drawing.planned] == list(range(1, len(decision.order) + 1))
    assert drawing.scale_us > 0
    for one in rows:
        candidate = decision.candidates[one.row.index]
        assert (one.row.backend, one.row.cost) == (candidate.backend, candidate.cost)
        assert one.row.verdict and "{" not in one.row.verdict
        assert (one.ttft is None) == (one in drawing.filtered)
        for bar in filter(None, (one.cost, one.ttft)):
            within(bar)
        if one.ttft is not None:
            times(one.ttft, candidate, decision, seen.get(one.row.backend), drawing.scale_us)
    assert sum("chosen" in one.tags for one in rows) == bool(decision.order)
    cheapest = [one.row.cost for one in drawing.planned if one.row.cost is not None and one.row.in_time]
    for one in (*drawing.planned, *drawing.aside):
        if one.cost is not None and cheapest and min(cheapest):
            whole = COST_SCALE * min(cheapest)
            assert one.cost.cut == ((one.row.cost or 0) > whole)
            assert abs(one.cost.width - min(100, 100 * (one.row.cost or 0) / whole)) <= 0.0501  # rounded to a tenth


def within(bar: Bar) -> None:
    for value in (bar.width, bar.safe, bar.goal, bar.seen):
        assert value is None or 0.0 <= value <= 100.0


def times(bar: Bar, candidate: Candidate, decision: Decision, seen: int | None, scale: int) -> None:
    """What is drawn is what is written beside it."""
    assert bar.label.startswith(f"Predicted {figures.duration(candidate.ttft95_us / 1000)}")
    assert bar.cut == (candidate.ttft95_us > scale)
    assert abs(bar.width - min(100, 100 * candidate.ttft95_us / scale)) <= 0.0501  # rounded to a tenth
    assert (bar.seen is None) == (seen is None)
    if seen is not None:
        assert f"seen {figures.duration(seen)}" in bar.label and bar.seen_cut == (seen * 1000 > scale)
    if decision.ttft_ms is not None:
        assert bar.goal is not None and bar.safe is not None and bar.safe <= bar.goal
        if decision.ttft_ms >= 10:
            assert abs(bar.goal - 100 / TIME_SCALE) <= 0.1
        assert bar.late == (candidate.ttft95_us > int(decision.ttft_ms * 1000 * decision.margin))
    else:
        assert bar.goal is bar.safe is None and not bar.late


def test_the_picture_of_the_reference() -> None:
    """A first that failed, a second that answered, one too slow and two that were filtered out."""
    row = {"tpot95_us": 17_000, "e2e95_us": 0}
    made = Decision("4", "c", "assistant", 2871, 480, 900, 1500.0, None, None, 0.8, 0.03, 0, 0.5, ())
    made.candidates = (
        Candidate("vllm-qwen", cost=383_200, ttft95_us=655_000, **row),
        Candidate("openai-mini", cost=574_650, ttft95_us=790_000, kin=1, **row),
        Candidate("sonnet", cost=10_629_000, ttft95_us=1_050_000, kin=2, **row),
        Candidate("azure", cost=574_650, ttft95_us=1_710_000, kin=3, **row),
        Candidate("smol", "capability"),
        Candidate("bedrock", "not_allowed"),
        Candidate("resting", "ejected", cost=1, ttft95_us=100_000, ready_ms=12_400, **row),
    )
    made.order, made.explored, made.propensity = rank(made)
    told = tell(made)
    assert told.headline == "vllm-qwen was the cheapest of 3 candidates predicted inside 0.8 of the 1.50 s objective."
    drawing = draw(made, told, {"openai-mini": 904}, "openai-mini")
    assert [(one.row.backend, one.row.verdict, one.tags) for one in drawing.planned] == [
        ("vllm-qwen", "Cheapest in time", ("chosen",)),
        ("openai-mini", "Costs 1.5 × as much", ("answered",)),
        ("sonnet", "Costs 28 × as much", ()),
        ("azure", "Too slow: 1.71 s, limit is 1.20 s", ()),
    ]
    assert [one.row.verdict for one in drawing.aside] == ["Ejected, probe in 12 s"]
    assert [one.row.verdict for one in drawing.filtered] == ["Cannot carry what the request needs", "Not on the allow-list of the key"]
    first, second, dear, late = drawing.planned
    assert first.ttft == Bar(width=27.3, safe=50.0, goal=62.5, label="Predicted 655 ms, objective 1.50 s")
    assert second.ttft is not None and (second.ttft.seen, second.ttft.label) == (37.7, "Predicted 790 ms, seen 904 ms, objective 1.50 s")
    assert first.cost == Bar(width=16.7) and dear.cost == Bar(width=100.0, cut=True)
    assert late.ttft is not None and late.ttft.late


def test_words_of_numbers_have_no_float_dust() -> None:
    made = Decision("4", "c", "r", 10, 1, 1, 1000.0, None, None, 0.93, 0.0, 0, 0.5, (Candidate("a", cost=3), Candidate("b", cost=10)))
    made.order, made.explored, made.propensity = rank(made)
    for row in tell(made).rows:
        assert re.search(r"\d\.\d{3,}", row.verdict) is None
