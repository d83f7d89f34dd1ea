"""Forecasts from a ledger: what was spent is exact, what will be is what the days before say, per group and per budget."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.errors import InvalidRequest
from gateway.money import forecast, retention
from gateway.money.forecast import Asked, weights
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.windows import bounds
from tests.conftest import Database
from tests.fixtures.ledger import record, write

HOUR_COST = 1_000_000


async def steady(engine: AsyncEngine, days: int) -> int:
    """Two teams that spend the same each hour, `search` twice what `ads` does, from days ago to now; the database's time."""
    for name in ("search", "ads"):
        await people.add_team(engine, name, actor=COMMAND_LINE)
    now_us = await retention.now_us(engine)
    first = now_us - now_us % DAY_US - days * DAY_US
    rows = [
        record(at, [("b", "completed", cost)], team_id=team)
        for at in range(first, now_us, HOUR_US)
        for team, cost in ((1, 2 * HOUR_COST), (2, HOUR_COST))
    ]
    await write(engine, rows)
    return now_us


@pytest.mark.parametrize(("per", "timezone"), [("month", "UTC"), ("week", "America/St_Johns"), ("day", "Asia/Kathmandu")])
async def test_a_steady_spend_goes_on(database: Database, per: str, timezone: str) -> None:
    await steady(database.engine, 30)
    found = await forecast.forecast(database.engine, Asked(by=("team",), per=per, timezone=timezone))
    since_us, until_us = bounds(per, timezone, found.now_us)
    assert (found.since_us, found.until_us) == (since_us, until_us) and until_us is not None
    hours = [at for at in range(since_us - since_us % HOUR_US, found.now_us, HOUR_US) if since_us <= at]
    left = (until_us - found.now_us) / HOUR_US
    assert [line.group for line in found.lines] == [("ads",), ("search",)]
    for line, cost in zip((*found.lines, found.total), (HOUR_COST, 2 * HOUR_COST, 3 * HOUR_COST), strict=True):
        assert abs(line.spent - len(hours) * cost) <= cost  # the hour may have ended meanwhile
        assert line.expected is not None and line.low is not None and line.high is not None
        assert abs(line.expected - line.spent - left * cost) <= 2 * cost
        assert line.low == line.expected == line.high and (line.method, line.days) == ("weekday", 28)


async def test_a_new_team_has_a_rate_and_no_interval(database: Database) -> None:
    await steady(database.engine, 1)
    found = await forecast.forecast(database.engine, Asked(by=("team", "backend"), per="month"))
    assert {(line.method, line.days, line.low) for line in found.lines} == {("rate", 1, None)}
    document = forecast.document(found)
    assert document["lines"][0]["low_usd"] is None and document["lines"][0]["expected_usd"] is not None
    assert document["total"]["spent_nanousd"] == found.total.spent
    head, *lines = forecast.as_csv(found).splitlines()
    assert head == "team,backend,spent_usd,expected_usd,low_usd,high_usd,method,days" and len(lines) == 2


async def test_without_any_spend_there_is_nothing_to_tell(database: Database) -> None:
    found = await forecast.forecast(database.engine, Asked())
    assert found.lines == () and (found.total.spent, found.total.expected, found.total.method) == (0, None, "none")


async def test_each_budget_says_whether_its_limit_is_passed(database: Database) -> None:
    now_us = await steady(database.engine, 30)
    month = bounds("month", "UTC", now_us)
    assert month[1] is not None
    whole = (month[1] - month[0]) // HOUR_US * 2 * HOUR_COST
    new = people.NewBudget(scope_kind="team", scope="search", limit_nanousd=0, period="month")
    limits = {"no": 2 * whole, "yes": 1}
    for told, limit in limits.items():
        budget = await people.set_budget(database.engine, people.NewBudget(**{**_fields(new), "limit_nanousd": limit}), actor=COMMAND_LINE)
        (one,) = await forecast.of_budgets(database.engine)
        assert one.passes == told and one.budget.id == budget.id
        assert one.line.expected is not None and abs(one.line.expected - whole) <= 4 * HOUR_COST
        assert one.line.spent == budget.spent_nanousd
    await people.set_budget(
        database.engine,
        people.NewBudget(scope_kind="team", scope="ads", limit_nanousd=10**9, period="total", model="assistant"),
        actor=COMMAND_LINE,
    )
    *_, total = await forecast.of_budgets(database.engine)
    assert (total.line.expected, total.passes, total.line.method) == (None, "", "none")
    assert forecast.of_budget_document(total)["limit_usd"] == "1.000000000"


def _fields(new: people.NewBudget) -> dict[str, object]:
    return {name: getattr(new, name) for name in ("scope_kind", "scope", "limit_nanousd", "period", "timezone", "model")}


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (Asked(by=("day",)), "by"),
        (Asked(by=("colour",)), "by"),
        (Asked(per="year"), "per"),
        (Asked(timezone="Mars/Olympus"), "timezone"),
    ],
)
async def test_what_cannot_be_meant_is_refused(database: Database, asked: Asked, param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        await forecast.forecast(database.engine, asked)
    assert told.value.param == param


@given(st.integers(0, 40 * DAY_US), st.integers(0, 40 * DAY_US))
def test_an_even_day_weighs_its_time(first: int, length: int) -> None:
    start = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1_000_000
    now, until = start + first, start + first + length
    for profile in ([0] * 96, [5] * 96):
        found = weights(profile, now, until)
        assert all(0 <= one <= 1 for one in found)
        assert abs(sum(found) - length / DAY_US) < 1e-6


def test_a_day_weighs_what_its_hours_cost() -> None:
    profile = [0] * 48 + [1] * 48  # nothing before noon
    start = 20_000 * DAY_US
    assert weights(profile, start + 6 * HOUR_US, start + DAY_US) == [1.0]
    assert weights(profile, start + 18 * HOUR_US, start + DAY_US + 12 * HOUR_US) == [0.5, 0.0]
    assert weights(profile, start + 18 * HOUR_US, start + 18 * HOUR_US + 2 * BUCKET_US)[0] == pytest.approx(2 / 48)
