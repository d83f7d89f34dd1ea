"""Every row that the explorer's filters match, for a file: newest first, a page at a time, each in a short transaction of its own.

Rows that come meanwhile are newer than what was read, so none is told twice and none is missed. Knows no CSV and no page.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access import Actor
from gateway.db.columns import CLASSES
from gateway.db.engine import snapshot, twice
from gateway.errors import InvalidRequest
from gateway.money.cells import safe
from gateway.views import figures
from gateway.views.explorer import row_document
from gateway.views.explorer_counts import count
from gateway.views.explorer_filter import Wanted, sight, wanted
from gateway.views.explorer_rows import BY_TIME, Page, page, place_of
from gateway.views.query import Query

ROWS_AT_ONCE = 2000
LOOKED_AT = 10_000  # rows for one page of them: where few match, pages are short rather than slow
ROWS_MAX = 1_000_000  # of one file
COLUMNS = (
    *("id", "started_at", "team", "key", "key_name", "route", "backend", "vendor", "model", "outcome", "status", "error", "surface"),
    *("kind", "tag", "streamed", "estimated", "ttft_ms", "duration_ms", "attempts", "failed_over", "hedged", "missed_objective", *CLASSES),
    *("cost_usd", "cost_nanousd", "adjusted_nanousd", "saved_nanousd"),
)


class Begun(Struct, frozen=True):
    """What is asked for, and how many rows match it now; None = too many to count."""

    wanted: Wanted
    matching: int | None


async def begin(engine: AsyncEngine, actor: Actor, query: Query) -> Begun:
    """InvalidRequest names what was asked wrongly, or says that it is too much for one file."""

    async def read() -> Begun:
        async with snapshot(engine) as connection:
            asked = await wanted(connection, query, await sight(connection, actor))
            counts = await count(connection, asked)
        return Begun(asked, counts.matching if counts.matching_since_us <= asked.from_us else None)

    begun = await twice(read)
    if begun.matching is not None and begun.matching > ROWS_MAX:
        raise too_many()
    return begun


async def rows(engine: AsyncEngine, begun: Begun, most: int = ROWS_MAX) -> AsyncGenerator[list[dict[str, Any]]]:
    """Pages of rows as those of explorer_rows.page. InvalidRequest after `most`."""
    after, told = "", 0
    while True:
        found = await twice(partial(_page, engine, begun.wanted, after))
        if found.rows:
            told += len(found.rows)
            if told > most:
                raise too_many()
            yield found.rows
        after = found.after
        if not after:
            return


async def _page(engine: AsyncEngine, asked: Wanted, after: str) -> Page:
    async with snapshot(engine) as connection:
        return await page(connection, asked, BY_TIME, place_of(after, BY_TIME), LOOKED_AT, ROWS_AT_ONCE)


def too_many() -> InvalidRequest:
    return InvalidRequest(f"More than {ROWS_MAX:,} requests match: choose a shorter range, or use `tollway ledger export`.", param="range")


def line(row: Mapping[str, Any], zone: ZoneInfo) -> tuple[Any, ...]:
    """In the order of COLUMNS; foreign text is safe for a spreadsheet."""
    told = row_document(row)
    told |= told.pop("usage") | {"started_at": figures.rfc3339(told["started_at_us"], zone)}
    return tuple(safe(value) if isinstance(value, str) else value for value in (told[name] for name in COLUMNS))
