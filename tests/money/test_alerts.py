"""Thresholds of budgets: each crossing is found by one, in its own window, and delivered by one at a time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.db.engine import make_engine
from gateway.money.alerts import Alert, claim, find, finish
from gateway.money.windows import bounds
from tests.conftest import Database

USD = 10**9
MINUTE_US = 60_000_000


async def window(engine: AsyncEngine, spent: int, *, limit: int = 100 * USD, per: str = "month", **more: Any) -> tuple[int, int]:
    """(budget, window) of a team's budget with this much spent in its present window."""
    if not await people.list_teams(engine):
        await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    new = people.NewBudget(scope_kind="team", scope="alpha", limit_nanousd=limit, period=per, **more)
    budget = await people.set_budget(engine, new, actor=COMMAND_LINE)
    starts, ends = bounds(per, "UTC", time.time_ns() // 1000)
    return budget.id, await opened(engine, budget.id, spent, starts, ends)


async def opened(engine: AsyncEngine, budget: int, spent: int, starts: int, ends: int | None) -> int:
    statement = (
        "INSERT INTO budget_windows (budget_id, starts_at_us, ends_at_us, spent) VALUES (:budget, :starts, :ends, :spent) RETURNING id"
    )
    async with engine.begin() as connection:
        values = {"budget": budget, "starts": starts, "ends": ends, "spent": spent}
        return int((await connection.execute(text(statement), values)).scalar_one())


async def spend(engine: AsyncEngine, spent: int) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE budget_windows SET spent = :spent"), {"spent": spent})


def told(alerts: list[Alert]) -> list[tuple[int, str, int]]:
    return [(alert.percent, alert.reason, alert.spent) for alert in alerts]


async def test_each_threshold_is_told_once(database: Database) -> None:
    engine = database.engine
    budget, number = await window(engine, 80 * USD - 1, alerts=(50, 80, 100))
    first = await find(engine, (), deliver=False)
    assert told(first) == [(50, "spent", 80 * USD - 1)]
    assert (first[0].budget_id, first[0].window_id, first[0].scope, first[0].cap) == (budget, number, "alpha", 100 * USD)
    assert await find(engine, (), deliver=False) == []
    await spend(engine, 80 * USD)
    assert told(await find(engine, (), deliver=False)) == [(80, "spent", 80 * USD)]
    await spend(engine, 130 * USD)
    assert told(await find(engine, (), deliver=False)) == [(100, "spent", 130 * USD)]
    await spend(engine, 0)
    await spend(engine, 100 * USD)
    assert await find(engine, (), deliver=False) == []


async def test_a_refused_request_is_the_hundred(database: Database) -> None:
    """A hard limit is seldom spent to the end."""
    engine = database.engine
    _, number = await window(engine, 90 * USD)
    assert told(await find(engine, (number,), deliver=False)) == [(80, "spent", 90 * USD), (100, "refused", 90 * USD)]
    assert await find(engine, (number,), deliver=False) == []


async def test_which_windows_and_limits_count(database: Database) -> None:
    engine = database.engine
    now_us = time.time_ns() // 1000
    budget, _ = await window(engine, 50 * USD)
    await opened(engine, budget, 100 * USD, 0, now_us - 61 * MINUTE_US)
    just_ended = await opened(engine, budget, 85 * USD, 1, now_us - MINUTE_US)
    assert [(alert.window_id, alert.percent) for alert in await find(engine, (), deliver=False)] == [(just_ended, 80)]
    await people.override_budget(engine, budget, 50 * USD, "1h", actor=COMMAND_LINE)
    assert [(one.percent, one.cap) for one in await find(engine, (), deliver=False) if one.window_id != just_ended] == [
        (80, 50 * USD),
        (100, 50 * USD),
    ]
    none, _ = await window(engine, 10**18, limit=10**18, per="week", alerts=())
    await window(engine, 0, limit=0, per="total")
    assert await find(engine, (), deliver=False) == []
    await people.set_budget(
        engine, people.NewBudget(scope_kind="team", scope="alpha", limit_nanousd=10**18, period="week", alerts=(100,)), actor=COMMAND_LINE
    )
    assert [alert.budget_id for alert in await find(engine, (), deliver=False)] == [none], "no number is too large"
    await window(engine, 99 * USD, per="day")
    await people.delete_budget(engine, (await people.list_budgets(engine))[-1].id, actor=COMMAND_LINE)
    assert await find(engine, (), deliver=False) == []


async def test_one_of_many_finds_and_one_delivers(database: Database) -> None:
    await window(database.engine, 100 * USD)
    engines = [make_engine(database.storage) for _ in range(4)]
    try:
        found = [one for many in await asyncio.gather(*(find(engine, (), deliver=True) for engine in engines)) for one in many]
        assert sorted(alert.percent for alert in found) == [80, 100]
        claimed = [one for one in await asyncio.gather(*(claim(engine, MINUTE_US) for engine in engines)) if one is not None]
        while (more := await claim(database.engine, MINUTE_US)) is not None:  # two that met are told to come again
            claimed.append(more)
        assert sorted(alert.percent for alert in claimed) == [80, 100]
        assert {alert.id for alert in claimed} == {alert.id for alert in found}
    finally:
        for engine in engines:
            await engine.dispose()


async def test_a_delivery_is_due_again_until_it_is_over(database: Database) -> None:
    engine = database.engine
    await window(engine, 85 * USD)
    assert await claim(engine, MINUTE_US) is None
    await find(engine, (), deliver=True)
    first = await claim(engine, 0)
    assert first is not None and first.tries == 1
    second = await claim(engine, MINUTE_US)  # the first worker died over it
    assert second is not None and (second.id, second.tries) == (first.id, 2)
    await finish(engine, first, delivered=True)
    assert await claim(engine, MINUTE_US) is None
    await finish(engine, second, delivered=False, again_us=0)
    third = await claim(engine, MINUTE_US)
    assert third is not None and third.tries == 3, "who was late had no say"
    await finish(engine, third, delivered=True)
    async with engine.connect() as connection:
        row = (await connection.execute(text("SELECT due_at_us, delivered_at_us, tries FROM budget_alerts"))).one()
    assert row.due_at_us is None and row.delivered_at_us > 0 and row.tries == 3


async def test_without_a_receiver_nothing_waits_for_one(database: Database) -> None:
    await window(database.engine, 85 * USD)
    await find(database.engine, (), deliver=False)
    assert await claim(database.engine, MINUTE_US) is None
