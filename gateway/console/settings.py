"""Settings: which file is in force on each worker, a button to read it again, what is refused and why, prices and missing ones."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.handlers import BaseRouteHandler

from gateway import access, prices
from gateway.console import shell
from gateway.errors import GatewayError, InvalidRequest
from gateway.views import configuration

Req = Request[Any, Any, Any]


def handlers(parts: Any) -> list[BaseRouteHandler]:
    @get("/settings", access=access.MONEY)
    async def settings(request: Req) -> Response[str]:
        return await _page(request, parts)

    @post("/settings/reload", status_code=200, access=access.ADMINS)
    async def reload(request: Req) -> Response[str]:
        try:
            done = await configuration.reload(parts, access.actor(request), parts.engine)
        except InvalidRequest as error:  # the page itself says why, from the last outcome
            return await _page(request, parts, status=error.status)
        except GatewayError as error:
            return await _page(request, parts, wrong=error.message, status=error.status)
        return await _page(request, parts, done=done)

    return [settings, reload]


async def _page(request: Req, parts: Any, **more: Any) -> Response[str]:
    """Finance sees the prices alone."""
    who = access.actor(request)
    admin = who.role == access.ADMIN
    priced = await prices.of_backends(parts.engine, parts.file)
    values: dict[str, Any] = {
        "admin": admin,
        "config": await configuration.config(parts) if admin else None,
        "priced": priced,
        "rates": {one.backend: prices.rates_of(one.price) for one in priced if one.price is not None},
        "missing": [one.backend for one in priced if one.price is None and one.hourly is None],
        "console": parts.settings.console,
        "query": shell.query(request),
        "wrong": "",
        "done": None,
    }
    return await shell.page(request, who, "settings.html", title="Settings", **(values | more))
