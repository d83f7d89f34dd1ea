"""Spend reports from the roll-ups: grouped by people, choice, outcome and local time. The parts always sum to the whole.

A quarter of an hour is the grain: every zone's midnight lies on one, so days and months of any zone are cut exactly. Roll-ups hold the
adjustments too, under the outcome `adjusted`, so a report's total is what was spent. Reads no ledger row; rebuild.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta, tzinfo
from operator import add
from typing import Any

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.columns import CLASSES
from gateway.db.engine import snapshot
from gateway.db.tables import api_keys, organisations, teams
from gateway.errors import InvalidRequest, NotFound
from gateway.money import cells as tables
from gateway.money.latencies import quantile_ms
from gateway.money.ledger import BUCKET_US, ROLLUP_SUMS
from gateway.money.pricing import usd
from gateway.money.report_query import Bins, Sums, Wanted, known, read, too_many
from gateway.money.windows import bounds, read_instant, to_datetime, zone

OUTCOMES = ("completed", "failed", "cancelled", "cached", "refused", "unknown")
ADJUSTED = "adjusted"
ROWS_MAX = 100_000  # of one report
TIMES = ("hour", "day", "week", "month")
_NAMED = {  # what is stored by id -> (column of the roll-ups, where its name stands)
    "team": ("team_id", teams.c.id, teams.c.name),
    "org": ("org_id", organisations.c.id, organisations.c.name),
    "key": ("key_id", api_keys.c.id, api_keys.c.public),
}
_PLAIN = ("route", "backend", "vendor", "model", "outcome", "tag")
PLACES = (*_NAMED, *_PLAIN)
GROUPS = (*PLACES, *TIMES)
LATENCIES = (("ttft", 0.5), ("ttft", 0.95), ("duration", 0.5), ("duration", 0.95))
SHARES = ("unpriced_share", "estimated_share", "error_rate", "failover_rate")
COLUMNS = (
    *("requests", "attempts", *CLASSES, "cost_usd", "saved_usd", "adjusted_usd", "unpriced", "estimated", *OUTCOMES, "failovers"),
    *(*SHARES, *(f"{metric}_p{share * 100:.0f}_ms" for metric, share in LATENCIES)),
)
_IDS_MAX = 10_000  # names asked for at once
_AT = {name: place for place, name in enumerate(ROLLUP_SUMS)}


class Line(Struct, frozen=True, kw_only=True):
    """One row of a report. group: one value per asked name. tokens: by class, disjoint. money in nano-USD.

    cost contains `adjusted`, what later corrections made of it. unpriced: requests without a known cost, which the cost lacks.
    failovers: requests that another backend had failed before. latencies: as LATENCIES, in ms, of answered requests; None without any.
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
    failovers: int
    outcomes: tuple[int, ...]
    latencies: tuple[int | None, ...]


class Report(Struct, frozen=True, kw_only=True):
    """lines in the order of their groups; total: of all of them, and of everything between since and until."""

    by: tuple[str, ...]
    timezone: str
    since_us: int | None
    until_us: int | None
    lines: tuple[Line, ...]
    total: Line


class Asked(Struct, frozen=True, kw_only=True):
    """by: names of GROUPS. since and until (not included): a local date or an ISO instant on a quarter of an hour; None = open.

    team: only of this one. latencies: told too; without them a report of other names than teams takes half the time. where: of
    _PLAIN names -> the values of which a row must have one.
    """

    by: tuple[str, ...] = ("team",)
    since: str | None = None
    until: str | None = None
    timezone: str = "UTC"
    team: str | None = None
    latencies: bool = True
    where: Mapping[str, frozenset[str]] = {}


async def spend(engine: AsyncEngine, asked: Asked, rows_max: int = ROWS_MAX, scope: frozenset[int] | None = None) -> Report:
    """The report. scope: ids of the teams whose rows count, None = all. InvalidRequest names what was asked wrongly; NotFound: there never
    was such a team, or it is not in the scope."""
    async with snapshot(engine) as connection:
        return await spend_in(connection, asked, rows_max, scope)


async def spend_in(connection: AsyncConnection, asked: Asked, rows_max: int = ROWS_MAX, scope: frozenset[int] | None = None) -> Report:
    """The same, of the instant of a connection."""
    local = check(asked)
    since_us = None if asked.since is None else edge_us("since", asked.since, asked.timezone)
    until_us = None if asked.until is None else edge_us("until", asked.until, asked.timezone)
    where = await of_teams(connection, asked.team, scope) | dict(asked.where)
    first, last = await known(connection)
    wanted = Wanted(
        keys=tuple(column(name) for name in asked.by if name not in TIMES),
        since_us=first if since_us is None else max(first, since_us),
        until_us=last if until_us is None else min(last, until_us),
        label=_labels(asked.by, local),
        where=where,
        rows_max=rows_max,
        latencies=asked.latencies,
    )
    sums, bins = await read(connection, wanted)
    people = await names(connection, asked.by, (one.group for one in sums))
    folded = _fold(sums, bins, asked.by, people)
    if len(folded) > rows_max:
        too_many(rows_max)
    return Report(
        by=asked.by,
        timezone=asked.timezone,
        since_us=since_us,
        until_us=until_us,
        lines=tuple(_line(group, folded[group]) for group in sorted(folded)),
        total=_line(tuple("total" if place == 0 else "" for place in range(len(asked.by))), _total(folded.values())),
    )


def check(asked: Asked) -> tzinfo:
    """The report's zone; InvalidRequest names what cannot be meant."""
    for name in asked.by:
        if name not in GROUPS:
            raise InvalidRequest(f"A report cannot be grouped by '{name[:80]}': use {', '.join(GROUPS)}.", param="by")
    if len(set(asked.by)) != len(asked.by):
        raise InvalidRequest("A report is grouped by each name once.", param="by")
    try:
        return zone(asked.timezone)
    except ValueError as error:
        raise InvalidRequest(f"timezone: {error}.", param="timezone") from error


async def of_teams(connection: AsyncConnection, team: str | None, scope: frozenset[int] | None) -> dict[str, Any]:
    """What rows must be like: of one team, of those of a scope (None = all), or of both. Another's team is a missing one."""
    if team is None:
        return {} if scope is None else {"team_id": scope}
    found = await team_id(connection, team)
    if scope is not None and found not in scope:
        raise no_team(team)
    return {"team_id": found}


def no_team(name: str) -> NotFound:
    return NotFound(f"There is no team '{name[:80]}': `tollway teams list` shows them.", param="team")


async def team_id(connection: AsyncConnection, name: str) -> int:
    """Of a team, also of one that was ended: its spend stays."""
    if not name.isprintable():
        raise no_team(name)
    found = (await connection.execute(select(teams.c.id).where(teams.c.name == name))).scalar_one_or_none()
    if found is None:
        raise no_team(name)
    return int(found)


def edge_us(name: str, text: str, timezone: str) -> int:
    """An edge of the report's time: it must lie between two buckets, else a bucket would have to be split."""
    try:
        local = zone(timezone)
        at_us = read_instant(text, local)
        if len(text) == 10:  # the day begins where budgets let it begin, also where its midnight does not exist
            at_us = bounds("day", timezone, read_instant(f"{text}T12", local))[0]
    except ValueError as error:
        raise InvalidRequest(f"{name}: '{text[:80]}' is no date or time: write 2026-11-01 or 2026-11-01T12:00:00Z.", param=name) from error
    if at_us % BUCKET_US:
        raise InvalidRequest(f"{name}: '{text}' does not lie on a quarter of an hour, the grain of reports.", param=name)
    return at_us


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


def _labels(by: Sequence[str], local: tzinfo) -> Callable[[int], str]:
    """One label for all the names of time that are asked for, apart by a blank, which none of them holds."""
    each = [_label(name, local) for name in by if name in TIMES]
    if len(each) == 1:
        return each[0]
    return lambda bucket_us: " ".join(label(bucket_us) for label in each)


def column(name: str) -> str:
    return _NAMED[name][0] if name in _NAMED else name


async def names(connection: AsyncConnection, by: Sequence[str], groups: Iterable[tuple[Any, ...]]) -> dict[str, dict[int, str]]:
    """What is called how, of the ids that occur. groups: values of `by` without its names of time."""
    found: dict[str, dict[int, str]] = {}
    every = list(groups)
    for place, name in enumerate(one for one in by if one not in TIMES):
        if name in _NAMED:
            _, number, word = _NAMED[name]
            ids = sorted({group[place] for group in every})
            found[name] = {}
            for start in range(0, len(ids), _IDS_MAX):
                rows = await connection.execute(select(number, word).where(number.in_(ids[start : start + _IDS_MAX])))
                found[name].update((row[0], row[1]) for row in rows)
    return found


def called(by: Sequence[str], label: str, group: tuple[Any, ...], known: Mapping[str, Mapping[int, str]]) -> tuple[str, ...]:
    """A group as people call it. An id without a name is called nothing."""
    times, values = iter(label.split(" ")), iter(group)
    return tuple(
        next(times) if name in TIMES else known[name].get(next(values), "") if name in _NAMED else str(next(values)) for name in by
    )


class _Folded:
    __slots__ = ("adjusted", "bins", "outcomes", "values")

    def __init__(self) -> None:
        self.values = [0] * len(ROLLUP_SUMS)
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.adjusted = 0
        self.bins: dict[str, dict[int, int]] = {}

    def add(self, one: Sums) -> None:
        self.values = list(map(add, self.values, one.sums))
        if one.outcome in self.outcomes:
            self.outcomes[one.outcome] += one.sums[_AT["requests"]]
        if one.outcome == ADJUSTED:
            self.adjusted += one.sums[_AT["cost"]]

    def add_bins(self, metrics: Mapping[str, Mapping[int, int]]) -> None:
        for metric, bins in metrics.items():
            mine = self.bins.setdefault(metric, {})
            for number, times in bins.items():
                mine[number] = mine.get(number, 0) + times

    def merge(self, other: _Folded) -> None:
        self.values = list(map(add, self.values, other.values))
        for name, value in other.outcomes.items():
            self.outcomes[name] += value
        self.adjusted += other.adjusted
        self.add_bins(other.bins)


def _fold(sums: Iterable[Sums], bins: Bins, by: Sequence[str], known: Mapping[str, Mapping[int, str]]) -> dict[tuple[str, ...], _Folded]:
    """By what people call the groups; ids without a name are one group."""
    folded: dict[tuple[str, ...], _Folded] = {}
    for one in sums:
        folded.setdefault(called(by, one.label, one.group, known), _Folded()).add(one)
    for (label, group), metrics in bins.items():
        folded.setdefault(called(by, label, group, known), _Folded()).add_bins(metrics)
    return folded


def _total(parts: Iterable[_Folded]) -> _Folded:
    total = _Folded()
    for part in parts:
        total.merge(part)
    return total


def _line(group: tuple[str, ...], folded: _Folded) -> Line:
    def of(name: str) -> int:
        return folded.values[_AT[name]]

    return Line(
        group=group,
        requests=of("requests"),
        attempts=of("attempts"),
        tokens=tuple(of(name) for name in CLASSES),
        cost=of("cost"),
        saved=of("saved"),
        adjusted=folded.adjusted,
        unpriced=of("unpriced"),
        estimated=of("estimated"),
        failovers=of("failovers"),
        outcomes=tuple(folded.outcomes.values()),
        latencies=tuple(quantile_ms(folded.bins.get(metric, {}), share) for metric, share in LATENCIES),
    )


def columns(report: Report) -> tuple[str, ...]:
    """Names of the cells that `cells` gives, in order."""
    return (*report.by, *COLUMNS)


def cells(line: Line) -> tuple[str | int | None, ...]:
    """A line for people and files: money in USD with nine decimals, `unknown` where no request of the line has a known cost.

    Shares are of the line's requests, with four decimals; they and latencies are None where there is nothing to tell.
    """
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
        line.failovers,
        *(None if share is None else f"{share:.4f}" for share in shares(line)),
        *line.latencies,
    )


def shares(line: Line) -> tuple[float | None, ...]:
    """As SHARES names them."""
    failed = line.outcomes[OUTCOMES.index("failed")]
    counts = (line.unpriced, line.estimated, failed, line.failovers)
    return tuple(count / line.requests if line.requests else None for count in counts)


def as_csv(report: Report) -> str:
    """The lines with a head, without the total."""
    width = len(report.by)
    rows = ((*map(tables.safe, line.group), *cells(line)[width:]) for line in report.lines)
    return tables.as_csv(columns(report), rows)


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
    kept: dict[str, Any] = {name: value for name, value in values.items() if name not in report.by or name in by}
    for name, share in zip(SHARES, shares(line), strict=True):
        kept[name] = None if share is None else round(share, 6)
    return kept | {"cost_nanousd": line.cost, "saved_nanousd": line.saved, "adjusted_nanousd": line.adjusted}
