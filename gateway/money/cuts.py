"""The coarse roll-ups: which names each keeps, and the SQL that adds one up from the quarters of an hour. Writes nothing.

A cut leaves names out, so that a month of it is few rows: a report reads the smallest that has the names it asks for. Those whose hours
are told have latencies too; the others stand per day alone, because an hour of them would be nearly as many rows as its quarters.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from sqlalchemy import BigInteger, ColumnElement, Select, Table, Text, cast, func, literal, select

from gateway.db.rollup_tables import coarse_latency_rollups, coarse_rollups, latency_rollups, rollups
from gateway.money.latencies import COUNTS
from gateway.money.ledger import DAY_US, HOUR_US, ROLLUP_SUMS

NUMBERS, TEXTS = ("team_id", "key_id"), ("route", "backend", "vendor", "model", "tag")
KEYS = ("cut", "span_us", "bucket_us", "org_id", *NUMBERS, *TEXTS, "outcome")
LATENCY_KEYS = (*KEYS, "metric", "octave")


class Cut(Struct, frozen=True):
    """keeps: names of NUMBERS and TEXTS, beside the organisation and the outcome; in the others is 0 or nothing. hours: per hour of UTC
    too, and with latencies."""

    name: str
    keeps: tuple[str, ...]
    hours: bool

    @property
    def spans_us(self) -> tuple[int, ...]:
        return (DAY_US, HOUR_US) if self.hours else (DAY_US,)

    def has(self, names: Collection[str]) -> bool:
        return all(name in self.keeps or name in ("org_id", "outcome") for name in names)


CUTS = (  # the smallest first
    Cut("all", (), True),
    Cut("team", ("team_id",), True),
    Cut("place", ("route", "backend", "vendor", "model"), True),
    Cut("who", ("team_id", "key_id", "tag"), False),
    Cut("both", ("team_id", "route", "backend", "vendor", "model"), False),
)


class Side(Struct, frozen=True):
    """One of the two kinds of roll-ups. more: its keys beside those of both. values: what is added up."""

    coarse: Table
    fine: Table
    more: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return (*KEYS, *self.more)


SUMS = Side(coarse_rollups, rollups, (), ROLLUP_SUMS)
LATENCIES = Side(coarse_latency_rollups, latency_rollups, ("metric", "octave"), COUNTS)


def smallest(names: Collection[str], *, hours: bool = False) -> Cut | None:
    """The smallest cut that has all these names; None: only the quarters of an hour have. hours: that has them per hour."""
    return next((cut for cut in CUTS if cut.has(names) and (cut.hours or not hours)), None)


def added(side: Side, cut: Cut, span_us: int, start_us: int, stop_us: int) -> Select[Any]:
    """The rows of a cut that begin in [start_us, stop_us), added up from quarters, in the order of the side's keys and values."""
    fine = side.fine.c
    at = fine.bucket_us - fine.bucket_us % span_us
    return _sums(side, cut, span_us, at, side.fine).where(fine.bucket_us >= start_us, fine.bucket_us < stop_us)


def day_of_hours(side: Side, cut: Cut, day_us: int) -> Select[Any]:
    """The rows of a day of a cut, added up from its hours."""
    hours = side.coarse.c
    of_day = hours.cut == cut.name, hours.span_us == HOUR_US, hours.bucket_us >= day_us, hours.bucket_us < day_us + DAY_US
    return _sums(side, cut, DAY_US, literal(day_us, BigInteger), side.coarse).where(*of_day)


def _sums(side: Side, cut: Cut, span_us: int, at: ColumnElement[int], source: Table) -> Select[Any]:
    kept: dict[str, ColumnElement[Any]] = {name: source.c[name] for name in ("org_id", *cut.keeps, "outcome", *side.more)}
    blank = {name: literal(0, BigInteger) for name in NUMBERS} | {name: literal("", Text) for name in TEXTS}
    named: dict[str, ColumnElement[Any]] = {"cut": literal(cut.name, Text), "span_us": literal(span_us, BigInteger), "bucket_us": at}
    named |= blank
    named |= kept
    values = [cast(func.sum(source.c[name]), BigInteger).label(name) for name in side.values]
    groups = [*([] if source is side.coarse else [at]), *kept.values()]
    return select(*(named[name].label(name) for name in side.keys), *values).group_by(*groups)
