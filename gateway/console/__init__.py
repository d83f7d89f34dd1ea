"""The console: pages for people, over the same plain functions as /admin. This file collects the pages and tells what goes wrong as a page.

Closed by default: everything but the sign-in and the static files stands behind one guard, and every change must come from a form of the
session.
"""

from __future__ import annotations

from typing import Any, Protocol, cast
from urllib.parse import quote

from litestar import Request, Response, Router, get
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access
from gateway.auth import Keyring
from gateway.catalog import Catalog
from gateway.console import (
    account,
    assets,
    audit_log,
    backends,
    budgets,
    cookies,
    login,
    overview,
    playground,
    reports,
    request,
    requests,
    routes,
    settings,
    shell,
    team_limits,
    team_ways,
    teams,
)
from gateway.errors import Forbidden, GatewayError, Internal, NotFound, NotReady
from gateway.routing.router import Router as RoutingRouter
from gateway.sessions import Sessions
from gateway.settings import ConsoleSettings, Settings
from gateway.telemetry import Telemetry
from gateway.views.attention import Attention

BODY_MAX_BYTES = 256 * 1024  # of one form
FOREVER = "public, max-age=31536000, immutable"


class Watched(Protocol):
    """What the pages need of a worker's parts."""

    settings: Settings
    engine: AsyncEngine
    keyring: Keyring
    telemetry: Telemetry
    attention: Attention
    catalog: Catalog
    router: RoutingRouter


def handlers(parts: Any) -> list[ControllerRouterHandler]:
    """The routers over one worker's parts; none where the console is switched off."""
    chosen: ConsoleSettings = parts.settings.console
    if not chosen.enabled:
        return []
    sessions = Sessions(parts.engine, parts.keyring, chosen.session_hours)
    doorman = login.Doorman(sessions, chosen.secure_cookies)
    pages = (
        *(overview, requests, request, backends, routes, reports, teams, team_limits, team_ways, budgets, playground),
        *(audit_log, settings),
    )
    own = [*login.handlers(doorman), *account.handlers(doorman)]
    return routers(parts, doorman, [*own, *(handler for page in pages for handler in page.handlers(parts))])


def routers(parts: Watched, doorman: login.Doorman, pages: list[BaseRouteHandler]) -> list[ControllerRouterHandler]:
    """`pages` behind the guard, beside what is open to everybody."""

    async def from_a_form(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if isinstance(connection, Request):
            await cookies.check(connection)

    async def with_counts(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        cast(dict[str, Any], connection.scope)[shell.COUNTS] = lambda who: parts.attention.counts(parts, who)

    teller = _teller(parts)
    told = {GatewayError: teller, HTTPException: teller, SQLAlchemyError: teller, Exception: teller}
    guarded = Router(
        path="/console",
        guards=[access.guard(doorman.find), from_a_form, with_counts],
        route_handlers=[*pages, _missing()],
        exception_handlers=told,  # type: ignore[arg-type]
        request_max_body_size=BODY_MAX_BYTES,
        include_in_schema=False,
    )
    opened = Router(
        path="/console",
        route_handlers=[*login.open_handlers(doorman), _static()],
        exception_handlers=told,  # type: ignore[arg-type]
        request_max_body_size=BODY_MAX_BYTES,
        include_in_schema=False,
    )

    @get(["/", "/console"], include_in_schema=False)
    async def home() -> Response[str]:
        return Response("", status_code=302, media_type="text/html", headers=shell.HEADERS | {"location": login.HOME})

    return [guarded, opened, home]


def _static() -> BaseRouteHandler:
    @get("/static/{version:str}/{name:path}")
    async def static(version: FromPath[str], name: FromPath[str]) -> Response[bytes]:
        found = assets.files().get(name.lstrip("/"))
        if found is None:
            raise NotFound("There is no such file.")
        kept = FOREVER if version == assets.version() else "no-cache"  # an older page of another worker asks for what it knew
        kind = assets.TYPES[f".{name.rpartition('.')[2]}"]
        return Response(found, media_type=kind, headers=shell.HEADERS | {"cache-control": kept})

    return static


def _missing() -> BaseRouteHandler:
    @get("/{rest:path}", access=access.EVERYONE)
    async def missing(rest: FromPath[str]) -> Response[str]:
        raise NotFound(f"There is no page {rest[:80]} here.")

    return missing


def _teller(parts: Watched) -> Any:
    """What went wrong, as a page that keeps the bars; for a live part only the status, so that the page stays as it is."""

    def tell(request: Request[Any, Any, Any], raised: Exception) -> Response[str]:
        error = _error(parts, request, raised)
        if isinstance(error, login.SignedOut):
            return _to_login(request)
        if request.headers.get("hx-request") and "/-/" in request.url.path:
            return Response("", status_code=error.status, media_type="text/html", headers=shell.HEADERS | {"hx-reswap": "none"})
        open_to = request.route_handler.opt.get("access", frozenset())
        return shell.page_at_once(
            request,
            cookies.actor_of(request),
            "problem.html",
            title={403: "Not open to you", 404: "Not found", 400: "Not understood"}.get(error.status, "Not answered"),
            status=error.status,
            error=error,
            roles=[shell.ROLE_WORDS[role] for role in access.ROLES if role in open_to] if error.code == "role_required" else [],
        )

    return tell


def _error(parts: Watched, request: Request[Any, Any, Any], raised: Exception) -> GatewayError:
    if isinstance(raised, GatewayError):
        return raised
    if isinstance(raised, HTTPException):
        return {404: NotFound, 403: Forbidden}.get(raised.status_code, GatewayError)(raised.detail, status=raised.status_code)
    parts.telemetry.fault(request.url.path, raised)
    if isinstance(raised, SQLAlchemyError | OSError):
        return NotReady("The database does not answer. Requests go on; what they cost is written down when it is back.")
    return Internal("Something broke in here. The gateway's log says what.")


def _to_login(request: Request[Any, Any, Any]) -> Response[str]:
    """The login page, and back afterwards. A live part asks for the whole page instead."""
    if request.headers.get("hx-request"):
        return Response("", status_code=401, media_type="text/html", headers=shell.HEADERS | {"hx-refresh": "true"})
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = f"?next={quote(path, safe='')}" if request.method == "GET" and path != login.HOME else ""
    return Response("", status_code=302, media_type="text/html", headers=shell.HEADERS | {"location": f"/console/login{back}"})
