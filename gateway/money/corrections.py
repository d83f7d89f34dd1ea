"""What a person may say about a ledger row afterwards: an adjustment beside it, never an edit. Knows no command line.

The same adjustment that a late settlement makes: whichever comes first counts, the other does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import reading
from gateway.db.session import Dialect, Do, Transaction, open_session
from gateway.db.tables import adjustments, teams, usage
from gateway.errors import InvalidRequest, NotFound
from gateway.money import ledger
from gateway.money.hours import hour_of
from gateway.money.owned import HOURLY
from gateway.money.presence import mark
from gateway.money.rebuild import record_of
from gateway.money.sync import RESOLVE, write_rollup

LISTED_MAX = 10_000
Also = Callable[[Dialect, int | None], Transaction[None]]
_COLUMNS = ", ".join(ledger.USAGE_COLUMNS)


class Unknown(Struct, frozen=True, kw_only=True):
    """A request whose end is not known, booked at its worst case. worst: nano-USD, None = unpriced."""

    id: UUID
    started_at_us: int
    team: str
    route: str
    backend: str
    worst: int | None


async def unknowns(engine: AsyncEngine) -> list[Unknown]:
    """Rows that nobody has resolved yet, oldest first, at most LISTED_MAX."""
    resolved = select(adjustments.c.id).where(adjustments.c.usage_id == usage.c.id, adjustments.c.reason == RESOLVE).exists()
    statement = (
        select(usage.c.id, usage.c.started_at_us, usage.c.route, usage.c.backend, usage.c.cost, teams.c.name)
        .join(teams, teams.c.id == usage.c.team_id, isouter=True)
        .where(usage.c.outcome == "unknown", ~resolved)
        .order_by(usage.c.started_at_us, usage.c.id)
        .limit(LISTED_MAX)
    )
    async with reading(engine).connect() as connection:
        return [
            Unknown(id=r.id, started_at_us=r.started_at_us, team=r.name or "", route=r.route, backend=r.backend, worst=r.cost)
            for r in await connection.execute(statement)
        ]


async def resolve(engine: AsyncEngine, usage_id: UUID, cost_nanousd: int, also: Also | None = None) -> int:
    """Book what an unknown request really cost; returns the difference. NotFound, InvalidRequest where there is nothing to resolve.

    also: done in the same transaction, told what had been booked in nano-USD, None = nothing.
    """
    session = open_session(engine)
    try:
        delta = await session.run(_resolve(session.dialect, usage_id, cost_nanousd, also))
    finally:
        await session.close()
    if delta is None:
        raise InvalidRequest(f"Request {usage_id} is resolved already.", param="id")
    return delta


def _resolve(sql: Dialect, usage_id: UUID, cost_nanousd: int, also: Also | None) -> Transaction[int | None]:
    """In the lock order of every transaction: usage, roll-ups, windows by id."""
    lock = f" {sql.for_update} u" if sql.for_update else ""
    rows = yield Do(f"SELECT {_COLUMNS} FROM usage u WHERE id = $1{lock}", (sql.uid(usage_id),))  # noqa: S608
    if not rows:
        raise NotFound(f"There is no row {usage_id} in the ledger.", param="id")
    row: Mapping[str, Any] = dict(zip(ledger.USAGE_COLUMNS, rows[0], strict=True)) | {"id": usage_id}
    if row["outcome"] != "unknown":
        raise InvalidRequest(f"Request {usage_id} is not unknown: it is {row['outcome']}.", param="id")
    delta = cost_nanousd - (row["cost"] or 0)
    now = int((yield Do(f"SELECT {sql.clock}"))[0][0])
    made = yield Do(
        "INSERT INTO adjustments (id, usage_id, delta, reason, created_at_us) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (id) DO NOTHING RETURNING id",
        (sql.uid(uuid5(usage_id, RESOLVE)), sql.uid(usage_id), delta, RESOLVE, now),
    )
    if not made:
        return None
    rollup = ledger.Rollup()
    rollup.adjust(record_of(row, ()), delta)
    yield from write_rollup(sql, rollup, now)
    if row["price_id"].startswith(HOURLY):
        yield from mark([(row["backend"], hour_of(row["started_at_us"]), row["vendor"], row["model"])])
    for window in sorted(json.loads(row["charges"])):
        yield Do("UPDATE budget_windows SET spent = spent + $2 WHERE id = $1", (window, delta))
    if also is not None:
        yield from also(sql, row["cost"])
    return delta
