"""A sound ledger passes; every way to break one is found and named, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.session import open_session
from gateway.money.audit import audit
from gateway.money.leases import Ask
from gateway.money.ledger import charges_of
from gateway.money.records import UsageRecord
from gateway.money.settling import settle
from gateway.money.sync import Payload, make_window, register, sync
from gateway.money.windows import bounds, to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record
from tests.fixtures.money import add_budget

START = to_us(datetime(2026, 11, 1, tzinfo=UTC))
DAY = 86_400_000_000
PROCESS = UUID(int=9)


async def filled(engine: AsyncEngine, count: int = 120, span_us: int = DAY) -> list[UsageRecord]:
    """Rows of every kind, those of team 1 charged to its budget; one unknown row resolved late."""
    await add_budget(engine, limit=10**15)
    await add_budget(engine, limit=10**15, scope_kind="organisation", model="code")
    session = open_session(engine)
    try:
        sql = session.dialect
        starts, ends = bounds("month", "UTC", START)
        windows = [await session.run(make_window(sql, budget, starts, ends)) for budget in (1, 2)]
        made = []
        for one in mixed(count, START, START + span_us):
            charges = tuple(w for w, ours in zip(windows, (one.team_id == 1, one.route == "code"), strict=True) if ours and w is not None)
            made.append(UsageRecord(**{name: getattr(one, name) for name in one.__struct_fields__ if name != "charges"}, charges=charges))
        late = record(START, [("b", "unknown", 500)], outcome="unknown", charges=(windows[0],))
        truth = record(START, [("b", "completed", 120)], id=late.id, charges=(windows[0],))
        await session.run(register(sql, PROCESS, "host", "boot", "folder"))
        charged = charges_of([*made, late])  # a lease of exactly that, so that nothing is left of it
        asks = tuple(Ask(window_id=window, want=cost) for window, cost in sorted(charged.items()))
        await session.run(sync(sql, Payload(process=PROCESS, seq=0, rows=(*made, late), asks=asks)))
        await session.run(sync(sql, Payload(process=PROCESS, seq=1, rows=(truth,))))
        return made
    finally:
        await session.close()


async def test_a_sound_ledger_has_nothing_to_tell(database: Database) -> None:
    rows = await filled(database.engine, span_us=DAY // 4)
    assert (await audit(database.engine)).broken == []
    await settle(database.engine)
    found = await audit(database.engine)
    assert found.broken == [] and found.count == 0
    assert (found.rows, found.windows) == (len(rows) + 1, 2)
    assert found.buckets >= 20


async def test_an_empty_one_too(database: Database) -> None:
    found = await audit(database.engine)
    assert (found.rows, found.windows, found.buckets, found.count) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("statement", "rule", "told"),
    [
        ("UPDATE budget_windows SET spent = spent + 1 WHERE id = 1", "spent is what was charged and adjusted", "spent"),
        ("UPDATE budget_windows SET leased = 5 WHERE id = 2", "leased is the sum of leases", "leased 5, leases 0"),
        ("UPDATE usage SET cost = cost + 1 WHERE outcome = 'cancelled'", "a row costs what its attempts cost", "its attempts"),
        ("UPDATE usage SET cost = NULL WHERE outcome = 'refused'", "a row costs what its attempts cost", "cost None, its attempts 0"),
        ("UPDATE usage SET outcome = 'lucky' WHERE outcome = 'cached'", "every row has an outcome", "'lucky'"),
        ("UPDATE usage SET charges = '[1]' WHERE team_id = 2", "a row charges the windows of its scope and instant", "window 1 of team 1"),
        ("UPDATE usage SET charges = '[77]' WHERE team_id = 2", "nothing points to what is not there", "charges window 77"),
        ("DELETE FROM usage WHERE team_id = 3", "nothing points to what is not there", "its row is missing"),
        ("UPDATE rollups SET cost = cost + 7", "roll-ups are the sums of rows", "cost"),
        ("DELETE FROM rollups WHERE outcome = 'cached'", "roll-ups are the sums of rows", "requests 0"),
        ("UPDATE latency_rollups SET n0 = n0 + 1", "roll-ups are the sums of rows", "n0"),
        ("UPDATE coarse_rollups SET cost = cost + 1 WHERE cut = 'who'", "roll-ups are the sums of rows", "cost"),
        ("DELETE FROM coarse_rollups WHERE span_us = 3600000000", "roll-ups are the sums of rows", "cost"),
        ("UPDATE coarse_latency_rollups SET n2 = n2 + 1", "roll-ups are the sums of rows", "n2"),
        ("UPDATE adjustments SET delta = delta - 1", "roll-ups are the sums of rows", "cost"),
        ("DELETE FROM budget_windows WHERE id = 2", "nothing points to what is not there", "charges window 2"),
    ],
)
async def test_what_breaks_is_named(database: Database, statement: str, rule: str, told: str) -> None:
    await filled(database.engine, span_us=DAY // 4)
    if "coarse" in statement:
        await settle(database.engine)
    async with database.engine.begin() as connection:
        assert (await connection.execute(text(statement))).rowcount > 0
    found = await audit(database.engine)
    assert found.count >= 1
    assert any(one.rule == rule and told in one.told for one in found.broken), found.broken[:3]


async def test_a_lease_of_an_ended_process_is_named(database: Database) -> None:
    await filled(database.engine, span_us=DAY // 4)
    async with database.engine.begin() as connection:
        uid = "X'" + PROCESS.bytes.hex() + "'" if database.name == "sqlite" else f"'{PROCESS}'"
        await connection.execute(text(f"INSERT INTO budget_leases (process_id, window_id, amount) VALUES ({uid}, 1, 5)"))
        await connection.execute(text("UPDATE budget_windows SET leased = 5 WHERE id = 1"))
    assert (await audit(database.engine)).count == 0
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE gateway_processes SET state = 'closed'"))
    assert [one.rule for one in (await audit(database.engine)).broken] == ["leases belong to live processes"]
