"""Reports: who spent what on what, in any grouping and zone; as a table, a chart, CSV, and a statement to print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from litestar import Response, get
from litestar.handlers import BaseRouteHandler
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access, people
from gateway.catalog import Catalog
from gateway.console import charts, shell
from gateway.console.shell import Asked
from gateway.console.streamed import PIECE_ROWS, Made, Relayed, file, streamed
from gateway.db.columns import CLASSES
from gateway.errors import InvalidRequest
from gateway.money import cells, reports, statement
from gateway.money.reports import PLACES, TIMES
from gateway.views import figures, ledger_check
from gateway.views import spend as views
from gateway.views.ledger_check import Checked, Step
from gateway.views.query import Query
from gateway.views.series import month_name, word

OPEN_TO = access.MONEY | access.TEAM_EDIT
RANGES = ("24h", "7d", "30d", "month", "quarter")
GROUPS = (*PLACES, *TIMES)
MEASURES = {"spend": ("cost", "usd", "Spend"), "tokens": ("", "tokens", "Tokens"), "requests": ("requests", "n", "Requests")}
FILTERS = ("team", "route", "backend", "model", "outcome", "tag")
MORE = {"by": GROUPS, "then": ("", *GROUPS), "measure": tuple(MEASURES), "check": ("", "ledger")}
SHOWN, PARTS_SHOWN = 100, 12  # groups and parts of one that the page holds; the rest is in the CSV
CSV_LINES_MAX = 10_000
PROGRESS = "application/x-ndjson"
Steps = AsyncGenerator[Step | Checked]
_INPUT = tuple(place for place, name in enumerate(CLASSES) if name.startswith(("input", "cache")))
_CACHED = CLASSES.index("cache_read_tokens")


class Reporting(Protocol):
    """What these pages need of a worker's parts."""

    engine: AsyncEngine
    catalog: Catalog


def handlers(parts: Reporting) -> list[BaseRouteHandler]:
    @get("/reports", access=OPEN_TO)
    async def report(request: Asked) -> Response[str]:
        who, query = access.actor(request), _query(request)
        told = await views.told(parts.engine, asked(query, who))
        values = await asyncio.to_thread(shown, told, query, parts.catalog)
        return await shell.page(request, who, "reports.html", title="Reports", **values)

    @get("/reports/csv", access=OPEN_TO)
    async def as_csv(request: Asked) -> Relayed:
        query = _query(request)
        wanted = asked(query, access.actor(request))

        async def make() -> Made:
            found = await views.spend(parts.engine, wanted, CSV_LINES_MAX)
            name = f"tollway-{'-'.join(found.by)}-{figures.local_input(query.buckets[0], query.zone)[:10]}.csv"
            return file(name, table(found), len(found.lines))

        return streamed(make)

    @get("/reports/check", access=OPEN_TO)
    async def check(request: Asked) -> Relayed:
        """The ledger added up, a line of JSON for each step; the last one is what the page shows then."""
        query = _query(request)
        steps = ledger_check.check(parts.engine, asked(query, access.actor(request)))

        async def make() -> Made:
            return Made(media_type=PROGRESS, pieces=_told(request, query, await anext(steps), steps))

        return streamed(make)

    @get("/reports/statement", access=OPEN_TO)
    async def to_print(request: Asked) -> Response[str]:
        return await _statement(parts, request)

    return [report, as_csv, check, to_print]


def _query(request: Asked) -> Query:
    return shell.query(request, *FILTERS, more=MORE, default="month")


def asked(query: Query, who: access.Actor) -> views.Asked:
    by = (query.more["by"], query.more["then"])
    if by[0] == by[1]:
        raise InvalidRequest("then: group by another name than the first.", param="then")
    since_us, until_us = query.buckets
    return views.Asked(
        by=tuple(one for one in by if one),
        since_us=since_us,
        until_us=until_us,
        tz=query.tz,
        team=query.one("team") or None,
        where={name: frozenset(query.words[name]) for name in FILTERS[1:] if name in query.words},
        scope=who.whole,
        check=query.more["check"] == "ledger",
    )


async def _told(request: Asked, query: Query, first: Step | Checked, rest: Steps) -> AsyncGenerator[str]:
    async with aclosing(rest):
        one: Step | Checked | None = first
        while one is not None:
            yield json.dumps(await _line(request, query, one)) + "\n"
            one = await anext(rest, None)


async def _line(request: Asked, query: Query, one: Step | Checked) -> dict[str, Any]:
    if isinstance(one, Step):
        return {"done": one.done, "total": one.total}
    values = checked(one.rolled, one.ledger, one.differs, query)
    return {"html": (await shell.fragment(request, "reports.html", "checked", query=query, checked=values)).content}


def checked(rolled: int, ledger: int, differs: tuple[int, int] | None, query: Query) -> dict[str, Any]:
    """Whether the rows sum to the ledger. differs: the first stretch in which they do not, where that is known."""
    ends = () if differs is None else (f"{figures.day(at_us, query.zone)} {figures.clock(at_us, query.zone)}" for at_us in differs)
    return {"rolled": rolled, "ledger": ledger, "since": " to ".join(ends)}


async def table(found: reports.Report) -> AsyncGenerator[str]:
    """The lines as they stand in the table, money also as integers; some at a time."""
    width = len(found.by)

    def piece(start: int) -> str:
        lines = found.lines[start : start + PIECE_ROWS]
        return cells.lines(
            (*map(cells.safe, line.group), *reports.cells(line)[width : -len(reports.LATENCIES)], line.cost) for line in lines
        )

    yield cells.lines([(*reports.columns(found)[: -len(reports.LATENCIES)], "cost_nanousd")])
    for start in range(0, len(found.lines), PIECE_ROWS):
        yield await asyncio.to_thread(piece, start)


def shown(told: views.Told, query: Query, catalog: Catalog) -> dict[str, Any]:
    """What the template needs."""
    by, then, measure = query.more["by"], query.more["then"], query.more["measure"]
    chart = drawn(told, query, catalog)
    total = told.report.total
    ends = (figures.rfc3339(at_us, query.zone) for at_us in (told.since_us, query.buckets[1]))
    since = dict(zip(("from_", "to"), ends, strict=True)) if told.since_us > query.buckets[0] else {}
    return {
        "query": query,
        "told": told,
        "total": total,
        "before": told.before,
        "subtitle": f"{shell.spelled(query)} · {query.one('team') or 'all teams that you see'}",
        "cut": told.since_us > query.buckets[0],
        "by": by,
        "then": then,
        "measure": measure,
        "measures": [(word_, query.url("/console/reports", measure=name), name == measure) for name, (_, _, word_) in MEASURES.items()],
        "groups_of": GROUPS,
        "ranges": RANGES,
        "chips": [(f"{name}: {value}", query.without(name, value)) for name in FILTERS for value in query.words.get(name, ())],
        "chart": chart,
        "per": word(told.series.steps.step_us) + drawn_since(told, query),
        "slots": {one.label: one.slot for one in chart.legend},
        "groups": told.groups[:SHOWN],
        "groups_more": max(0, len(told.groups) - SHOWN),
        "parts_shown": PARTS_SHOWN,
        "most": max((one.line.cost for one in told.groups), default=0),
        "tokens_of": lambda line: sum(line.tokens),
        "input_of": lambda line: sum(line.tokens[place] for place in _INPUT),
        "cached_of": lambda line: figures.ratio(line.tokens[_CACHED], sum(line.tokens[place] for place in _INPUT)),
        "unknown": total.outcomes[reports.OUTCOMES.index("unknown")],
        "month": figures.local_input(query.buckets[0], query.zone)[:7],
        "csv": query.url("/console/reports/csv", measure=None, check=None),
        "checked": None if told.ledger is None else checked(total.cost, told.ledger, None, query),
        "check": query.url("/console/reports/check", measure=None, check=None, **since),
    }


def drawn_since(told: views.Told, query: Query) -> str:
    """Says so where the chart begins later than the report."""
    at_us = told.series.steps.starts[0]
    if at_us <= told.since_us:
        return ""
    return f", since {figures.day(at_us, query.zone)} {figures.clock(at_us, query.zone)}: before that it is too many rows to draw"


def drawn(told: views.Told, query: Query, catalog: Catalog) -> charts.Chart:
    column, unit, word_ = MEASURES[query.more["measure"]]
    points = len(told.series.steps.starts)

    def value(part: Any) -> int:
        return int(part.of(column)) if column else int(part.tokens)

    named = {
        group[0] or ("All" if query.more["by"] in TIMES else "none"): [
            value(parts[place]) if place in parts else 0 for place in range(points)
        ]
        for group, parts in told.series.by.items()
    }
    orders = {"route": list(catalog.routes), "backend": list(catalog.backends)}
    births = {name: place for place, name in enumerate(orders.get(query.more["by"], list(told.births)))}
    label = f"{word_} by {query.more['by']} {word(told.series.steps.step_us)}"
    return charts.stacked(named, births, told.series.steps, unit, label)


async def _statement(parts: Reporting, request: Asked) -> Response[str]:
    """One team's month with a letter head and no bars, to print. Without a team: which one?"""
    who = access.actor(request)
    query = shell.query(request, "team", more={"month": ()}, default="month")
    now = figures.local_input(query.now_us, query.zone)[:7]
    team, month = query.one("team"), query.more["month"] or now
    made = await statement.statement(parts.engine, team, month, query.tz, who.whole) if team else None
    listed = [one.name for one in await people.list_teams(parts.engine, who.whole)]
    return await shell.page(
        request,
        who,
        "statement.html",
        title="Statement" if made is None else f"Statement of {team}, {month}",
        query=query,
        made=made,
        teams=listed,
        team=team,
        month=month,
        month_word="" if made is None else f"{month_name((made.report.since_us or 0) + 86_400_000_000, query.tz)} {month[:4]}",
        input_of=lambda line: sum(line.tokens[place] for place in _INPUT),
        output_of=lambda line: sum(line.tokens) - sum(line.tokens[place] for place in _INPUT),
    )
