"""Rows leave as CSV and JSON Lines as they are; what is pruned leaves reports, budgets and invariants as they were."""

from __future__ import annotations

import csv
import io
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import func, insert, select, text

from gateway.db.rollup_tables import latency_rollups
from gateway.db.tables import budget_leases, gateway_processes
from gateway.money import retention
from gateway.money.audit import audit
from gateway.money.rebuild import rebuild
from gateway.money.reports import Asked, spend
from gateway.money.retention import export, prune
from gateway.money.settling import settle
from tests.conftest import Database
from tests.fixtures.ledger import record, write
from tests.money.test_audit import DAY, START, filled

HALF = START + DAY // 2


async def sums(database: Database) -> list[tuple[object, ...]]:
    async with database.engine.connect() as connection:
        rows = [tuple(row) for row in await connection.execute(text("SELECT id, spent FROM budget_windows ORDER BY id"))]
        total = await connection.execute(text("SELECT CAST(sum(cost) AS BIGINT), CAST(sum(requests) AS BIGINT) FROM rollups"))
        return [*rows, tuple(total.one())]


async def test_pruning_changes_no_report_and_no_budget(database: Database, monkeypatch: object) -> None:
    rows = await filled(database.engine)
    before = await sums(database)
    old = sum(one.started_at_us < HALF for one in rows) + 1
    assert await prune(database.engine, HALF + 1) == old
    assert await prune(database.engine, HALF) == 0
    assert await sums(database) == before
    found = await audit(database.engine)
    assert found.broken == [] and found.rows == len(rows) + 1 - old
    await rebuild(database.engine)
    assert await sums(database) == before, "roll-ups of what is gone are not made anew from nothing"
    assert await prune(database.engine, START + 2 * DAY) == len(rows) + 1 - old
    assert await sums(database) == before and (await audit(database.engine)).count == 0
    async with database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM attempts"))).scalar_one() == 0


async def test_it_goes_in_small_transactions(database: Database, monkeypatch: object) -> None:
    await filled(database.engine, span_us=DAY // 8)
    monkeypatch.setattr(retention, "PAGE", 7)  # type: ignore[attr-defined]
    await prune(database.engine, START + 2 * DAY)
    assert (await audit(database.engine)).broken == []


async def test_every_row_is_exported_once_in_order(database: Database, monkeypatch: object) -> None:
    monkeypatch.setattr(retention, "PAGE", 7)  # type: ignore[attr-defined]
    made = [record(START + n // 3, [("b", "completed", n)], tag="=1+1" if n == 5 else "") for n in range(30)]
    await write(database.engine, made)
    lines = "".join([piece async for piece in export(database.engine, "jsonl", START, START + 9)]).splitlines()
    told = [msgspec.json.decode(line) for line in lines]
    wanted = sorted((one.started_at_us, one.id.bytes, one.cost) for one in made if one.started_at_us < START + 9)
    assert sorted((row["started_at_us"], UUID(row["id"]).bytes, row["cost_nanousd"]) for row in told) == wanted
    assert [row["started_at_us"] for row in told] == [at for at, _, _ in wanted]
    table = list(csv.DictReader(io.StringIO("".join([piece async for piece in export(database.engine, "csv", 0, 1 << 62)]))))
    assert len(table) == 30 and sum(int(row["cost_nanousd"]) for row in table) == sum(range(30))
    assert [row["tag"] for row in table if row["tag"]] == ["'=1+1"]


async def test_an_export_is_made_piece_by_piece(database: Database, monkeypatch: object) -> None:
    """No piece holds more than a page, so that memory does not grow with the ledger."""
    monkeypatch.setattr(retention, "PAGE", 5)  # type: ignore[attr-defined]
    await write(database.engine, [record(START + n, [("b", "completed", n)]) for n in range(23)])
    pieces = [piece async for piece in export(database.engine, "jsonl", 0, 1 << 62)]
    assert [piece.count("\n") for piece in pieces] == [5, 5, 5, 5, 3]
    assert "".join([piece async for piece in export(database.engine, "csv", 0, START)]).strip() == ",".join(retention.EXPORTED)


async def test_what_was_adjusted_stands_beside_the_cost(database: Database) -> None:
    unknown = record(START, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [unknown, record(START + 1, [("b", "completed", 7)])])
    await write(database.engine, [replace(unknown, outcome="completed", cost=120)])
    text_ = "".join([piece async for piece in export(database.engine, "csv", 0, 1 << 62)])
    rows = list(csv.DictReader(io.StringIO(text_)))
    assert [(row["cost_nanousd"], row["adjusted_nanousd"]) for row in rows] == [("500", "-380"), ("7", "0")]
    report = await spend(database.engine, Asked())
    assert sum(int(row["cost_nanousd"]) + int(row["adjusted_nanousd"]) for row in rows) == report.total.cost


async def test_old_latencies_and_processes_go_and_reports_of_coarse_names_stay(database: Database) -> None:
    await filled(database.engine)
    await settle(database.engine)
    late = [record(START + DAY // 2, [("b", "completed", 5)], duration_ms=90_000) for _ in range(20)]
    await write(database.engine, late, START + 9 * DAY)  # into an hour that is over: not added up again yet
    by_team, by_tag = Asked(by=("team", "day")), Asked(by=("tag",))
    before = await spend(database.engine, by_team)
    assert (await spend(database.engine, by_tag)).total.latencies == before.total.latencies
    ended, young, holding, live = (UUID(int=number) for number in (101, 102, 103, 104))
    async with database.engine.begin() as connection:
        for process, heartbeat, state in (
            (ended, START, "closed"),
            (young, START + 3 * DAY, "closed"),
            (holding, START, "closed"),
            (live, START, "live"),
        ):
            await connection.execute(
                insert(gateway_processes).values(
                    id=process, host="h", boot_id="b", journal_dir="j", started_at_us=START, heartbeat_at_us=heartbeat, state=state
                )
            )
        await connection.execute(insert(budget_leases).values(process_id=holding, window_id=1, amount=0))
    await prune(database.engine, START + 2 * DAY)
    async with database.engine.connect() as connection:
        left = set((await connection.execute(select(gateway_processes.c.id))).scalars())
        assert left >= {young, holding, live} and ended not in left
        assert (await connection.execute(select(func.count()).select_from(latency_rollups))).scalar_one() == 0
    assert await spend(database.engine, by_team) == before and before.total.latencies[0] is not None
    assert (await spend(database.engine, Asked(by=("backend",)))).total == replace(before.total, group=("total",))
    tags = (await spend(database.engine, by_tag)).total
    assert tags.cost == before.total.cost and tags.latencies[0] is None, "only quarters had latencies by tag"
    await rebuild(database.engine)
    assert await spend(database.engine, by_team) == before
