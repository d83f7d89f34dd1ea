"""A budget's burn-down ends with what is left, and goes on as the forecast says."""

from __future__ import annotations

import itertools
import time

import pytest
from sqlalchemy import insert

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.db.tables import api_keys
from gateway.errors import NotFound
from gateway.money.ledger import DAY_US
from gateway.money.windows import bounds
from gateway.views import budgets as views
from tests.conftest import Database
from tests.fixtures.ledger import record, write


async def made(database: Database, limit: int = 10_000, period: str = "month", days: int = 20, each: int = 100) -> int:
    """A team that has spent the same every day; the budget's number."""
    now_us = time.time_ns() // 1000
    await people.add_team(database.engine, "one", actor=COMMAND_LINE)
    await people.add_team(database.engine, "two", actor=COMMAND_LINE)
    async with database.engine.begin() as connection:
        key = {"id": 11, "team_id": 1, "public": "AAAAAAAAAAAA", "digest": b"x", "scopes": "inference", "created_at_us": 0}
        await connection.execute(insert(api_keys).values(key))
    records = [record(now_us - day * DAY_US - 1_000_000, [("a", "completed", each)]) for day in range(days)]
    await write(database.engine, records)
    new = people.NewBudget(scope_kind="team", scope="one", limit_nanousd=limit, period=period)
    return (await people.set_budget(database.engine, new, actor=COMMAND_LINE)).id


async def test_what_is_left_falls_to_what_is_left_now(database: Database) -> None:
    number, now_us = await made(database), time.time_ns() // 1000
    found, burn = await views.one(database.engine, number, None, now_us)
    known = [one for one in burn.left if one is not None]
    assert known[-1] == found.limit - found.line.spent and known[0] == found.limit
    assert known == sorted(known, reverse=True)
    assert burn.x[len(known) - 1] == now_us and burn.x[-1] == bounds("month", "UTC", now_us)[1]
    assert burn.daily == 100
    expected = [one for one in burn.expected if one is not None]
    assert expected[0] == known[-1] and found.line.expected is not None
    assert expected[-1] == max(0, found.limit - found.line.expected)
    assert burn.pace[0] == found.limit and burn.pace[-1] == 0


async def test_a_budget_for_all_time_has_no_forecast(database: Database) -> None:
    number = await made(database, period="total")
    found, burn = await views.one(database.engine, number, None, time.time_ns() // 1000)
    assert found.gone_us is None and set(burn.expected) == {None} == set(burn.pace)
    assert [one for one in burn.left if one is not None][-1] == 10_000 - 20 * 100


async def test_who_runs_out_first_stands_first(database: Database) -> None:
    await made(database, limit=1)
    for limit in (10**9, 5):
        await people.set_budget(
            database.engine,
            people.NewBudget(scope_kind="team", scope="one", limit_nanousd=limit, period="day", timezone=f"Etc/GMT+{limit % 7}"),
            actor=COMMAND_LINE,
        )
    told = await views.of_scope(database.engine, None)
    assert [one.gone_us is not None for one in told] == [True, True, False]
    assert all((one.gone_us or 0) <= time.time_ns() // 1000 for one in told[:2]), "both are spent"


async def test_another_team_s_budget_is_a_missing_one(database: Database) -> None:
    number = await made(database)
    for scope in (frozenset((2,)), frozenset[int]()):
        assert await views.of_scope(database.engine, scope) == []
        with pytest.raises(NotFound):
            await views.one(database.engine, number, scope, time.time_ns() // 1000)
    assert len(await views.of_scope(database.engine, frozenset((1,)))) == 1


async def test_what_was_left_at_each_day_comes_with_the_forecast(database: Database) -> None:
    """Twenty days of 100 each, and once 700 on another route."""
    await made(database, limit=9_000)
    now_us = time.time_ns() // 1000
    await write(database.engine, [record(now_us, [("a", "completed", 700)], route="code")])
    for kind, scope, route, period in (
        ("key", "AAAAAAAAAAAA", None, "week"),
        ("team", "one", "code", "month"),
        ("team", "two", None, "week"),
        ("team", "one", None, "total"),
    ):
        new = people.NewBudget(scope_kind=kind, scope=scope, model=route, limit_nanousd=9_000, period=period)
        await people.set_budget(database.engine, new, actor=COMMAND_LINE)
    month, week, code, idle, total = sorted(await views.of_scope(database.engine, None), key=lambda one: one.budget.id)
    for one, each in ((month, 100), (week, 100), (code, 0), (idle, 0)):
        points = views.left(one, now_us)
        assert points[0] == (one.since_us, 9_000) and points[-1] == (now_us, 9_000 - one.line.spent)
        assert list(points) == sorted(points, key=lambda point: (point[0], -point[1])) and len(points) == len({at for at, _ in points})
        assert all(at % DAY_US == 0 for at, _ in points[1:-1])
        days = [(a[1] - b[1], b[0] - a[0]) for a, b in itertools.pairwise(points[1:-1])]
        assert all(spent == each for spent, long in days[-5:] if long == DAY_US), one.budget
    assert code.line.spent == 700 and idle.line.spent == 0
    assert views.left(total, now_us) == ()
