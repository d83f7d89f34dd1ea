"""The request explorer: one page of requests with what they are counted by, for `/admin/requests` and the page of that name.

One call answers a whole page, all of it of one instant. Knows no HTTP and no HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access import Actor
from gateway.db.engine import snapshot, twice
from gateway.db.tables import teams
from gateway.money.pricing import usd
from gateway.views.explorer_counts import Counts, Facet, count
from gateway.views.explorer_filter import FACETS, ONLY, sight, wanted
from gateway.views.explorer_rows import Page, order_of, page, place_of
from gateway.views.query import Query

FACET_NAMES = {"team_id": "team", "marks": "only"}
VALUES_MOST = 40  # of one facet; what is chosen is always among them


class Value(Struct, frozen=True, kw_only=True):
    """requests: that choosing it would give. chosen: it is part of the filter."""

    value: str
    requests: int
    chosen: bool


class Offered(Struct, frozen=True, kw_only=True):
    """A facet: the word of the query that it sets, its values, most requests first. since_us: counted from there on."""

    name: str
    values: tuple[Value, ...]
    since_us: int


class Listing(Struct, frozen=True, kw_only=True):
    page: Page
    counts: Counts
    facets: tuple[Offered, ...]
    order: str


async def listing(engine: AsyncEngine, actor: Actor, query: Query) -> Listing:
    """InvalidRequest names what was asked wrongly."""
    return await twice(lambda: _listing(engine, actor, query))


async def _listing(engine: AsyncEngine, actor: Actor, query: Query) -> Listing:
    order = order_of(query.sort)
    place = place_of(query.after, order)
    async with snapshot(engine) as connection:
        asked = await wanted(connection, query, await sight(connection, actor))
        found = await page(connection, asked, order, place)
        counts = await count(connection, asked)
        named = await _teams(connection, counts)
    if not query.after and not found.after and found.searched_from_us <= asked.from_us:  # the page is all there is
        counts = replace(counts, matching=len(found.rows), matching_since_us=asked.from_us)
    facets = (
        *(_offered(FACET_NAMES.get(name, name), counts.facets[name], query, named if name == "team_id" else None) for name in FACETS),
        _only(counts.facets["marks"], query),
    )
    return Listing(page=found, counts=counts, facets=facets, order=order)


async def _teams(connection: AsyncConnection, counts: Counts) -> dict[int, str]:
    ids = list(counts.facets["team_id"].counts)
    rows = await connection.execute(select(teams.c.id, teams.c.name).where(teams.c.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _offered(name: str, facet: Facet, query: Query, named: Mapping[int, str] | None) -> Offered:
    """The values that occur, and those chosen that do not."""
    chosen = query.words.get(name, ())
    found = dict.fromkeys(chosen, 0)
    for value, requests in facet.counts.items():
        word = value if named is None else named.get(value, "")
        if word:
            found[word] = found.get(word, 0) + requests
    ordered = sorted(found, key=lambda word: (word not in chosen, -found[word], word))[: max(VALUES_MOST, len(chosen))]
    ordered.sort(key=lambda word: (-found[word], word))
    values = tuple(Value(value=word, requests=found[word], chosen=word in chosen) for word in ordered)
    return Offered(name=name, values=values, since_us=facet.since_us)


def _only(facet: Facet, query: Query) -> Offered:
    chosen = query.words.get("only", ())
    values = tuple(Value(value=word, requests=facet.counts.get(word, 0), chosen=word in chosen) for word in ONLY)
    return Offered(name="only", values=values, since_us=facet.since_us)


def document(found: Listing, query: Query) -> dict[str, Any]:
    """The listing as values for JSON. Money as integer nano-USD and as USD; instants in microseconds."""
    counts = found.counts
    return {
        "from_us": query.from_us,
        "until_us": query.until_us,
        "total": {"requests": counts.total, "since_us": counts.total_since_us},
        "matching": {"requests": counts.matching, "since_us": counts.matching_since_us},
        "histogram": {
            "step_us": counts.step_us,
            "bars": [
                {"start_us": start, "outcome": outcome, "requests": requests} for (start, outcome), requests in sorted(counts.bars.items())
            ],
        },
        "facets": [
            {
                "name": facet.name,
                "since_us": facet.since_us,
                "values": [{"value": one.value, "requests": one.requests, "chosen": one.chosen} for one in facet.values],
            }
            for facet in found.facets
        ],
        "sort": found.order,
        "after": found.page.after or None,
        "searched_from_us": found.page.searched_from_us,
        "data": [row_document(row) for row in found.page.rows],
    }


def row_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row of a listing."""
    named = (
        *("started_at_us", "team", "key", "key_name", "route", "backend", "vendor", "model", "outcome", "status", "error", "surface"),
        *("kind", "tag", "streamed", "estimated", "ttft_ms", "duration_ms", "attempts"),
    )
    classes = {name: row[name] for name in row if name.endswith("_tokens")}
    return {
        "id": str(row["id"]),
        **{name: row[name] for name in named},
        "cost_nanousd": row["cost"],
        "cost_usd": usd(row["cost"]),
        "adjusted_nanousd": row["adjusted"] or 0,
        "saved_nanousd": row["saved"],
        "usage": classes,
        "failed_over": row["failed_over"],
        "hedged": row["hedged"],
        "missed_objective": row["missed"],
    }
