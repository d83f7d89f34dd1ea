"""Coarse roll-ups are the sums of quarters wherever they are read, whoever writes meanwhile and however late."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from sqlalchemy import event, func, insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.db.engine import clock_us
from gateway.db.rollup_tables import coarse_latency_rollups, coarse_rollups, rollups, settled, stale_hours
from gateway.db.tables import retention
from gateway.money import settling
from gateway.money.audit import audit
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.reports import Asked, Report, spend
from gateway.money.settling import Settled, Settler, settle, settled_in
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

START = to_us(datetime(2026, 11, 1, tzinfo=UTC))
LATE = START + 1000 * DAY_US  # for a writer: every hour is over
EVERY: tuple[tuple[str, ...], ...] = (
    *((), ("team",), ("model", "outcome"), ("key", "tag"), ("team", "backend"), ("key", "model"), ("route", "day"), ("tag", "month")),
    ("hour",),
)


async def reports(database: Database, timezone: str = "Europe/Berlin") -> list[Report]:
    return [await spend(database.engine, Asked(by=by, timezone=timezone)) for by in EVERY]


async def until(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(settled.c.until_us))).scalar_one())


async def marked(database: Database) -> set[int]:
    async with database.engine.connect() as connection:
        return set((await connection.execute(select(stale_hours.c.hour_us))).scalars())


async def sound(database: Database) -> bool:
    return (await audit(database.engine)).broken == []


async def test_no_report_changes_when_what_it_reads_is_settled(database: Database) -> None:
    await write(database.engine, mixed(160, START + 20 * HOUR_US, START + DAY_US + 3 * HOUR_US))
    before = {zone: await reports(database, zone) for zone in ("UTC", "Europe/Berlin", "Asia/Kathmandu")}
    assert await settle(database.engine) >= 8
    assert {zone: await reports(database, zone) for zone in before} == before
    async with database.engine.begin() as connection:
        assert set((await connection.execute(select(coarse_rollups.c.cut))).scalars()) == {"all", "team", "place", "who", "both"}
        assert set((await connection.execute(select(coarse_latency_rollups.c.cut))).scalars()) == {"all", "team", "place"}
        await connection.execute(update(coarse_rollups).values(cost=coarse_rollups.c.cost + 1))
    after = await reports(database)
    assert [one.by for one, other in zip(after, before["Europe/Berlin"], strict=True) if one == other] == [("key", "model")]


async def test_who_writes_late_is_read_at_once_and_settled_again(database: Database) -> None:
    records = mixed(120, START + 21 * HOUR_US, START + DAY_US + 2 * HOUR_US)
    await write(database.engine, records[:70])
    await settle(database.engine)
    await write(database.engine, records[70:], LATE)
    stale = await marked(database)
    assert stale == {one.started_at_us // HOUR_US * HOUR_US for one in records[70:]}
    now = await reports(database)
    assert all(one.total.cost == sum(record.cost or 0 for record in records) for one in now)
    assert await sound(database), "hours that are not read need not be right"
    await settle(database.engine)
    assert await marked(database) == set() and await reports(database) == now and await sound(database)


async def test_what_is_not_over_stays_by_quarters(database: Database) -> None:
    async with database.engine.connect() as connection:
        now_us = int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())
    await write(database.engine, [record(now_us - 90_000_000, [("b", "completed", 5)]), record(START, [("b", "completed", 7)])], now_us)
    await settle(database.engine)
    assert now_us - settling.SETTLE_AFTER_US - HOUR_US <= await until(database) <= now_us - settling.SETTLE_AFTER_US + HOUR_US
    assert (await spend(database.engine, Asked())).total.cost == 12
    async with database.engine.connect() as connection:
        hours = coarse_rollups.c.cut == "all", coarse_rollups.c.span_us == HOUR_US
        rows = await connection.execute(select(coarse_rollups.c.bucket_us, coarse_rollups.c.cost).where(*hours))
        assert [tuple(row) for row in rows] == [(START, 7)]


async def test_a_day_is_added_up_when_its_last_hour_is_also_over_a_gap(database: Database) -> None:
    at = (START + 5 * HOUR_US, START + 23 * HOUR_US, START + 4 * DAY_US, START + 4 * DAY_US + 23 * HOUR_US + 3 * BUCKET_US)
    await write(database.engine, [record(one, [("b", "completed", 10**place)]) for place, one in enumerate(at)])
    await settle(database.engine)
    for cut in ("all", "team", "place", "who", "both"):
        of_days = coarse_rollups.c.cut == cut, coarse_rollups.c.span_us == DAY_US
        async with database.engine.connect() as connection:
            rows = await connection.execute(select(coarse_rollups.c.bucket_us, coarse_rollups.c.cost).where(*of_days).order_by("bucket_us"))
            assert [tuple(row) for row in rows] == [(START, 11), (START + 4 * DAY_US, 1100)], cut


async def test_a_turn_does_so_much_and_the_next_goes_on(database: Database) -> None:
    await write(database.engine, [record(START + n * HOUR_US, [("b", "completed", 1)]) for n in range(6)])
    assert await settle(database.engine, 4) == 4
    assert await until(database) == START + 4 * HOUR_US
    assert (await spend(database.engine, Asked())).total.cost == 6 and await sound(database)
    await settle(database.engine)
    assert await settle(database.engine) == 0 and await until(database) > START + 6 * HOUR_US


async def test_the_write_lock_is_left_as_long_as_it_is_held(database: Database) -> None:
    """Who waits for SQLite's lock looks for it ten times a second: between two hours there must be time for that."""
    if database.name == "postgresql":
        pytest.skip("Postgres has no lock of all writers")
    await write(database.engine, [record(START + n * HOUR_US, [("b", "completed", 1)]) for n in range(8)])
    begun, ended = list[float](), list[float]()
    event.listen(database.engine.sync_engine, "begin", lambda connection: begun.append(time.monotonic()))
    event.listen(database.engine.sync_engine, "commit", lambda connection: ended.append(time.monotonic()))
    await settle(database.engine)
    held = sum(end - begin for begin, end in zip(begun, ended, strict=True))
    free = sum(begin - end for begin, end in zip(begun[1:], ended, strict=False))
    assert len(begun) > 8 and free >= held - (ended[-1] - begun[-1])


async def test_the_hours_of_a_day_are_made_again_one_at_a_time(database: Database) -> None:
    hours = [START + n * HOUR_US for n in (1, 5, 23)]
    for now_us in (1, LATE):
        await write(database.engine, [record(at, [("b", "completed", 10**n)]) for n, at in enumerate(hours)], now_us)
        await settle(database.engine, None if now_us == 1 else 1)
    for left in (2, 1, 0):
        assert len(await marked(database)) == left and await sound(database)
        assert all(one.total.cost == 222 for one in await reports(database))
        await settle(database.engine, 1)


@pytest.mark.parametrize("pruned", [False, True])
async def test_hours_that_a_clock_was_ahead_of_are_read_again_from_their_quarters(database: Database, pruned: bool) -> None:
    """A machine's clock was a year ahead for a while: what is written now, unmarked, must not be taken for settled."""
    async with database.engine.begin() as connection:
        now_us = int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())
        this_us = now_us // HOUR_US * HOUR_US
        await connection.execute(update(settled).values(until_us=this_us + 365 * DAY_US))
        await connection.execute(update(retention).values(pruned_until_us=this_us - 30 * HOUR_US + BUCKET_US if pruned else 0))
    await write(database.engine, [record(at, [("b", "completed", 5)]) for at in (START, this_us - 40 * HOUR_US, this_us)], now_us)
    assert await settle(database.engine) > 0
    assert await until(database) == now_us // HOUR_US * HOUR_US - HOUR_US
    assert (await spend(database.engine, Asked())).total.cost == 15 and await sound(database)


async def test_several_processes_settle_and_write_at_once(database: Database) -> None:
    records = mixed(80, START + 22 * HOUR_US, START + DAY_US + HOUR_US, seed=5)
    chance = random.Random(3)

    async def writer(some: list[Any]) -> None:
        for place in range(0, len(some), 10):
            await write(database.engine, some[place : place + 10], LATE)
            await asyncio.sleep(chance.random() / 100)

    async def settler() -> None:
        for _ in range(4):
            await settle(database.engine)

    await asyncio.gather(writer(records[:40]), writer(records[40:]), settler(), settler())
    assert (await spend(database.engine, Asked(by=("model",)))).total.cost == sum(one.cost or 0 for one in records)
    await settle(database.engine)
    assert await marked(database) == set() and await sound(database)


async def test_what_is_written_while_an_hour_is_made_again_keeps_its_mark(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if database.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    await write(database.engine, [record(START, [("b", "completed", 1)])])
    await settle(database.engine)
    await write(database.engine, [record(START, [("b", "completed", 10)])], LATE)
    make, wrote = settling._make_hour, []

    async def meanwhile(*given: Any) -> None:
        await make(*given)
        if not wrote:
            wrote.append(await write(database.engine, [record(START, [("b", "completed", 100)])], LATE))

    monkeypatch.setattr(settling, "_make_hour", meanwhile)
    assert await settle(database.engine, 1) == 1
    assert await marked(database) == {START} and (await spend(database.engine, Asked())).total.cost == 111
    await settle(database.engine)
    assert await marked(database) == set() and (await spend(database.engine, Asked())).total.cost == 111 and await sound(database)


async def test_who_writes_late_all_the_time_holds_up_no_other_hour(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway whose clock is hours behind: its rows mark one hour again and again."""
    await write(database.engine, [record(START + n * HOUR_US, [("b", "completed", 1)]) for n in (0, 1)])
    await settle(database.engine)
    await write(database.engine, [record(START + n * HOUR_US, [("b", "completed", 1)]) for n in (0, 1)], LATE)
    forget = settling._forget

    async def meanwhile(connection: Any, marked: Any) -> None:
        await forget(connection, marked)
        await connection.execute(insert(stale_hours).values(hour_us=START, mark=uuid4()))

    monkeypatch.setattr(settling, "_forget", meanwhile)
    assert await settle(database.engine, 9) == 2
    assert await marked(database) == {START} and await sound(database)


async def test_latencies_of_pruned_hours_stay_when_something_is_written_there(database: Database) -> None:
    await write(database.engine, [record(START, [("b", "completed", 5)], duration_ms=80)])
    await settle(database.engine)
    async with database.engine.begin() as connection:
        await connection.execute(update(retention).values(pruned_until_us=START + HOUR_US))
    await write(database.engine, [record(START, [("b", "completed", 7)], duration_ms=80)], LATE)
    await settle(database.engine)
    bins = coarse_latency_rollups.c
    async with database.engine.connect() as connection:
        counted = select(func.sum(bins.n0 + bins.n1 + bins.n2 + bins.n3)).where(
            bins.cut == "all", bins.metric == "duration", bins.span_us == HOUR_US
        )
        assert int((await connection.execute(counted)).scalar_one()) == 1
        cost = select(func.sum(coarse_rollups.c.cost)).where(coarse_rollups.c.cut == "all", coarse_rollups.c.span_us == DAY_US)
        assert int((await connection.execute(cost)).scalar_one()) == 12


async def test_what_may_be_read_is_told(database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(update(settled).values(until_us=START + DAY_US))
        for hour in (2, 30):
            await connection.execute(insert(stale_hours), [{"hour_us": START + hour * HOUR_US, "mark": uuid4()} for _ in range(2)])
        found = await settled_in(connection, START, START + 2 * DAY_US)
        assert found == Settled(START + DAY_US, frozenset((START + 2 * HOUR_US, START + 30 * HOUR_US)))
        assert (await settled_in(connection, START + 2 * HOUR_US + BUCKET_US, START + DAY_US)).stale == {START + 2 * HOUR_US}
        assert (await settled_in(connection, START + 3 * HOUR_US, START + DAY_US)).stale == frozenset()
    assert not found.has(DAY_US, START) and not found.has(HOUR_US, START + 2 * HOUR_US)
    assert found.has(HOUR_US, START + 3 * HOUR_US) and found.has(DAY_US, START - DAY_US)
    assert not found.has(HOUR_US, START + DAY_US) and not found.has(DAY_US, START + DAY_US)


async def test_a_database_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:9/none")
    settler = Settler(engine)
    for _ in range(3):
        await settler.settle()
    await engine.dispose()
    assert [one.getMessage().partition(" (")[0] for one in caplog.records] == ["roll-ups: the database does not answer"]


async def test_a_correction_of_an_hour_that_is_over_marks_it(database: Database) -> None:
    unknown = record(START, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [unknown])
    await settle(database.engine)
    await write(database.engine, [replace(unknown, outcome="completed", cost=120)], LATE)
    assert await marked(database) == {START}
    assert (await spend(database.engine, Asked())).total.cost == 120
    async with database.engine.connect() as connection:
        assert int((await connection.execute(select(func.sum(rollups.c.cost)))).scalar_one()) == 120
