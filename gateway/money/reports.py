"""Spend reports from the roll-ups: grouped by people, choice, outcome and local time. The parts always sum to the whole.

A quarter of an hour is the grain: every zone's midnight lies on one, so days and months of any zone are cut exactly. Roll-ups hold the
adjustments too, under the outcome `adjusted`, so a report's total is what was spent. Reads no ledger row; rebuild.py does.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Label, Select, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import reading
from gateway.db.tables import api_keys, organisations, rollups, teams
from gateway.errors import InvalidRequest
from gateway.money.ledger import BUCKET_US, CLASSES
from gateway.money.pricing import usd
from gateway.money.windows import bounds, to_datetime, to_us, zone

OUTCOMES = ("completed", "failed", "cancelled", "cached", "refused", "unknown")
ADJUSTED = "adjusted"
ROWS_MAX = 100_000  # of one report
_COUNTS = ("requests", "attempts", *CLASSES)
_MONEY = ("cost", "saved")
_FLAGS = ("unpriced", "estimated")
_TIMES = ("hour", "day", "week", "month")
_NAMED = {
    "team": teams.c.name,
    "org": organisations.c.name,
    "key": api_keys.c.public,
}
_PLAIN = ("route", "backend", "vendor", "model", "outcome", "tag")
GROUPS = (*_NAMED, *_PLAIN, *_TIMES)


class Line(Struct, frozen=True, kw_only=True):
    """One row of a report. group: one value per asked name. tokens: by class, disjoint. money in nano-USD.

    cost contains `adjusted`, what later corrections made of it. unpriced: requests without a known cost, which the cost lacks.
    """

    group: tuple[str, ...]
    requests: int
    attempts: int
    tokens: tuple[int, ...]
    cost: int
    saved: int
    adjusted: int
    unpriced: int
    estimated: int
    outcomes: tuple[int, ...]


class Report(Struct, frozen=True, kw_only=True):
    """lines in the order of their groups; total: of all of them, and of everything between since and until."""

    by: tuple[str, ...]
    timezone: str
    since_us: int | None
    until_us: int | None
    lines: tuple[Line, ...]
    total: Line


class Asked(Struct, frozen=True, kw_only=True):
    """by: names of GROUPS. since and until (not included): a local date or an ISO instant on a quarter of an hour; None = open."""

    by: tuple[str, ...] = ("team",)
    since: str | None = None
    until: str | None = None
    timezone: str = "UTC"


async def spend(engine: AsyncEngine, asked: Asked) -> Report:
    """The report. InvalidRequest names what was asked wrongly."""
    for name in asked.by:
        if name not in GROUPS:
            raise InvalidRequest(f"A report cannot be grouped by '{name}': use {', '.join(GROUPS)}.", param="by")
    if len(set(asked.by)) != len(asked.by):
        raise InvalidRequest("A report is grouped by each name once.", param="by")
    try:
        local = zone(asked.timezone)
    except ValueError as error:
        raise InvalidRequest(f"timezone: {error}.", param="timezone") from error
    since_us = None if asked.since is None else _edge_us("since", asked.since, asked.timezone)
    until_us = None if asked.until is None else _edge_us("until", asked.until, asked.timezone)
    async with reading(engine).connect() as connection:
        rows = (await connection.execute(_statement(asked.by, since_us, until_us))).all()
    sums = _fold([row._mapping for row in rows], asked.by, local)
    if len(sums) > ROWS_MAX:
        raise InvalidRequest(f"This report has {len(sums)} rows, more than {ROWS_MAX}: group by less or shorten the time.", param="by")
    return Report(
        by=asked.by,
        timezone=asked.timezone,
        since_us=since_us,
        until_us=until_us,
        lines=tuple(_line(group, sums[group]) for group in sorted(sums)),
        total=_line(tuple("total" if place == 0 else "" for place in range(len(asked.by))), _total(sums.values())),
    )


def _edge_us(name: str, text: str, timezone: str) -> int:
    """An edge of the report's time: it must lie between two buckets, else a bucket would have to be split."""
    try:
        at = datetime.fromisoformat(text)
        at_us = to_us(at if at.tzinfo is not None else at.replace(tzinfo=zone(timezone)))
        if len(text) == 10:  # the day begins where budgets let it begin, also where its midnight does not exist
            at_us = bounds("day", timezone, to_us(at.replace(hour=12, tzinfo=zone(timezone))))[0]
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{name}: '{text[:80]}' is no date or time: write 2026-11-01 or 2026-11-01T12:00:00Z.", param=name) from error
    if at_us % BUCKET_US:
        raise InvalidRequest(f"{name}: '{text}' does not lie on a quarter of an hour, the grain of reports.", param=name)
    return at_us


def _statement(by: Sequence[str], since_us: int | None, until_us: int | None) -> Select[Any]:
    """One row per group, outcome and, where local time is asked for, bucket. The outcome is always needed for the counts."""
    timed = any(name in _TIMES for name in by)
    groups: list[ColumnElement[Any] | Label[Any]] = [func.coalesce(_NAMED[name], "").label(f"by_{name}") for name in by if name in _NAMED]
    groups += [rollups.c[name].label(f"by_{name}") for name in by if name in _PLAIN and name != "outcome"]
    groups.append(rollups.c.outcome.label("by_outcome"))
    if timed:
        groups.append(rollups.c.bucket_us.label("bucket_us"))
    sums = [func.sum(rollups.c[name]).label(name) for name in (*_COUNTS, *_MONEY, *_FLAGS)]
    statement = select(*groups, *sums).select_from(rollups)
    if "team" in by:
        statement = statement.join(teams, teams.c.id == rollups.c.team_id, isouter=True)
    if "org" in by:
        statement = statement.join(organisations, organisations.c.id == rollups.c.org_id, isouter=True)
    if "key" in by:
        statement = statement.join(api_keys, api_keys.c.id == rollups.c.key_id, isouter=True)
    if since_us is not None:
        statement = statement.where(rollups.c.bucket_us >= since_us)
    if until_us is not None:
        statement = statement.where(rollups.c.bucket_us < until_us)
    return statement.group_by(*(group.element if isinstance(group, Label) else group for group in groups))


def _label(name: str, local: tzinfo) -> Callable[[int], str]:
    """How a bucket's start is called in a grouping by time."""

    def label(bucket_us: int) -> str:
        at = to_datetime(bucket_us).astimezone(local)
        if name == "hour":  # with its offset: one hour occurs twice when clocks go back
            return at.replace(minute=0, second=0, microsecond=0).isoformat(timespec="minutes")
        if name == "day":
            return at.date().isoformat()
        if name == "week":
            return (at.date() - timedelta(days=at.weekday())).isoformat()
        return f"{at.year:04d}-{at.month:02d}"

    return label


class _Sums:
    __slots__ = ("adjusted", "outcomes", "values")

    def __init__(self) -> None:
        self.values = dict.fromkeys((*_COUNTS, *_MONEY, *_FLAGS), 0)
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.adjusted = 0

    def add(self, row: Mapping[str, Any]) -> None:
        for name in self.values:
            self.values[name] += int(row[name])
        outcome = row["by_outcome"]
        if outcome in self.outcomes:
            self.outcomes[outcome] += int(row["requests"])
        if outcome == ADJUSTED:
            self.adjusted += int(row["cost"])

    def merge(self, other: _Sums) -> None:
        for name, value in other.values.items():
            self.values[name] += value
        for name, value in other.outcomes.items():
            self.outcomes[name] += value
        self.adjusted += other.adjusted


def _fold(rows: Sequence[Mapping[str, Any]], by: Sequence[str], local: tzinfo) -> dict[tuple[str, ...], _Sums]:
    """Sums by group; buckets become local hours, days, weeks and months here, so that no database's idea of a zone matters."""
    labels = {name: _label(name, local) for name in by if name in _TIMES}
    known: dict[tuple[str, int], str] = {}
    sums: dict[tuple[str, ...], _Sums] = {}
    for row in rows:
        group = []
        for name in by:
            if name in labels:
                at = (name, row["bucket_us"])
                if at not in known:
                    known[at] = labels[name](row["bucket_us"])
                group.append(known[at])
            else:
                group.append(str(row[f"by_{name}"]))
        sums.setdefault(tuple(group), _Sums()).add(row)
    return sums


def _total(parts: Any) -> _Sums:
    total = _Sums()
    for part in parts:
        total.merge(part)
    return total


def _line(group: tuple[str, ...], sums: _Sums) -> Line:
    return Line(
        group=group,
        requests=sums.values["requests"],
        attempts=sums.values["attempts"],
        tokens=tuple(sums.values[name] for name in CLASSES),
        cost=sums.values["cost"],
        saved=sums.values["saved"],
        adjusted=sums.adjusted,
        unpriced=sums.values["unpriced"],
        estimated=sums.values["estimated"],
        outcomes=tuple(sums.outcomes.values()),
    )


def columns(report: Report) -> tuple[str, ...]:
    """Names of the cells that `cells` gives, in order."""
    return (*report.by, "requests", "attempts", *CLASSES, "cost_usd", "saved_usd", "adjusted_usd", *_FLAGS, *OUTCOMES)


def cells(line: Line) -> tuple[str | int, ...]:
    """A line for people and files: money in USD with nine decimals, `unknown` where no request of the line has a known cost."""
    unknown = line.unpriced > 0 and line.unpriced >= line.requests and line.cost == 0
    return (
        *line.group,
        line.requests,
        line.attempts,
        *line.tokens,
        usd(None if unknown else line.cost),
        usd(line.saved),
        usd(line.adjusted),
        line.unpriced,
        line.estimated,
        *line.outcomes,
    )


def as_csv(report: Report) -> str:
    """The lines with a head, without the total."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(report))
    writer.writerows(cells(line) for line in report.lines)
    return text.getvalue()


def document(report: Report) -> dict[str, Any]:
    """The report as values for JSON: lines by column name, money also as integer nano-USD, and the total."""
    return {
        "by": report.by,
        "timezone": report.timezone,
        "since_us": report.since_us,
        "until_us": report.until_us,
        "lines": [_object(report, line, report.by) for line in report.lines],
        "total": _object(report, report.total, ()),
    }


def _object(report: Report, line: Line, by: Sequence[str]) -> dict[str, Any]:
    values = dict(zip(columns(report), cells(line), strict=True))
    kept = {name: value for name, value in values.items() if name not in report.by or name in by}
    return kept | {"cost_nanousd": line.cost, "saved_nanousd": line.saved, "adjusted_nanousd": line.adjusted}
