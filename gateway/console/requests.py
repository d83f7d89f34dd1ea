"""The request explorer: which requests match, and what did they cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import BaseRouteHandler

from gateway import access
from gateway.console import shell
from gateway.console.streamed import Made, Relayed, file, streamed
from gateway.money import cells
from gateway.views import explorer, explorer_export, figures
from gateway.views.explorer import Listing
from gateway.views.explorer_filter import NAMES
from gateway.views.query import Query

SERIES = (  # label, colour, outcomes; the largest at the bottom
    ("Completed", "c1", ("completed",)),
    ("From cache", "c3", ("cached",)),
    ("Cancelled", "c8", ("cancelled",)),
    ("Failed or refused", "c4", ("failed", "refused", "unknown")),
)
OUTCOMES = {  # how an outcome looks: kind and icon
    "completed": ("ok", "circle-check"),
    "cached": ("ok", "circle-check"),
    "failed": ("bad", "circle-x"),
    "refused": ("bad", "ban"),
    "cancelled": ("", "pause"),
    "unknown": ("warn", "hourglass"),
}
TITLES = {"team": "Team", "outcome": "Outcome", "route": "Route", "backend": "Backend", "only": "Only"}
RANGE_WORDS = {"cost_min": "cost at least $", "cost_max": "cost at most $", "ttft_min": "TTFT at least ", "ttft_max": "TTFT at most "}
UNITS = {"ttft_min": " ms", "ttft_max": " ms"}
SHOWN = 8  # values of a facet before "more"


def handlers(parts: Any) -> list[BaseRouteHandler]:
    @get("/requests", access=access.WATCH)
    async def requests(request: Request[Any, Any, Any]) -> Response[str]:
        query = shell.query(request, *NAMES)
        actor = access.actor(request)
        found = await explorer.listing(parts.engine, actor, query)
        drawn = chart(found, query)
        return await shell.page(
            request,
            actor,
            "requests.html",
            title="Requests",
            query=query,
            found=found,
            chart=drawn,
            bars=bars(drawn, query),
            step=step_words(found.counts.step_us),
            chips=chips(query),
            filtered=any(name not in ("range", "from", "to", "tz", "sort", "after") for name, _ in query.asked),
            outcomes=OUTCOMES,
            titles=TITLES,
            shown=SHOWN,
            csv=query.url("/console/requests/csv", sort=None),
        )

    @get("/requests/csv", access=access.WATCH)
    async def as_csv(request: Request[Any, Any, Any]) -> Relayed:
        """Every row that matches, newest first."""
        query, actor = shell.query(request, *NAMES), access.actor(request)

        async def make() -> Made:
            found = await explorer_export.begin(parts.engine, actor, query)
            name = f"tollway-requests-{figures.local_input(query.from_us, query.zone)[:10]}.csv"
            return file(name, table(explorer_export.rows(parts.engine, found), query), found.matching, about=True)

        return streamed(make)

    return [requests, as_csv]


async def table(rows: AsyncGenerator[list[dict[str, Any]]], query: Query) -> AsyncGenerator[str]:
    """Pages of rows as lines, under a head."""
    yield cells.lines([explorer_export.COLUMNS])
    async with aclosing(rows):
        async for some in rows:
            yield await asyncio.to_thread(lambda page: cells.lines(explorer_export.line(row, query.zone) for row in page), some)


def chart(found: Listing, query: Query) -> dict[str, Any]:
    """The histogram for charts.js: one bar for each step of what was counted, also where nothing was."""
    counts = found.counts
    step = counts.step_us
    starts = [at for at in range(query.from_us - query.from_us % step, query.until_us, step) if at + step > counts.matching_since_us]
    series = [
        {"label": label, "color": colour, "data": [sum(counts.bars.get((at, outcome), 0) for outcome in outcomes) for at in starts]}
        for label, colour, outcomes in SERIES
    ]
    return {
        "x": [at // 1_000_000 for at in starts],
        "zone": query.tz,
        "step": step // 1_000_000,
        "unit": "n",
        "zoom": True,
        "series": [one for one in series if any(one["data"])] or series[:1],
    }


def bars(drawn: Mapping[str, Any], query: Query) -> list[list[str]]:
    """The histogram as rows of text."""
    where = query.zone
    starts = (f"{figures.day(at * 1_000_000, where)} {figures.clock(at * 1_000_000, where)}" for at in drawn["x"])
    each = zip(starts, *(one["data"] for one in drawn["series"]), strict=True)
    return [[start, *(f"{value:,}" for value in values)] for start, *values in each]


def chips(query: Query) -> list[tuple[str, str]]:
    """(what is on, the URL without it): one chip for each name."""
    found = []
    for name, values in query.words.items():
        told = ", ".join(value.replace("_", " ") if name == "only" else value for value in values)
        found.append((f"{TITLES.get(name, name).lower()}: {told}", _without(query, name)))
    for name in ("cost_min", "cost_max", "ttft_min", "ttft_max"):
        value = dict(query.asked).get(name)
        if value:
            found.append((f"{RANGE_WORDS[name]}{value}{UNITS.get(name, '')}", _without(query, name)))
    if query.q:
        found.append((f"“{query.q}”", query.url(q=None)))
    return found


def _without(query: Query, name: str) -> str:
    none: dict[str, Any] = {name: None}
    return query.url(**none)


def step_words(step_us: int) -> str:
    """How long a bar is, in words."""
    minutes = step_us // 60_000_000
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 1440 else f"{minutes // 1440} d"
