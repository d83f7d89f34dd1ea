"""One page of ledger rows in an order, after a cursor. Looks at a bounded number of rows and says how far back that went.

A page is found by its place in the order, never by counting pages, so rows that come meanwhile move nothing. By time, a search that
found too little goes on where it stopped; by cost or time taken, the order is that of the newest rows of the stretch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Select, and_, func, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.columns import CLASSES
from gateway.db.tables import adjustments, api_keys, attempts, teams, usage
from gateway.errors import InvalidRequest
from gateway.money.marks import FAILED_OVER, HEDGED, MISSED
from gateway.views.explorer_filter import Wanted, marked_rows

PAGE = 50
LOOKED_AT = 50_000  # rows of one page's search
TEAMS_APART = 16  # of so many the newest rows are found by team; of more among everybody's
ORDERS: Mapping[str, tuple[Any, int]] = {  # by the query's word: (what it is sorted by, the sign)
    "-time": (usage.c.started_at_us, -1),
    "-cost": (func.coalesce(usage.c.cost, -1), -1),
    "cost": (func.coalesce(usage.c.cost, 1 << 62), 1),
    "-ttft": (func.coalesce(usage.c.ttft_ms, -1), -1),
    "ttft": (func.coalesce(usage.c.ttft_ms, 1 << 30), 1),
    "-duration": (usage.c.duration_ms, -1),
    "duration": (usage.c.duration_ms, 1),
}
BY_TIME = "-time"
SHOWN = (
    *("id", "started_at_us", "team_id", "key_id", "route", "backend", "vendor", "model", "outcome", "status", "error", "cost", "saved"),
    *("streamed", "surface", "kind", "tag", "estimated", "ttft_ms", "duration_ms", "marks"),
    *CLASSES,
)
INPUTS, OUTPUTS = CLASSES[:6], CLASSES[6:]
_FIRST = UUID(int=0)


class Place(Struct, array_like=True, frozen=True):
    """Where in an order a page begins: after the row of this value and id."""

    order: str
    value: int
    id: bytes


class Page(Struct, frozen=True, kw_only=True):
    """rows: by column of SHOWN, with team, key, key_name, attempts (how many), adjusted (nano-USD booked later, None = nothing was),
    cost_now (with it), tokens_in, tokens_out, failed_over, hedged and missed. after: the cursor of what follows, "" = nothing does.
    searched_from_us: rows before it were not looked at."""

    rows: list[dict[str, Any]]
    after: str
    searched_from_us: int


def order_of(text: str) -> str:
    """The order that a query names; InvalidRequest for another."""
    chosen = text or BY_TIME
    if chosen not in ORDERS:
        raise InvalidRequest(f"sort: use {', '.join(ORDERS)}.", param="sort")
    return chosen


def cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).rstrip(b"=").decode()


def place_of(text: str, order: str) -> Place | None:
    """The place of a cursor; InvalidRequest for one that is none, or of another order."""
    if not text:
        return None
    try:
        place = msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Place)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidRequest("after: this is no cursor; take the one of the page before.", param="after") from error
    if place.order != order or len(place.id) != 16 or not -(1 << 62) <= place.value <= 1 << 62:
        raise InvalidRequest("after: this cursor is of another order; begin at the first page.", param="after")
    return place


async def page(
    connection: AsyncConnection, wanted: Wanted, order: str, place: Place | None, most: int = LOOKED_AT, size: int = PAGE
) -> Page:
    """The next `size` rows in an order. most: rows to look at."""
    until_us = wanted.until_us
    if place is not None and order == BY_TIME:
        until_us = min(until_us, place.value + 1)
    from_us = wanted.from_us
    if wanted.request is None:
        from_us = await looked_from(connection, (wanted.from_us, until_us), most, wanted.teams, wanted.marked)
    found = (await connection.execute(_statement(wanted, order, place, (from_us, until_us), size + 1))).mappings().all()
    rows = [dict(one) for one in found[:size]]
    after = ""
    if len(found) > size:
        after = cursor(Place(order, int(rows[-1]["place"]), rows[-1]["id"].bytes))
    elif order == BY_TIME and from_us > wanted.from_us:
        after = cursor(Place(order, from_us, _FIRST.bytes))
    await name_rows(connection, rows)
    return Page(rows=rows, after=after, searched_from_us=from_us)


def _statement(wanted: Wanted, order: str, place: Place | None, stretch: tuple[int, int], limit: int) -> Select[Any]:
    """The rows of a page, with the one more that `limit` holds. By time, of a few teams: the newest of each, so that nobody else's rows are
    looked at."""
    column, sign = ORDERS[order]
    row = usage.c
    conditions = [row.started_at_us >= stretch[0], row.started_at_us < stretch[1], *wanted.on_rows()]
    if place is not None:
        conditions.append(_beyond(column, sign, place))
    chosen = select(*(row[name] for name in SHOWN), column.label("place")).where(*conditions)
    if wanted.request is None:
        chosen = walked(chosen, wanted.marked, wanted.teams)
    by = (column.desc(), row.id.desc()) if sign < 0 else (column, row.id)
    among = wanted.teams
    if order != BY_TIME or wanted.marked or among is None or not 1 < len(among) <= TEAMS_APART:
        return chosen.order_by(*by).limit(limit)
    each = [chosen.where(row.team_id == team).order_by(*by).limit(limit).subquery() for team in sorted(among)]
    every = union_all(*(select(one) for one in each)).subquery()
    return select(every).order_by(every.c.place.desc(), every.c.id.desc()).limit(limit)


def walked(statement: Select[Any], marked: bool, among: frozenset[int] | None) -> Select[Any]:
    """Along which index SQLite goes, which keeps no statistics by itself: always one by time."""
    if marked:
        name = "ix_usage_marked"
    elif among is not None and 0 < len(among) <= TEAMS_APART:
        name = "ix_usage_team_id_started_at_us"
    else:
        name = "ix_usage_started_at_us"
    return statement.with_hint(usage, f"INDEXED BY {name}", "sqlite")


def _beyond(column: ColumnElement[int], sign: int, place: Place) -> ColumnElement[bool]:
    last = UUID(bytes=place.id)
    if sign < 0:
        return and_(column <= place.value, or_(column < place.value, usage.c.id < last))
    return and_(column >= place.value, or_(column > place.value, usage.c.id > last))


async def looked_from(connection: AsyncConnection, stretch: tuple[int, int], most: int, among: frozenset[int] | None, marked: bool) -> int:
    """The instant from which on there are at most about `most` rows of the stretch to be looked at. among: rows of these teams, None = of
    all; marked: marked ones alone."""
    if among is None or not 0 < len(among) <= TEAMS_APART:
        return await _newest(connection, stretch, most, None, marked)
    each = [await _newest(connection, stretch, most // len(among), team, marked) for team in sorted(among)]
    return max(each)


async def _newest(connection: AsyncConnection, stretch: tuple[int, int], most: int, team: int | None, marked: bool) -> int:
    at = usage.c.started_at_us
    found = select(at).where(at >= stretch[0], at < stretch[1])
    if marked:
        found = found.where(marked_rows())
    if team is not None:
        found = found.where(usage.c.team_id == team)
    found = walked(found, marked, None if team is None else frozenset((team,)))
    edge = (await connection.execute(found.order_by(at.desc()).limit(1).offset(most))).scalar_one_or_none()
    return stretch[0] if edge is None else int(edge)


async def name_rows(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
    """Add what people call the team and key of each row, how often it was tried, and what was booked to it later."""
    ids = [one["id"] for one in rows]
    if not ids:
        return
    called = dict(await _pairs(connection, select(teams.c.id, teams.c.name).where(teams.c.id.in_({one["team_id"] for one in rows}))))
    keys = {
        key.id: key
        for key in await connection.execute(
            select(api_keys.c.id, api_keys.c.public, api_keys.c.name).where(api_keys.c.id.in_({one["key_id"] for one in rows}))
        )
    }
    tried = select(attempts.c.request_id, func.count()).where(attempts.c.request_id.in_(ids)).group_by(attempts.c.request_id)
    beside = select(adjustments.c.usage_id, func.sum(adjustments.c.delta)).where(adjustments.c.usage_id.in_(ids))
    times = dict(await _pairs(connection, tried))
    later = dict(await _pairs(connection, beside.group_by(adjustments.c.usage_id)))
    for one in rows:
        key = keys.get(one["key_id"])
        one["team"] = called.get(one["team_id"], "")
        one["key"], one["key_name"] = ("", "") if key is None else (key.public, key.name)
        one["attempts"] = times.get(one["id"], 0)
        one["adjusted"] = int(later[one["id"]]) if one["id"] in later else None
        one["cost_now"] = one["adjusted"] if one["cost"] is None else one["cost"] + (one["adjusted"] or 0)
        one["failed_over"], one["hedged"], one["missed"] = (bool(one["marks"] & bit) for bit in (FAILED_OVER, HEDGED, MISSED))
        one["tokens_in"] = sum(one[name] for name in INPUTS)
        one["tokens_out"] = sum(one[name] for name in OUTPUTS)


async def _pairs(connection: AsyncConnection, statement: Any) -> list[tuple[Any, Any]]:
    return [(row[0], row[1]) for row in await connection.execute(statement)]
