"""SQL that closes an hour of owned hardware: books what no request paid for, once, whoever comes first, and again what came late.

The hour's row is locked while its roll-ups are summed. Whoever adds to an hour that is over marks it in the same transaction
(presence.py), so what a closing did not see makes the next one.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.columns import CLASSES
from gateway.db.engine import reading
from gateway.db.rollup_tables import rollups
from gateway.db.session import Dialect, Do, Transaction
from gateway.db.tables import owned_hours, owned_spans
from gateway.money.hours import GAP_US, Hour, Span, hour_of, owed, rows_of
from gateway.money.ledger import BOOKED, BUCKET_US, HOUR_US
from gateway.money.owned import HISTORY_TOKENS
from gateway.money.presence import spans_near
from gateway.money.sync import write_rows

DUE_MAX = 500  # hours looked at in one go
MILLION = 1_000_000


async def due(engine: AsyncEngine, now_us: int) -> list[tuple[str, int]]:
    """(backend, hour) of those to be closed or looked at again, oldest first."""
    statement = select(owned_hours.c.backend, owned_hours.c.hour_us).where(owned_hours.c.check_at_us <= now_us)
    async with reading(engine).connect() as connection:
        rows = await connection.execute(statement.order_by(owned_hours.c.hour_us, owned_hours.c.backend).limit(DUE_MAX))
        return [(row.backend, row.hour_us) for row in rows]


def close(sql: Dialect, process: UUID, backend: str, hour_us: int, now_us: int) -> Transaction[int | None]:
    """Nano-USD booked; None when there was nothing to do, since another process did it."""
    lock = f" {sql.for_update} h" if sql.for_update else ""
    rows = yield Do(
        f"SELECT vendor, model, owed, written FROM owned_hours h WHERE backend = $1 AND hour_us = $2 AND check_at_us <= $3{lock}",  # noqa: S608
        (backend, hour_us, now_us),
    )
    if not rows:
        return None
    vendor, model, before, written = rows[0]
    hour = Hour(backend=backend, hour_us=hour_us, vendor=vendor, model=model, written=int(written), closed=before is not None)
    owing = owed((yield from spans_near(backend, hour_us - GAP_US, hour_us + HOUR_US + GAP_US)), hour_us)
    sums = yield Do(
        "SELECT CAST(coalesce(sum(cost), 0) AS BIGINT) FROM rollups WHERE bucket_us >= $1 AND bucket_us < $2 AND backend = $3",
        (hour_us, hour_us + HOUR_US, backend),
    )
    made = rows_of(hour, owing, int(sums[0][0]))
    yield from write_rows(sql, process, made, now_us)
    yield Do(
        "UPDATE owned_hours SET owed = $3, covered_us = $4, written = written + $5, check_at_us = NULL WHERE backend = $1 AND hour_us = $2",
        (backend, hour_us, owing.nanousd, owing.covered_us, len(made)),
    )
    return sum(record.cost or 0 for record in made)


async def averages(engine: AsyncEngine, backends: Collection[str], now_us: int) -> dict[str, int]:
    """Backend -> nano-USD per million tokens of the last hour's shares; without those that had too few tokens to say."""
    tokens = func.sum(sum((rollups.c[name] for name in CLASSES[1:]), rollups.c[CLASSES[0]]))
    statement = (
        select(rollups.c.backend, func.sum(rollups.c.cost).label("cost"), tokens.label("tokens"))
        .where(rollups.c.bucket_us > now_us - HOUR_US - BUCKET_US, rollups.c.backend.in_(backends), rollups.c.outcome.not_in(BOOKED))
        .group_by(rollups.c.backend)
    )
    async with reading(engine).connect() as connection:
        rows = (await connection.execute(statement)).all()
    return {row.backend: -(-int(row.cost) * MILLION // int(row.tokens)) for row in rows if int(row.tokens) >= HISTORY_TOKENS}


async def wrong_hours(connection: AsyncConnection) -> list[tuple[str, str]]:
    """Closed hours in which what is booked is not what they came to, each with what it says; one that is to be looked at again is none."""
    closed = select(owned_hours).where(owned_hours.c.owed.is_not(None), owned_hours.c.check_at_us.is_(None))
    hours = (await connection.execute(closed.order_by(owned_hours.c.backend, owned_hours.c.hour_us))).all()
    if not hours:
        return []
    names = sorted({row.backend for row in hours})
    spans: dict[tuple[str, int], list[Span]] = {}
    for row in await connection.execute(select(owned_spans).where(owned_spans.c.backend.in_(names))):
        for hour in range(hour_of(row.from_us - GAP_US), row.until_us + GAP_US + 1, HOUR_US):
            spans.setdefault((row.backend, hour), []).append(Span(row.machine, row.kind, row.from_us, row.until_us, row.rate))
    begins = rollups.c.bucket_us - rollups.c.bucket_us % HOUR_US
    sums = select(rollups.c.backend, begins.label("hour_us"), func.sum(rollups.c.cost).label("cost")).where(rollups.c.backend.in_(names))
    booked = {(row.backend, row.hour_us): int(row.cost) for row in await connection.execute(sums.group_by(rollups.c.backend, begins))}
    found = []
    for row in hours:
        key = row.backend, row.hour_us
        right = owed(spans.get(key, ()), row.hour_us).nanousd
        if not right == row.owed == booked.get(key, 0):
            found.append((f"{row.backend} {row.hour_us}", f"booked {booked.get(key, 0)}, closed at {row.owed}, hours × rate {right}"))
    return found
