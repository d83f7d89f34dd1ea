"""Getting ledger rows out: as CSV or JSON Lines, and for good when they are old. Knows no report and no roll-up.

Pruned rows leave their roll-ups, so reports stay; what they charged to a budget window stays as one adjustment of the window, so that
spent = charges + adjustments holds as before.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec
from sqlalchemy import BigInteger, cast, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import clock_us, reading
from gateway.db.rollup_tables import latency_rollups
from gateway.db.tables import adjustments, api_keys, attempts, budget_leases, gateway_processes, retention, teams, usage
from gateway.money.cells import safe
from gateway.money.ledger import BUCKET_US, HOUR_US
from gateway.money.pricing import usd
from gateway.money.settling import settle, settled_in

PAGE = 1000  # rows of one transaction
PRUNED = "pruned"
_NAMES = UUID("0c1b8f0e-5a55-4a53-b0f7-9f0b3a1f6f5c")
_HIDDEN = ("process_id", "org_id")
EXPORTED = (
    *(column.name for column in usage.columns if column.name not in (*_HIDDEN, "cost", "saved")),
    *("team", "key", "cost_nanousd", "saved_nanousd", "adjusted_nanousd", "cost_usd"),
)


async def now_us(engine: AsyncEngine) -> int:
    """The database's clock."""
    async with reading(engine).connect() as connection:
        return int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())


# ---- out
async def export(engine: AsyncEngine, shape: str, since_us: int, until_us: int) -> AsyncIterator[str]:
    """Text of all rows that began in [since_us, until_us), oldest first, piece by piece. shape: csv | jsonl."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    if shape == "csv":
        writer.writerow(EXPORTED)
    async for rows in _pages(engine, since_us, until_us):
        for row in rows:
            shown = _shown(row)
            if shape == "jsonl":
                out.write(msgspec.json.encode(shown).decode() + "\n")
            else:
                writer.writerow([_safe(shown[name]) for name in EXPORTED])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    if out.tell():
        yield out.getvalue()


async def _pages(engine: AsyncEngine, since_us: int, until_us: int) -> AsyncIterator[Sequence[Mapping[Any, Any]]]:
    after: tuple[int, UUID] | None = None
    beside = select(cast(func.coalesce(func.sum(adjustments.c.delta), 0), BigInteger)).where(adjustments.c.usage_id == usage.c.id)
    shown = (
        select(usage, teams.c.name.label("team"), api_keys.c.public.label("key"), beside.scalar_subquery().label("adjusted_nanousd"))
        .join(teams, teams.c.id == usage.c.team_id, isouter=True)
        .join(api_keys, api_keys.c.id == usage.c.key_id, isouter=True)
        .where(usage.c.started_at_us < until_us)
    )
    while True:
        page = shown.where(usage.c.started_at_us >= (since_us if after is None else after[0]))
        if after is not None:
            page = page.where((usage.c.started_at_us > after[0]) | (usage.c.id > after[1]))
        async with reading(engine).connect() as connection:  # one short transaction each: the reader may be slow
            rows = list((await connection.execute(page.order_by(usage.c.started_at_us, usage.c.id).limit(PAGE))).mappings())
        if not rows:
            return
        yield rows
        after = rows[-1]["started_at_us"], rows[-1]["id"]


def _shown(row: Mapping[Any, Any]) -> dict[str, Any]:
    """cost and saved are integers of nano-USD, and once more as USD; an unknown cost is null. adjusted: booked to the row later."""
    shown = {str(name): value for name, value in row.items() if name not in _HIDDEN}
    shown["id"] = str(shown["id"])
    shown["charges"] = json.loads(shown["charges"])
    shown["cost_nanousd"] = shown.pop("cost")
    shown["saved_nanousd"] = shown.pop("saved")
    shown["cost_usd"] = usd(shown["cost_nanousd"])
    return shown


def _safe(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else safe(value) if isinstance(value, str) else value


# ---- and gone
async def prune(engine: AsyncEngine, before_us: int) -> int:
    """Delete rows, attempts and corrections of requests that began before the quarter of an hour of `before_us`; how many rows.

    With them go the latencies by quarter (the coarse ones stay) and processes that ended before. In transactions of at most PAGE rows, or
    of one quarter of an hour: it may be stopped and run again at any time.
    """
    before_us -= before_us % BUCKET_US
    await settle(engine)  # what was written late: of an hour that is pruned the latencies are not added up again
    gone = 0
    while True:
        async with engine.begin() as connection:
            await connection.execute(update(retention).where(retention.c.pruned_until_us < before_us).values(pruned_until_us=before_us))
            found = await _prune_page(connection, before_us)
        gone += found
        if found < PAGE:
            break
    await _prune_latencies(engine, before_us)
    await _prune_processes(engine, before_us)
    return gone


async def _prune_latencies(engine: AsyncEngine, before_us: int) -> None:
    """Of hours whose coarse roll-ups hold them; others go the next time."""
    await settle(engine)
    oldest = select(func.min(latency_rollups.c.bucket_us))
    while True:
        async with engine.begin() as connection:
            bucket_us = (await connection.execute(oldest)).scalar_one()
            if bucket_us is None or bucket_us >= before_us:
                return
            hour_us = bucket_us - bucket_us % HOUR_US
            if not (await settled_in(connection, hour_us, hour_us + HOUR_US)).has(HOUR_US, hour_us):
                return
            await connection.execute(delete(latency_rollups).where(latency_rollups.c.bucket_us == bucket_us))


async def _prune_processes(engine: AsyncEngine, before_us: int) -> None:
    """Those that closed, were last heard of before, and hold nothing. Should a journal of one turn up, its adopter registers it again."""
    process = gateway_processes.c
    held = select(budget_leases.c.process_id).where(budget_leases.c.process_id == process.id).exists()
    old = select(process.id).where(process.state == "closed", process.heartbeat_at_us < before_us, ~held).limit(PAGE)
    while True:
        async with engine.begin() as connection:
            ids = (await connection.execute(old)).scalars().all()
            await connection.execute(delete(gateway_processes).where(process.id.in_(ids)))
        if len(ids) < PAGE:
            return


async def _prune_page(connection: AsyncConnection, before_us: int) -> int:
    page = select(usage.c.id, usage.c.cost, usage.c.charges).where(usage.c.started_at_us < before_us).order_by(usage.c.id).limit(PAGE)
    if connection.dialect.name == "postgresql":
        page = page.with_for_update()
    rows = (await connection.execute(page)).all()
    if not rows:
        return 0
    ids = [row.id for row in rows]
    charges: dict[UUID, list[int]] = {row.id: json.loads(row.charges) for row in rows}
    kept: dict[int, int] = {}
    corrections = await connection.execute(select(adjustments.c.usage_id, adjustments.c.delta).where(adjustments.c.usage_id.in_(ids)))
    for uid, amount in [*((row.id, row.cost or 0) for row in rows), *((row.usage_id, row.delta) for row in corrections)]:
        for window in charges[uid]:
            kept[window] = kept.get(window, 0) + amount
    await _keep(connection, kept)
    await connection.execute(delete(attempts).where(attempts.c.request_id.in_(ids)))
    await connection.execute(delete(adjustments).where(adjustments.c.usage_id.in_(ids)))
    await connection.execute(delete(usage).where(usage.c.id.in_(ids)))
    return len(rows)


async def _keep(connection: AsyncConnection, kept: dict[int, int]) -> None:
    """Add what the rows charged to the window's one adjustment for pruned rows."""
    rows = [
        {"id": uuid5(_NAMES, f"{PRUNED}:{window}"), "window_id": window, "delta": amount, "reason": PRUNED}
        for window, amount in sorted(kept.items())
        if amount
    ]
    if not rows:
        return
    now_us = (await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one()
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(adjustments).values([{**row, "created_at_us": now_us} for row in rows])
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={"delta": adjustments.c.delta + statement.excluded.delta})
    )
