"""Hours of owned hardware: what one came to, from when its backend was there, and the rows of what no request paid for. Pure.

An hour is owed for the time in which at least one gateway process had the backend; a gap shorter than GAP_US, a restart, counts too. Where
two processes know different rates, the one that began to know last is right. One rounding per hour; a whole hour is the rate exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec import Struct

from gateway.money.ledger import HOUR_US, IDLE, WARM_UP
from gateway.money.owned import HOURLY
from gateway.money.pricing import round_half_even
from gateway.money.records import UsageRecord
from providers.types import Usage

GAP_US = 300_000_000
PRESENT = "present"
LATE = "late"  # the error of a row that corrects an hour after it was closed


class Span(Struct, frozen=True):
    """One process had the backend (present), or saw its machine start (warm_up), between two instants. rate: nano-USD per hour."""

    machine: str
    kind: str
    from_us: int
    until_us: int
    rate: int


class Owed(Struct, frozen=True):
    """What an hour came to: nano-USD in all and of warm-up, and the machines' microseconds."""

    nanousd: int
    warm_up: int
    covered_us: int


def hour_of(at_us: int) -> int:
    return at_us - at_us % HOUR_US


def owed(spans: Iterable[Span], hour_us: int) -> Owed:
    """Of the hour that begins at hour_us. spans: all of the backend that touch it, or come within GAP_US of it."""
    present: dict[str, list[Span]] = {}
    warming: dict[str, list[Span]] = {}
    for span in spans:
        (present if span.kind == PRESENT else warming).setdefault(span.machine, []).append(span)
    covered = total = warm = 0
    for found in present.values():
        for from_us, until_us, rate in _pieces(found, GAP_US):
            length = _within(from_us, until_us, hour_us)
            covered += length
            total += length * rate
    for found in warming.values():
        warm += sum(_within(from_us, until_us, hour_us) * rate for from_us, until_us, rate in _pieces(found, 0))
    return Owed(round_half_even(total, HOUR_US), round_half_even(warm, HOUR_US), covered)


def _pieces(spans: list[Span], gap_us: int) -> list[tuple[int, int, int]]:
    """(from, until, rate) without overlap: the span that began last gives the rate, and shorter gaps belong to what was before them."""
    pieces: list[tuple[int, int, int]] = []
    start = end = rate = 0
    for place, span in enumerate(sorted(spans, key=lambda span: (span.from_us, span.rate))):
        if place:
            pieces.append((start, span.from_us if span.from_us - end <= gap_us else end, rate))
        start, end, rate = span.from_us, max(end, span.until_us), span.rate
    if spans:
        pieces.append((start, end, rate))
    return pieces


def _within(from_us: int, until_us: int, hour_us: int) -> int:
    return max(0, min(until_us, hour_us + HOUR_US) - max(from_us, hour_us))


def row_id(backend: str, hour_us: int, number: int) -> UUID:
    """The id of an hour's row, the same whoever writes it: a UUIDv7 of the hour's beginning whose random bits are a hash."""
    digest = int.from_bytes(hashlib.sha256(f"{backend}\0{hour_us}\0{number}".encode()).digest()[:10])
    return UUID(int=(hour_us // 1000) << 80 | 0x7 << 76 | (digest >> 62 & 0xFFF) << 64 | 0x2 << 62 | digest & (1 << 62) - 1)


class Hour(Struct, frozen=True, kw_only=True):
    """One backend's hour as SQL has it. written: rows booked for it so far. closed: whether it had been closed before."""

    backend: str
    hour_us: int
    vendor: str
    model: str
    written: int
    closed: bool


def rows_of(hour: Hour, owing: Owed, booked: int) -> Sequence[UsageRecord]:
    """What is to be booked so that everything booked at the backend in this hour is what it came to. booked: nano-USD so far.

    The first time warm-up has a row of its own; afterwards one row corrects, in either direction.
    """
    missing = owing.nanousd - booked
    warm = 0 if hour.closed else min(owing.warm_up, max(0, missing))
    found = [(kind, cost) for kind, cost in ((WARM_UP, warm), (IDLE, missing - warm)) if cost]
    return [_row(hour, number, kind, cost) for number, (kind, cost) in enumerate(found, hour.written)]


def _row(hour: Hour, number: int, kind: str, cost: int) -> UsageRecord:
    return UsageRecord(
        id=row_id(hour.backend, hour.hour_us, number),
        started_at_us=hour.hour_us,
        ended_at_us=hour.hour_us + HOUR_US,
        team_id=0,
        key_id=0,
        org_id=0,
        route="",
        backend=hour.backend,
        vendor=hour.vendor,
        model=hour.model,
        price_id=HOURLY + hour.backend,
        outcome=kind,
        cost=cost,
        usage=Usage(),
        charges=(),
        attempts=(),
        surface="",
        error=LATE if hour.closed else "",
        status=0,
    )
