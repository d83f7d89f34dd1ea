"""`/admin/overview`: decodes what was asked, calls, encodes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from litestar import Request, get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery

from gateway import access
from gateway.views import overview as views
from gateway.views import query as queries


def handlers(parts: views.Watched) -> list[BaseRouteHandler]:
    @get("/overview", summary="What was spent and saved, how it went, and what needs a hand, of the teams you see", access=access.EVERYONE)
    async def overview(
        request: Request[Any, Any, Any],
        range: FromQuery[str] = "24h",  # noqa: A002 - its name outside
        tz: FromQuery[str] = "UTC",
    ) -> dict[str, Any]:
        pairs = [(name, str(value)) for name, value in request.query_params.multi_items()]
        asked = queries.read(pairs, time.time_ns() // 1000)
        since_us, until_us = asked.buckets
        told = await views.overview(
            parts, views.Asked(since_us=since_us, until_us=until_us, tz=asked.tz, scope=access.actor(request).scope)
        )
        return await asyncio.to_thread(views.document, told)

    return [overview]
