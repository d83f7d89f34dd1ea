"""What the calls of `/admin` read from an address and a body: names that must be known, JSON that can be read. Knows no call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler

from gateway.access import Connection
from gateway.errors import InvalidRequest


class Asked(Request[Any, Any, Any]):
    """A request whose body may be too deep to read: that is the caller's mistake."""

    async def json(self) -> Any:
        try:
            return await super().json()
        except RecursionError as error:
            raise InvalidRequest("The body cannot be read as JSON: it is nested too deeply.", code="invalid_json") from error


def known(request: Connection, names: Collection[str]) -> None:
    """A query parameter that is not understood may be a filter that was meant: never ignored."""
    for name in request.query_params:
        if name not in names:
            raise InvalidRequest(f"There is no parameter '{name[:80]}' here.", param=name[:80])


async def no_parameters(connection: Connection, handler: BaseRouteHandler) -> None:
    """For a guarded router: who changes something says it in path and body; a parameter such as dry_run=1 was meant to hold it back.

    A handler that takes some names them when it is made: parameters=("id",).
    """
    if connection.scope.get("method") != "GET":
        known(connection, handler.opt.get("parameters", ()))
