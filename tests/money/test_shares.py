"""Which budgets the metrics show: the worst few of teams and organisations, in the window that holds now."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.money import shares
from gateway.money.shares import BudgetShares, read
from gateway.money.windows import bounds
from tests.conftest import Database
from tests.money.test_alerts import USD, opened

DAY_US = 86_400_000_000


async def budget(database: Database, team: str, spent: int, **more: object) -> int:
    engine = database.engine
    if team not in {one.name for one in await people.list_teams(engine)}:
        await people.add_team(engine, team, actor=COMMAND_LINE)
    new = people.NewBudget(**{"scope_kind": "team", "scope": team, "limit_nanousd": 100 * USD, "period": "month", **more})  # type: ignore[arg-type]
    made = await people.set_budget(engine, new, actor=COMMAND_LINE)
    starts, ends = bounds(made.period, "UTC", time.time_ns() // 1000)
    await opened(engine, made.id, spent, starts, ends)
    return made.id


async def test_the_largest_share_comes_first_and_only_so_many(database: Database) -> None:
    await budget(database, "alpha", 50 * USD)
    await budget(database, "beta", 90 * USD)
    await budget(database, "gamma", 10 * USD, limit_nanousd=11 * USD, model="assistant")
    found = await read(database.engine, most=2)
    assert [(one.scope, one.model, one.share) for one in found] == [("gamma", "assistant", pytest.approx(10 / 11)), ("beta", "", 0.9)]
    assert (found[1].limit, found[1].spent, found[1].per) == (100 * USD, 90 * USD, "month")
    assert found[1].passed is not None and 0.0 < found[1].passed < 1.0


async def test_a_window_that_ended_and_a_limit_of_nothing_are_not_shown(database: Database) -> None:
    await budget(database, "alpha", 50 * USD, limit_nanousd=0)
    over = await budget(database, "beta", 1 * USD)
    now = time.time_ns() // 1000
    await opened(database.engine, over, 80 * USD, now - 60 * DAY_US, now - 30 * DAY_US)
    assert [(one.scope, one.spent) for one in await read(database.engine)] == [("beta", 1 * USD)]


async def test_a_budget_without_an_end_has_no_part_that_passed(database: Database) -> None:
    await budget(database, "alpha", 5 * USD, period="total")
    assert [one.passed for one in await read(database.engine)] == [None]


async def test_a_key_is_not_named(database: Database) -> None:
    engine = database.engine
    await budget(database, "alpha", 5 * USD)
    key = await budget(database, "alpha", 5 * USD, period="day")
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE budgets SET scope_kind = 'key' WHERE id = :id"), {"id": key})
    assert [(one.scope_kind, one.per) for one in await read(engine)] == [("team", "month")]


async def test_while_the_database_is_away_nothing_is_shown(database: Database) -> None:
    await budget(database, "alpha", 5 * USD)
    held = BudgetShares(database.engine)
    await held.look()
    assert [one.scope for one in held.found] == ["alpha"]
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE budget_windows RENAME TO moved"))
    await held.look()
    assert held.found == ()
    assert shares.MOST <= 100
