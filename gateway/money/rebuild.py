"""Makes the roll-ups anew from the ledger, quarter by quarter of an hour, while gateways write; reads the ledger for who checks it.

Marks the hours of each, so that their coarse roll-ups are made from them again. Knows no report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.columns import CLASSES
from gateway.db.engine import reading
from gateway.db.rollup_tables import latency_rollups, rollups, stale_hours
from gateway.db.tables import adjustments, attempts, usage
from gateway.money.latencies import COUNTS
from gateway.money.ledger import BUCKET_US, HOUR_US, LATENCY_KEYS, ROLLUP_KEYS, ROLLUP_SUMS, Rollup, now_priced
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.money.settling import pruned_until, settle
from providers.types import Usage

PAGE = 2000  # ledger rows read at once
LOCK_WAIT = "SET LOCAL lock_timeout = '30s'"
# Writers insert rows before they add to the roll-ups. Whoever waits for this lock adds to what we made; whoever had added before has
# committed its rows, and we read them.
LOCK = "LOCK TABLE rollups, latency_rollups IN SHARE ROW EXCLUSIVE MODE"


async def rebuild(engine: AsyncEngine, since_us: int | None = None, until_us: int | None = None) -> int:
    """Replace the roll-ups of every quarter of an hour that begins in [since_us, until_us); returns how many quarters had rows.

    One short transaction each, then those that settle what was marked: it may be stopped and run again at any time.
    """
    first, last = await _edges(engine)
    start = first if since_us is None else max(first, since_us - since_us % BUCKET_US)
    async with reading(engine).connect() as connection:
        pruned = await pruned_until(connection)
    start = max(start, pruned)  # of what was pruned the roll-ups are all that is left
    stop = last if until_us is None else min(last, until_us)
    filled = 0
    for bucket_us in range(start, stop, BUCKET_US):
        async with engine.begin() as connection:
            await _lock(connection)
            filled += await _rebuild_bucket(connection, bucket_us)
            await connection.execute(insert(stale_hours).values(hour_us=bucket_us - bucket_us % HOUR_US, mark=uuid4()))
    await settle(engine)
    return filled


async def _edges(engine: AsyncEngine) -> tuple[int, int]:
    """(start of the first bucket, end of the last) that the ledger or the roll-ups know."""
    async with reading(engine).connect() as connection:
        columns = (usage.c.started_at_us, rollups.c.bucket_us)
        ends = [select(end(column)).scalar_subquery() for column in columns for end in (func.min, func.max)]
        row = (await connection.execute(select(*ends))).one()
    known = [instant for instant in row if instant is not None]
    if not known:
        return 0, 0
    return min(known) - min(known) % BUCKET_US, max(known) - max(known) % BUCKET_US + BUCKET_US


async def _lock(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's transaction has the one write lock already
        await connection.execute(text(LOCK_WAIT))
        await connection.execute(text(LOCK))


async def _rebuild_bucket(connection: AsyncConnection, bucket_us: int) -> int:
    rollup = Rollup()
    rows = await _add_rows(connection, rollup, bucket_us)
    for table, names, made in (
        (rollups, (*ROLLUP_KEYS, *ROLLUP_SUMS), rollup.rows()),
        (latency_rollups, (*LATENCY_KEYS, *COUNTS), rollup.latency_rows()),
    ):
        await connection.execute(delete(table).where(table.c.bucket_us == bucket_us))
        if made:
            await connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in made])
    return int(rows > 0)


async def _add_rows(connection: AsyncConnection, rollup: Rollup, bucket_us: int) -> int:
    """Every ledger row of the bucket with its attempts and later corrections."""
    count = 0
    async for page in pages(connection, bucket_us):
        page.add_to(rollup)
        count += len(page.rows)
    return count


class Correction(Struct, frozen=True):
    """An adjustment to a row, in nano-USD."""

    usage_id: UUID
    id: UUID
    delta: int


class Page(Struct, frozen=True):
    """Some ledger rows of one quarter of an hour, with what was corrected of them."""

    rows: Sequence[Mapping[Any, Any]]
    records: dict[UUID, UsageRecord]
    corrections: list[Correction]

    def add_to(self, rollup: Rollup) -> None:
        for record in self.records.values():
            rollup.add(record)
        beside: dict[UUID, set[UUID]] = {}
        for one in self.corrections:
            rollup.adjust(self.records[one.usage_id], one.delta)
            beside.setdefault(one.usage_id, set()).add(one.id)
        for usage_id, ids in beside.items():
            if now_priced(self.records[usage_id], ids):
                rollup.adjust(self.records[usage_id], 0, priced=True)


async def pages(connection: AsyncConnection, bucket_us: int) -> AsyncIterator[Page]:
    """The rows of a bucket in the order of ids, at most PAGE at once."""
    after: UUID | None = None
    while True:
        page = select(usage).where(usage.c.started_at_us >= bucket_us, usage.c.started_at_us < bucket_us + BUCKET_US)
        if after is not None:
            page = page.where(usage.c.id > after)
        rows = (await connection.execute(page.order_by(usage.c.id).limit(PAGE))).mappings().all()
        if not rows:
            return
        ids = [row["id"] for row in rows]
        ends: dict[UUID, list[AttemptEnd]] = {}
        for end in (await connection.execute(select(attempts).where(attempts.c.request_id.in_(ids)).order_by(attempts.c.n))).mappings():
            ends.setdefault(end["request_id"], []).append(attempt_of(end))
        corrections = select(adjustments.c.usage_id, adjustments.c.id, adjustments.c.delta).where(adjustments.c.usage_id.in_(ids))
        yield Page(
            rows,
            {row["id"]: record_of(row, tuple(ends.get(row["id"], ()))) for row in rows},
            [Correction(row.usage_id, row.id, row.delta) for row in await connection.execute(corrections)],
        )
        after = ids[-1]


def _usage(row: Mapping[Any, Any]) -> Usage:
    classes = {name.removesuffix("_tokens"): row[name] for name in CLASSES}
    return Usage(**classes, estimated=row["estimated"])


def attempt_of(row: Mapping[Any, Any]) -> AttemptEnd:
    names = ("request_id", "n", "backend", "vendor", "model", "price_id", "outcome", "cost", "worst", "error", "status", "ttft_ms")
    return AttemptEnd(**{name: row[name] for name in names}, usage=_usage(row), duration_ms=row["duration_ms"])


def record_of(row: Mapping[Any, Any], ends: tuple[AttemptEnd, ...]) -> UsageRecord:
    names = (
        *("id", "started_at_us", "ended_at_us", "org_id", "team_id", "key_id", "route", "backend", "vendor", "model", "price_id"),
        *("outcome", "cost", "tag", "saved", "ttft_ms", "duration_ms", "kind"),
    )
    return UsageRecord(**{name: row[name] for name in names}, usage=_usage(row), charges=(), attempts=ends)
