"""A report for people: groups with their parts in order of what they cost, a chart of the same, and the ledger's own sum beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs
from sqlalchemy import BigInteger, ColumnElement, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import snapshot
from gateway.db.tables import adjustments, usage
from gateway.money import reports
from gateway.money.cuts import smallest
from gateway.money.ledger import DAY_US
from gateway.money.report_query import known
from gateway.money.reports import TIMES, Line, Report
from gateway.money.settling import pruned_until
from gateway.money.windows import to_datetime
from gateway.views.series import Part, Series, Steps, before, series, steps, tail

LINES_MAX = 5000
LONG_US = 366 * DAY_US  # a longer stretch is drawn from where the roll-ups begin
CHECKED_MAX = 100_000  # requests of a report up to which the ledger is added up unasked
OF_ROWS = frozenset(("route", "tag"))  # filters that a row of the ledger has as a report has it; a failover has two backends


class Asked(Struct, frozen=True, kw_only=True):
    """by: one or two names of reports.GROUPS. [since_us, until_us): whole quarters of an hour. where: name -> values, any of them. check:
    add up the ledger however long that takes."""

    by: tuple[str, ...]
    since_us: int
    until_us: int
    tz: str = "UTC"
    team: str | None = None
    where: Mapping[str, frozenset[str]] = {}
    scope: frozenset[int] | None = None
    check: bool = False


class Group(Struct, frozen=True):
    """One value of the first name, and its parts by the second; the dearest first, time in its own order."""

    name: str
    line: Line
    parts: tuple[Line, ...]


class Told(Struct, frozen=True, kw_only=True):
    """since_us: where it begins, later than was asked where all of it is too much to read at once; the series may begin later still.
    before: what the same length before came to.

    ledger: nano-USD of the ledger's rows, None = not added up. checkable: whether it can be; pruned_us: what is older than that is no
    longer in the ledger.
    """

    since_us: int
    report: Report
    groups: tuple[Group, ...]
    series: Series
    before: Part
    births: dict[str, int]
    ledger: int | None
    checkable: bool
    pruned_us: int


async def told(engine: AsyncEngine, asked: Asked) -> Told:
    """InvalidRequest names what was asked wrongly. NotFound for a team that is not seen."""
    async with snapshot(engine) as connection:
        where: dict[str, Any] = await reports.of_teams(connection, asked.team, asked.scope) | dict(asked.where)
        first = (await known(connection))[0]
        long = asked.until_us - asked.since_us > LONG_US
        since_us = first if long and asked.since_us < first < asked.until_us else asked.since_us
        at = steps(since_us, asked.until_us, asked.tz)
        keys = tuple(reports.column(name) for name in asked.by if name not in TIMES)
        drawn_keys = tuple(reports.column(name) for name in asked.by[:1] if name not in TIMES)
        drawn_at = at if smallest({*drawn_keys, *where}, hours=True) else await _tail(connection, where, at)
        if smallest({*keys, *where}) is None:
            at = drawn_at
        if at.starts[0] > since_us:
            asked = structs.replace(asked, since_us=at.starts[0])
    async with snapshot(engine) as connection:  # of one instant: what is booked meanwhile stands in none of it
        report = await reports.spend_in(connection, _report_of(asked), LINES_MAX, asked.scope)
        drawn = await series(connection, drawn_keys, where, drawn_at)
        compared = await before(connection, where, asked.since_us, asked.until_us)
        names = await reports.names(connection, asked.by[:1], drawn.by) if drawn_keys else {}
        pruned_us = await pruned_until(connection)
        checkable = set(asked.where) <= OF_ROWS and asked.since_us >= pruned_us
        ledger = None
        if checkable and (asked.check or report.total.requests <= CHECKED_MAX):
            ledger = await rows_sum(connection, asked.since_us, asked.until_us, where)
    return Told(
        since_us=asked.since_us,
        report=report,
        groups=grouped(report),
        series=_named(drawn, asked.by[0], names),
        before=compared,
        births={name: place for place, name in enumerate(names.get(asked.by[0], {}).values())},
        ledger=ledger,
        checkable=checkable,
        pruned_us=pruned_us,
    )


async def _tail(connection: AsyncConnection, where: Mapping[str, Any], at: Steps) -> Steps:
    """The end of a stretch that can be read by quarters of an hour, of a chart whose names no hour is added up by."""
    counted = {name: value for name, value in where.items() if name == "team_id"}
    return tail((await series(connection, (), counted, at, sums=("requests",))).points, at)


async def spend(engine: AsyncEngine, asked: Asked, lines_max: int = LINES_MAX) -> Report:
    """The lines alone, for files."""
    return await reports.spend(engine, _report_of(asked), lines_max, asked.scope)


def _report_of(asked: Asked) -> reports.Asked:
    since, until = (to_datetime(at_us).isoformat() for at_us in (asked.since_us, asked.until_us))
    return reports.Asked(
        by=asked.by, since=since, until=until, timezone=asked.tz, team=asked.team, latencies=False, where=dict(asked.where)
    )


def grouped(report: Report) -> tuple[Group, ...]:
    """The report's lines under their first name."""
    parts: dict[str, list[Line]] = {}
    for line in report.lines:
        parts.setdefault(line.group[0], []).append(line)
    made = [Group(name, added(name, lines), _ranked(lines) if len(report.by) > 1 else ()) for name, lines in parts.items()]
    in_time = report.by[0] in TIMES
    return tuple(sorted(made, key=lambda one: (0 if in_time else -one.line.cost, one.name)))


def _ranked(lines: list[Line]) -> tuple[Line, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.cost, line.group)))


def added(name: str, lines: list[Line]) -> Line:
    """Their sum; latencies do not add up."""
    numbers = ("requests", "attempts", "cost", "saved", "adjusted", "unpriced", "estimated", "failovers")
    return structs.replace(
        lines[0],
        group=(name,),
        tokens=tuple(map(sum, zip(*(line.tokens for line in lines), strict=True))),
        outcomes=tuple(map(sum, zip(*(line.outcomes for line in lines), strict=True))),
        **{one: sum(getattr(line, one) for line in lines) for one in numbers},
    )


def _named(drawn: Series, by: str, names: Mapping[str, Mapping[int, str]]) -> Series:
    """Groups by what people call them; those without a name are one."""
    found: dict[tuple[Any, ...], Any] = {}
    for group, parts in drawn.by.items():
        name = names[by].get(group[0], "") if by in names else str(group[0]) if group else ""
        there = found.setdefault((name,), {})
        for place, part in parts.items():
            if place in there:
                there[place].merge(part)
            else:
                there[place] = part
    return structs.replace(drawn, by=found)


async def rows_sum(connection: AsyncConnection, since_us: int, until_us: int, where: Mapping[str, Any]) -> int:
    """nano-USD of the ledger's rows that began in [since_us, until_us), with what was corrected of them later. Reads every one."""
    conditions: list[ColumnElement[bool]] = [usage.c.started_at_us >= since_us, usage.c.started_at_us < until_us]
    for name, value in where.items():
        conditions.append(usage.c[name].in_(sorted(value)) if isinstance(value, frozenset) else usage.c[name] == value)
    booked = select(cast(func.coalesce(func.sum(usage.c.cost), 0), BigInteger)).where(*conditions)
    corrected = (
        select(cast(func.coalesce(func.sum(adjustments.c.delta), 0), BigInteger))
        .join(usage, usage.c.id == adjustments.c.usage_id)
        .where(*conditions)
    )
    return int((await connection.execute(booked)).scalar_one()) + int((await connection.execute(corrected)).scalar_one())
