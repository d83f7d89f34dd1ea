"""`/admin/ledger`: its rows as a file, and what is said afterwards about requests whose end is not known. Checks, decodes, calls."""

from __future__ import annotations

from typing import Annotated, Any, Protocol
from uuid import UUID

from litestar import Request, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath, FromQuery
from litestar.response import Stream
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import resolving
from gateway.access import ADMINS, MONEY, actor
from gateway.api.parameters import known
from gateway.errors import InvalidRequest
from gateway.instants import date_us
from gateway.money import corrections, retention
from gateway.money.pricing import nanousd, usd

EVER_US = 1 << 62

Asked = Request[Any, Any, Any]


class Booking(Protocol):
    """What these calls need of a worker's parts."""

    engine: AsyncEngine


class Unknown(Struct, frozen=True, kw_only=True):
    """A request whose process died in the middle. worst_usd: what is booked for it, null = unpriced."""

    id: UUID
    started_at_us: int
    team: str
    route: str
    backend: str
    worst_usd: str | None


class UnknownList(Struct, frozen=True):
    data: list[Unknown]


class Billed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """usd: a decimal number as a string, what the vendor billed."""

    usd: str


class Resolved(Struct, frozen=True, kw_only=True):
    """adjusted_usd: what was booked beside the row, the difference to what had been booked."""

    id: UUID
    usd: str
    adjusted_usd: str


def handlers(parts: Booking) -> list[BaseRouteHandler]:
    """For a guarded router."""

    @get("/ledger/unknowns", summary="Requests whose end is not known, booked at their worst case, oldest first", access=MONEY)
    async def unknowns(request: Asked) -> UnknownList:
        known(request, ())
        return UnknownList(list(map(_unknown, await corrections.unknowns(parts.engine))))

    @post("/ledger/unknowns/{request_id:str}", status_code=200, summary="Book what an unknown request really cost", access=ADMINS)
    async def resolve(request: Asked, request_id: FromPath[str], data: Annotated[Billed, Body()]) -> Resolved:
        usage_id, cost = _id(request_id), _nanousd(data.usd)
        delta = await resolving.resolve(parts.engine, usage_id, cost, actor=actor(request))
        return Resolved(id=usage_id, usd=usd(cost), adjusted_usd=usd(delta))

    return [_rows(parts, "csv", "text/csv"), _rows(parts, "jsonl", "application/jsonl"), unknowns, resolve]


def _rows(parts: Booking, shape: str, media_type: str) -> BaseRouteHandler:
    @get(f"/ledger/rows.{shape}", summary="All rows, oldest first, piece by piece", access=MONEY, media_type=media_type)
    async def rows(request: Asked, since: FromQuery[str] = "", until: FromQuery[str] = "") -> Stream:
        known(request, ("since", "until"))
        first, last = (date_us(text, name) if text else None for name, text in (("since", since), ("until", until)))
        if first is not None and last is not None and first >= last:
            raise InvalidRequest("since: it is not before until.", param="since")
        pieces = retention.export(parts.engine, shape, first or 0, EVER_US if last is None else last)
        headers = {"content-disposition": f'attachment; filename="tollway-ledger.{shape}"', "cache-control": "no-store"}
        return Stream(pieces, headers=headers)

    return rows


def _unknown(one: corrections.Unknown) -> Unknown:
    worst = None if one.worst is None else usd(one.worst)
    return Unknown(id=one.id, started_at_us=one.started_at_us, team=one.team, route=one.route, backend=one.backend, worst_usd=worst)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidRequest(f"'{text[:80]}' is no id of a request.", param="id") from error


def _nanousd(text: str) -> int:
    try:
        return nanousd(text, "usd")
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param="usd") from error
