"""Roll-ups made anew from the ledger are the roll-ups that were written, also while others write."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Table, delete, select, update

from gateway.db.rollup_tables import coarse_latency_rollups, coarse_rollups, latency_rollups, rollups
from gateway.money.ledger import BUCKET_US
from gateway.money.rebuild import rebuild
from gateway.money.settling import settle
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

START = to_us(datetime(2026, 11, 1, tzinfo=UTC))
HOURS = 3_600_000_000
TABLES = (rollups, latency_rollups, coarse_rollups, coarse_latency_rollups)


async def contents(database: Database, table: Table) -> list[Any]:
    async with database.engine.connect() as connection:
        rows = await connection.execute(select(table).order_by(*table.primary_key.columns))
        return [tuple(row) for row in rows]


async def test_they_are_the_same_to_the_last_figure(database: Database) -> None:
    records = mixed(200, START, START + 5 * HOURS)
    unknown = record(START, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [*records, unknown])
    await write(database.engine, [replace(unknown, outcome="completed", cost=120)])
    await settle(database.engine)
    before = [await contents(database, table) for table in TABLES]
    async with database.engine.begin() as connection:
        await connection.execute(update(rollups).values(cost=rollups.c.cost + 7))
        await connection.execute(delete(latency_rollups))
        await connection.execute(delete(coarse_rollups).where(coarse_rollups.c.outcome == "completed"))
        await connection.execute(update(coarse_latency_rollups).values(team_id=99 + coarse_latency_rollups.c.team_id))
    assert await rebuild(database.engine) == 20
    assert [await contents(database, table) for table in TABLES] == before
    assert all(len(rows) > 50 for rows in before)


async def test_only_the_time_that_was_asked_for_is_made_anew(database: Database) -> None:
    await write(database.engine, [record(START + hour * HOURS, [("b", "completed", 100)]) for hour in range(4)])
    async with database.engine.begin() as connection:
        await connection.execute(update(rollups).values(cost=0))
    assert await rebuild(database.engine, START + HOURS, START + 3 * HOURS) == 2
    async with database.engine.connect() as connection:
        costs = (await connection.execute(select(rollups.c.cost).order_by(rollups.c.bucket_us))).scalars().all()
    assert costs == [0, 100, 100, 0]


async def test_roll_ups_without_rows_go(database: Database) -> None:
    await write(database.engine, [record(START, [("b", "completed", 100)])])
    async with database.engine.begin() as connection:
        await connection.execute(update(rollups).values(bucket_us=START + 3 * BUCKET_US))
    await rebuild(database.engine)
    async with database.engine.connect() as connection:
        assert [tuple(row) for row in await connection.execute(select(rollups.c.bucket_us, rollups.c.cost))] == [(START, 100)]


async def test_an_empty_ledger_is_made_anew_in_no_time(database: Database) -> None:
    assert await rebuild(database.engine) == 0
    assert await contents(database, rollups) == []


async def test_pages_are_joined_without_a_seam(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.money.rebuild.PAGE", 7)
    await write(database.engine, mixed(50, START, START + BUCKET_US, seed=3))
    before = await contents(database, rollups)
    assert await rebuild(database.engine) == 1
    assert await contents(database, rollups) == before


async def test_rows_that_are_written_meanwhile_are_counted_once(database: Database) -> None:
    records = mixed(200, START, START + 2 * BUCKET_US, seed=4)
    await write(database.engine, records[:50])

    async def writer() -> None:
        for place in range(50, 200, 10):
            await write(database.engine, records[place : place + 10])

    async def rebuilder() -> None:
        for _ in range(10):
            await rebuild(database.engine)

    await asyncio.gather(writer(), rebuilder())
    live = await contents(database, rollups)
    await rebuild(database.engine)
    assert await contents(database, rollups) == live
    assert sum(row[rollups.c.keys().index("cost")] for row in live) == sum(one.cost or 0 for one in records)
