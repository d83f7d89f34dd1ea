"""`/admin/requests` and `/admin/decisions`: what was asked, what it cost and why it went where it went. Decodes, calls, encodes."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from litestar import Request, get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath

from gateway import access
from gateway.api.parameters import known
from gateway.catalog import Catalog
from gateway.errors import NotFound
from gateway.views import explorer, under_way
from gateway.views import query as queries
from gateway.views import request as view
from gateway.views.explorer_filter import NAMES


class Explored(under_way.Worker, Protocol):
    """What these calls need of a worker's parts."""

    catalog: Catalog


def handlers(parts: Explored) -> list[BaseRouteHandler]:
    """For a router that puts the actor into the request."""

    @get(
        "/requests",
        summary="Requests by filters, 50 at a time, newest first, with counts by time, outcome, team, route and backend",
        description=f"Filters: {', '.join(NAMES)}; time: range, or from and to; tz. Repeat a name for any of its values.",
        access=access.WATCH,
    )
    async def list_requests(request: Request[Any, Any, Any]) -> dict[str, Any]:
        pairs = [(name, str(value)) for name, value in request.query_params.multi_items()]
        asked = queries.read(pairs, time.time_ns() // 1000, NAMES)
        found = await explorer.listing(parts.engine, access.actor(request), asked)
        return await asyncio.to_thread(explorer.document, found, asked)

    @get("/requests/{request_id:str}", summary="One request: its row, attempts, corrections, bill and budgets", access=access.WATCH)
    async def one_request(request_id: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, Any]:
        known(request, ())
        return view.document(await _found(parts, request, request_id))

    @get(
        "/decisions/{request_id:str}",
        summary="Why a request went where it went: every candidate with its prediction and what was against it, computed again",
        access=access.WATCH,
    )
    async def one_decision(request_id: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, Any]:
        known(request, ())
        return view.decision_document(await _found(parts, request, request_id))

    return [list_requests, one_request, one_decision]


async def _found(parts: Explored, asked: Request[Any, Any, Any], request_id: str) -> view.Found:
    actor, wanted = access.actor(asked), view.wanted_id(request_id)
    try:
        return await view.find(parts.engine, actor, wanted, parts.catalog)
    except NotFound:
        under = await under_way.find(parts, actor, wanted)
        if under is None:
            raise
        raise NotFound(under.told, param="id") from None
