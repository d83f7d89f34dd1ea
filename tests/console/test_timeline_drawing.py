"""The timeline: every attempt once, in its box, from its beginning to its end, whether its row says when it began or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.timeline_drawing import FAILED, GATEWAY, STREAMING, TICKS_MOST, WAITING, begins_ms, draw, ticks


def attempt(n: int, **given: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"n": n, "backend": f"b{n}", "outcome": "completed", "status": 200, "error": ""}
    return base | {"ttft_ms": 300, "duration_ms": 1000, "began_ms": None} | given


def row(**given: Any) -> dict[str, Any]:
    return {"duration_ms": 3860, "ttft_ms": 1120, "backend": "b2", "outcome": "completed"} | given


ATTEMPTS = st.lists(
    st.builds(
        lambda outcome, took, first, began, error: attempt(
            1, outcome=outcome, duration_ms=took, ttft_ms=first, began_ms=began, error=error, status=503 if outcome == "failed" else 200
        ),
        st.sampled_from(["completed", "failed", "cancelled", "unknown"]),
        st.integers(0, 700_000),
        st.one_of(st.none(), st.integers(0, 700_000)),
        st.one_of(st.none(), st.integers(0, 700_000)),
        st.sampled_from(["", "lost_race", "overloaded"]),
    ),
    max_size=6,
)


@given(ATTEMPTS, st.integers(0, 800_000), st.one_of(st.none(), st.integers(0, 800_000)))
def test_every_attempt_has_a_lane_and_nothing_leaves_the_box(tried: list[dict[str, Any]], took: int, first: int | None) -> None:
    for n, one in enumerate(tried, 1):
        one["n"] = n
    drawn = draw(row(duration_ms=took, ttft_ms=first, backend="b1"), tried)
    assert [lane.n for lane in drawn.lanes] == [0, *range(1, len(tried) + 1)]
    for lane in drawn.lanes:
        assert lane.pieces and lane.took and lane.label
        for piece in lane.pieces:
            assert 0.0 <= piece.left <= 100.0 and piece.width > 0.0 and piece.left + piece.width <= 100.05
    assert 1 <= len(drawn.ticks) <= TICKS_MOST + 1
    assert all(0.0 <= tick.at <= 92.1 for tick in drawn.ticks)


def test_a_failover_as_it_was() -> None:
    tried = [
        attempt(1, outcome="failed", status=503, ttft_ms=None, duration_ms=212, began_ms=2),
        attempt(2, ttft_ms=904, duration_ms=3640, began_ms=216),
    ]
    drawn = draw(row(), tried)
    gateway, failed, answered = drawn.lanes
    assert [(piece.kind) for piece in (*gateway.pieces, *failed.pieces, *answered.pieces)] == [GATEWAY, FAILED, WAITING, STREAMING]
    assert (failed.tag, failed.took, answered.tag, answered.took) == ("503", "212 ms", "", "3.64 s")
    assert answered.pieces[0].left == 5.6 and answered.pieces[1].left == pytest.approx(100 * 1120 / 3860, abs=0.1)
    assert [tick.word for tick in drawn.ticks] == ["0", "1 s", "2 s", "3 s"]


def test_a_hedge_runs_beside_the_first() -> None:
    tried = [
        attempt(1, outcome="cancelled", error="lost_race", ttft_ms=None, duration_ms=1500, began_ms=1),
        attempt(2, ttft_ms=200, duration_ms=900, began_ms=1300),
    ]
    first, second = draw(row(duration_ms=2200, ttft_ms=1500), tried).lanes[1:]
    assert first.tag == "lost the race" and [piece.kind for piece in first.pieces] == [WAITING]
    assert second.pieces[0].left < first.pieces[0].left + first.pieces[0].width


def test_rows_of_before_follow_from_their_times() -> None:
    tried = [attempt(1, outcome="failed", ttft_ms=None, duration_ms=200), attempt(2, ttft_ms=904, duration_ms=3640)]
    assert begins_ms(row(), tried) == [0, 1120 - 904]


def test_without_an_attempt_there_is_the_gateway_s_own_lane() -> None:
    cached, refused = draw(row(outcome="cached", ttft_ms=None, duration_ms=2), []), draw(row(outcome="refused", duration_ms=0), [])
    assert [lane.name for lane in (*cached.lanes, *refused.lanes)] == ["Answer from the cache", "Admit and refuse"]


@pytest.mark.parametrize(
    ("total", "words"),
    [(1, ["0"]), (12, ["0", "5 ms", "10 ms"]), (3860, ["0", "1 s", "2 s", "3 s"]), (600_000, ["0", "2 min", "4 min", "6 min", "8 min"])],
)
def test_the_axis_has_round_times(total: int, words: list[str]) -> None:
    assert [tick.word for tick in ticks(total)] == words
