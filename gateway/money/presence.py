"""SQL of what gateway processes see of owned hardware: when it was there, what others have in flight on it, which hours are to be closed.

Written as generators of steps (db/session.py). Lock order: after roll-ups, hours sorted by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec import Struct

from gateway.db.session import Dialect, Do, Many, Transaction
from gateway.money.hours import PRESENT, Span, hour_of
from gateway.money.ledger import HOUR_US
from gateway.money.owned import HOURLY
from gateway.money.records import UsageRecord

GRACE_US = 900_000_000  # an hour is closed this long after its end: longer than requests last, so that few come late
FRESH_US = 30_000_000  # a process that said nothing for longer has nothing in flight that counts

HourKey = tuple[str, int, str, str]  # backend, hour, vendor, model


class Sighting(Struct, frozen=True):
    """A span of one process, to be written or extended. load: mean weight that it has in flight there."""

    backend: str
    span: Span
    load: int


def beat(
    sql: Dialect, process: UUID, seen: Sequence[Sighting], hours: Iterable[HourKey], now_us: int
) -> Transaction[dict[tuple[str, str], int]]:
    """Write what this process sees; returns what the others have in flight, by (backend, machine)."""
    writer = sql.uid(process)
    yield Many(
        "INSERT INTO owned_spans (process_id, backend, kind, from_us, until_us, machine, rate, load)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        " ON CONFLICT (process_id, backend, kind, from_us) DO UPDATE SET until_us = excluded.until_us, load = excluded.load",
        [
            (writer, one.backend, one.span.kind, one.span.from_us, one.span.until_us, one.span.machine, one.span.rate, one.load)
            for one in seen
        ],
    )
    yield from mark(hours)
    rows = yield Do(
        "SELECT backend, machine, CAST(sum(load) AS BIGINT) FROM owned_spans"
        " WHERE kind = $1 AND until_us > $2 AND process_id <> $3 GROUP BY backend, machine",
        (PRESENT, now_us - FRESH_US, writer),
    )
    return {(str(row[0]), str(row[1])): int(row[2]) for row in rows}


def mark(hours: Iterable[HourKey]) -> Transaction[None]:
    """These hours exist, and what is booked in them may have changed: one that was closed is looked at again."""
    rows = [(backend, hour, vendor, model, hour + HOUR_US + GRACE_US) for backend, hour, vendor, model in sorted(hours)]
    if rows:
        yield Many(
            "INSERT INTO owned_hours (backend, hour_us, vendor, model, check_at_us) VALUES ($1, $2, $3, $4, $5)"
            " ON CONFLICT (backend, hour_us) DO UPDATE SET check_at_us = excluded.check_at_us",
            rows,
        )


def late(records: Iterable[UsageRecord], now_us: int) -> set[HourKey]:
    """Hours that are over and that these records draw on: they may be closed already. Usually none."""
    found: set[HourKey] = set()
    for record in records:
        hour = hour_of(record.started_at_us)
        if hour + HOUR_US <= now_us:
            found |= {(end.backend, hour, end.vendor, end.model) for end in record.attempts if end.price_id.startswith(HOURLY)}
    return found


def spans_near(backend: str, from_us: int, until_us: int) -> Transaction[list[Span]]:
    """Every span of a backend that touches [from_us, until_us]."""
    rows = yield Do(
        "SELECT machine, kind, from_us, until_us, rate FROM owned_spans WHERE backend = $1 AND until_us >= $2 AND from_us <= $3",
        (backend, from_us, until_us),
    )
    return [Span(str(row[0]), str(row[1]), int(row[2]), int(row[3]), int(row[4])) for row in rows]
