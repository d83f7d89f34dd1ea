"""The overview: is anything wrong, what was spent, is it fast."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.handlers import BaseRouteHandler

from gateway import access
from gateway.console import shell


def handlers(parts: Any) -> list[BaseRouteHandler]:
    @get("/overview", access=access.EVERYONE)
    async def overview(request: Request[Any, Any, Any]) -> Response[str]:
        query = shell.query(request)
        return await shell.page(
            request, access.actor(request), "overview.html", title="Overview", query=query, subtitle=shell.spelled(query)
        )

    return [overview]
