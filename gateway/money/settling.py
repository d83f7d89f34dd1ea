"""Adds up the coarse roll-ups of hours and days that are over, behind the requests; and says which of them may be read.

An hour is added up once, `SETTLE_AFTER_US` after its end, from its quarters. Who writes into an hour that is over (a journal that is taken
over late, a correction, a new price) leaves a mark in the same transaction, and the hour is made again. A marked hour is not read, so what
is read is always the sum of the quarters. No lock is needed between writers and this: the marks that are taken away are those that were
seen before the sums were.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy import Select, delete, func, insert, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import clock_us
from gateway.db.rollup_tables import rollups, settled, stale_hours
from gateway.db.session import Dialect, Insert, Transaction
from gateway.db.tables import retention
from gateway.money.cuts import CUTS, LATENCIES, SUMS, Side, added, day_of_hours
from gateway.money.ledger import DAY_US, HOUR_US

EVERY_S = 60.0
# A transaction that writes into an hour and leaves no mark began before LATE_US after the hour's end. It is over long before the hour is
# settled: the database ends those that stand still for seconds.
LATE_US, SETTLE_AFTER_US = 600_000_000, 3_600_000_000
HOURS_AT_ONCE = 200  # of one turn: after an upgrade there is a year of them
_SIDES = (SUMS, LATENCIES)

log = logging.getLogger("tollway.money")


class Settled(Struct, frozen=True):
    """Hours that begin before until_us stand in the coarse roll-ups, but for the stale ones."""

    until_us: int
    stale: frozenset[int]

    def has(self, span_us: int, at_us: int) -> bool:
        """Whether the hour or the day that begins at an instant may be read."""
        if at_us + span_us > self.until_us:
            return False
        return not self.stale or not any(hour in self.stale for hour in range(at_us, at_us + span_us, HOUR_US))


async def pruned_until(connection: AsyncConnection) -> int:
    """Rows that began before this instant may be gone; 0 = nothing was ever pruned."""
    return int((await connection.execute(select(func.coalesce(func.max(retention.c.pruned_until_us), 0)))).scalar_one())


async def settled_in(connection: AsyncConnection, since_us: int, until_us: int) -> Settled:
    """What of [since_us, until_us) is settled, asked in one statement."""
    inside = stale_hours.c.hour_us > since_us - HOUR_US, stale_hours.c.hour_us < until_us
    both = select(settled.c.until_us.label("at_us"), literal(0).label("stale")).union_all(
        select(stale_hours.c.hour_us, literal(1)).where(*inside).distinct()
    )
    rows = (await connection.execute(both)).all()
    return Settled(next((row.at_us for row in rows if not row.stale), 0), frozenset(row.at_us for row in rows if row.stale))


def marks(sql: Dialect, hours: set[int], now_us: int) -> Transaction[None]:
    """Say of hours that are being added to that they were over. Usually none was."""
    over = sorted(hour for hour in hours if hour + HOUR_US + LATE_US <= now_us)
    if over:
        mark = sql.uid(uuid4())
        yield Insert("stale_hours", ("hour_us", "mark"), ("bigint", "uuid"), [(hour, mark) for hour in over])


class Settler:
    """One worker's part: whichever comes first does what is due, the others find nothing."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._away = False

    async def settle(self) -> None:
        """Every EVERY_S."""
        try:
            await settle(self.engine, HOURS_AT_ONCE)
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            if not self._away:
                log.warning("roll-ups: the database does not answer (%s); reports read what is finer until it does", error)
            self._away = True
        else:
            self._away = False


async def settle(engine: AsyncEngine, most: int | None = None) -> int:
    """Make what is due, an hour in a transaction each, with its day where it was the day's last; how many. most: no more than so many.

    A stale hour is made once: what marks it meanwhile waits for the next call, or a gateway whose clock is hours behind would hold up all
    others. On SQLite it leaves the one write lock for as long as it held it: whoever waits for that asks again only ten times a second.
    """
    made, from_us = 0, 0
    while most is None or made < most:
        async with engine.begin() as connection:
            began_s = time.monotonic()
            after_us = await _next(connection, from_us)
        if after_us is None:
            return made
        made, from_us = made + 1, after_us
        if engine.dialect.name == "sqlite":
            await asyncio.sleep(time.monotonic() - began_s)
    return made


async def _next(connection: AsyncConnection, from_us: int) -> int | None:
    """Make one hour, the stale ones from an instant on first; from when on the next is to look for those. None: there is nothing to do, or
    another process is about it."""
    row = select(settled.c.until_us)
    if connection.dialect.name == "postgresql":  # SQLite's transaction has the one write lock already
        row = row.with_for_update(skip_locked=True)
    until_us = (await connection.execute(row)).scalar_one_or_none()
    if until_us is None:
        return None
    now_us = int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())
    target_us = (now_us - SETTLE_AFTER_US) // HOUR_US * HOUR_US
    if until_us > target_us and await _back(connection, until_us, target_us):
        return from_us
    stale = await _marks(connection, from_us, until_us)
    if stale:
        await _again(connection, stale, until_us)
        return min(stale) + HOUR_US
    if until_us >= target_us:
        return None
    at = rollups.c.bucket_us
    first = (await connection.execute(select(func.min(at)).where(at >= until_us, at < target_us))).scalar_one()
    if first is None:
        await _reach(connection, until_us, target_us)
    else:
        await _hour(connection, until_us, int(first) // HOUR_US * HOUR_US)
    return from_us


async def _back(connection: AsyncConnection, until_us: int, target_us: int) -> bool:
    """The clock was ahead and went back: hours that are not over are settled no longer, since who writes into them leaves no mark. They
    are made again in their time. Where latencies by quarter are gone it stays: nothing could make them again."""
    pruned_us = await pruned_until(connection)
    back_us = max(target_us, pruned_us + -pruned_us % HOUR_US)
    if back_us >= until_us:
        return False
    log.warning("roll-ups: the clock went back; what is settled after it is added up again")
    await connection.execute(update(settled).values(until_us=back_us))
    return True


async def _marks(connection: AsyncConnection, since_us: int, until_us: int) -> dict[int, list[UUID]]:
    """Hour -> its marks, of one day: that of the first marked hour."""
    hour = stale_hours.c.hour_us
    first = (await connection.execute(select(func.min(hour)).where(hour >= since_us, hour < until_us))).scalar_one()
    found: dict[int, list[UUID]] = {}
    if first is not None:
        of_day = hour >= first, hour < min(until_us, first - first % DAY_US + DAY_US)
        for row in await connection.execute(select(stale_hours).where(*of_day)):
            found.setdefault(row.hour_us, []).append(row.mark)
    return found


async def _forget(connection: AsyncConnection, marked: dict[int, list[UUID]]) -> None:
    for hour_us, seen in marked.items():
        await connection.execute(delete(stale_hours).where(stale_hours.c.hour_us == hour_us, stale_hours.c.mark.in_(seen)))


async def _hour(connection: AsyncConnection, until_us: int, hour_us: int) -> None:
    """For the first time; a mark of it that was seen by now is answered by that."""
    marked = await _marks(connection, hour_us, hour_us + HOUR_US)
    for side in _SIDES:
        await _make_hour(connection, side, hour_us)
    await _forget(connection, marked)
    await _reach(connection, until_us, hour_us + HOUR_US)


async def _again(connection: AsyncConnection, stale: dict[int, list[UUID]], until_us: int) -> None:
    """The first of a day's hours that were settled before and are stale; the day with the last of them, since nobody reads it until then.
    Of pruned hours the latencies by quarter are gone: those by hour stay as they are."""
    hour_us = min(stale)
    pruned_us = await pruned_until(connection)
    for side in _SIDES:
        if side is SUMS or hour_us >= pruned_us:
            await _make_hour(connection, side, hour_us)
    day_us = hour_us // DAY_US * DAY_US
    if len(stale) == 1 and day_us + DAY_US <= until_us:
        await _make_day(connection, day_us)
    await _forget(connection, {hour_us: stale[hour_us]})


async def _reach(connection: AsyncConnection, before_us: int, until_us: int) -> None:
    """Settled up to there. Between lies no hour with rows but the last, so the days that end by this are two at most."""
    for day_us in sorted({before_us // DAY_US * DAY_US, (until_us - HOUR_US) // DAY_US * DAY_US}):
        if before_us < day_us + DAY_US <= until_us:
            await _make_day(connection, day_us)
    await connection.execute(update(settled).values(until_us=until_us))


async def _make_hour(connection: AsyncConnection, side: Side, hour_us: int) -> None:
    await _clear(connection, side, HOUR_US, hour_us)
    for cut in CUTS:
        if cut.hours:
            rows = added(side, cut, HOUR_US, hour_us, hour_us + HOUR_US)
            await connection.execute(insert(side.coarse).from_select([*side.keys, *side.values], rows))


async def _make_day(connection: AsyncConnection, day_us: int) -> None:
    """From its hours; cuts that have none from its quarters, an hour's at a time, so that no statement is long."""
    for side in _SIDES:
        await _clear(connection, side, DAY_US, day_us)
        for cut in CUTS:
            if cut.hours:
                rows = day_of_hours(side, cut, day_us)
                await connection.execute(insert(side.coarse).from_select([*side.keys, *side.values], rows))
    hour = rollups.c.bucket_us - rollups.c.bucket_us % HOUR_US
    inside = rollups.c.bucket_us >= day_us, rollups.c.bucket_us < day_us + DAY_US
    for hour_us in (await connection.execute(select(hour).where(*inside).distinct())).scalars().all():
        for cut in CUTS:
            if not cut.hours:
                await _add(connection, added(SUMS, cut, DAY_US, hour_us, hour_us + HOUR_US))


async def _add(connection: AsyncConnection, rows: Select[Any]) -> None:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(SUMS.coarse).from_select([*SUMS.keys, *SUMS.values], rows)
    more = {name: SUMS.coarse.c[name] + statement.excluded[name] for name in SUMS.values}
    await connection.execute(statement.on_conflict_do_update(index_elements=list(SUMS.keys), set_=more))


async def _clear(connection: AsyncConnection, side: Side, span_us: int, at_us: int) -> None:
    of_span = side.coarse.c.span_us == span_us, side.coarse.c.bucket_us == at_us
    await connection.execute(delete(side.coarse).where(side.coarse.c.cut.in_([cut.name for cut in CUTS]), *of_span))
