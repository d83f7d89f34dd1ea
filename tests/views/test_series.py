"""Series over time: every quarter of an hour lies in one step, and the steps add up to the whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.db.engine import snapshot
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.windows import bounds, to_us
from gateway.views.series import DAYS_MAX, POINTS_MAX, Part, before, joined, month_name, series, steps, tail, word
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write

NOVEMBER = to_us(datetime(2026, 11, 1, tzinfo=UTC))
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Santiago"])


@given(st.integers(0, 40_000), st.integers(1, 40_000), ZONES)
def test_steps_cover_a_stretch_without_gap(first: int, length: int, tz: str) -> None:
    since_us, until_us = NOVEMBER + first * BUCKET_US, NOVEMBER + (first + length) * BUCKET_US
    made = steps(since_us, until_us, tz)
    assert made.starts[0] == since_us and made.starts[-1] < until_us
    assert list(made.starts) == sorted(set(made.starts))
    assert len(made.starts) <= max(POINTS_MAX, DAYS_MAX) + 2
    if made.step_us == DAY_US:
        assert all(start == bounds("day", tz, start)[0] for start in made.starts[1:])


@pytest.mark.parametrize(
    ("long_us", "step_us"),
    [(HOUR_US, BUCKET_US), (DAY_US, HOUR_US), (7 * DAY_US, 3 * HOUR_US), (30 * DAY_US, DAY_US), (365 * DAY_US, 7 * DAY_US)],
)
def test_charts_have_points_enough_and_not_too_many(long_us: int, step_us: int) -> None:
    assert steps(NOVEMBER, NOVEMBER + long_us, "UTC").step_us == step_us


async def test_what_is_told_is_what_was_written(database: Database) -> None:
    until_us = NOVEMBER + 2 * DAY_US
    records = mixed(300, NOVEMBER, until_us)
    await write(database.engine, records)
    at = steps(NOVEMBER + DAY_US, until_us, "Europe/Berlin")
    async with snapshot(database.engine) as connection:
        told = await series(connection, ("team_id",), {}, at, latencies=True)
        compared = await before(connection, {}, at.starts[0], until_us)
        seen = await series(connection, ("team_id",), {"team_id": frozenset((1, 2))}, at)
    later = [one for one in records if one.started_at_us >= NOVEMBER + DAY_US]
    earlier = [one for one in records if one.started_at_us < NOVEMBER + DAY_US]
    assert told.total.of("requests") == len(later) and compared.of("requests") == len(earlier)
    assert told.total.of("cost") == sum(one.cost or 0 for one in later)
    assert told.total.outcomes["refused"] == sum(one.outcome == "refused" for one in later)
    for place, start in enumerate(at.starts):
        stop = at.starts[place + 1] if place + 1 < len(at.starts) else until_us
        assert told.points[place].of("requests") == sum(start <= one.started_at_us < stop for one in later)
    for team in (1, 2, 3):
        assert told.group((team,)).of("requests") == sum(one.team_id == team for one in later)
    assert set(seen.by) == {(1,), (2,)}
    assert told.total.quantile("ttft", 0.5) is not None and told.total.tokens > 0


def test_parts_add_up() -> None:
    one, other = Part(), Part()
    one.add("completed", [1, *([0] * 19)])
    other.add("failed", [2, *([0] * 19)])
    other.add_bins({"ttft": {5: 1}})
    whole = joined([one, other, one])
    assert (whole.of("requests"), whole.outcomes, whole.bins) == (4, {"completed": 2, "failed": 2}, {"ttft": {5: 1}})


def test_words() -> None:
    assert [word(step) for step in (BUCKET_US, HOUR_US, 3 * HOUR_US, DAY_US)] == ["per 15 minutes", "per hour", "per 3 hours", "per day"]
    assert month_name(NOVEMBER - 1, "Asia/Tokyo") == "November" and month_name(NOVEMBER - 1, "UTC") == "October"


def test_the_end_of_a_stretch_is_kept_where_all_of_it_is_too_much() -> None:
    at = steps(NOVEMBER, NOVEMBER + DAY_US, "UTC")
    parts = []
    for place in range(len(at.starts)):
        parts.append(Part())
        parts[-1].add("completed", [place, *([0] * 19)])
    assert tail(parts, at, 10**6) == at
    assert tail(parts, at, 23 + 22).starts[0] == NOVEMBER + 22 * HOUR_US
    assert tail(parts, at, 0).starts[0] == NOVEMBER + 23 * HOUR_US, "the last step is always there"
