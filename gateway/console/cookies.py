"""The console's cookies: the session, theme and zone. CSRF tokens are made from the session's. Knows no session's meaning.

The session's cookie is for HTTP alone and same-site. Over TLS its name begins with __Host-, so no other host and no plain page can set it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie

from gateway.access import Actor
from gateway.errors import Forbidden
from gateway.money.windows import zone

NAME = "tollway_session"
THEME, ZONE = "tollway_theme", "tollway_tz"
CSRF_HEADER, CSRF_FIELD = "x-csrf-token", "csrf"
_TOKEN, _ACTOR = "tollway.session", "tollway.signed_in"
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
Connection = ASGIConnection[Any, Any, Any, Any]


def secure(connection: Connection, always: bool) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy before us. Who lies about it keeps only his own browser from signing in."""
    return always or connection.scope.get("scheme") == "https" or connection.headers.get("x-forwarded-proto", "") == "https"


def token_of(connection: Connection, always: bool) -> str:
    """The session's token as the browser sent it, "" without one. Over TLS the plain cookie is not looked at."""
    return connection.cookies.get(_name(connection, always), "")


def _name(connection: Connection, always: bool) -> str:
    return f"__Host-{NAME}" if secure(connection, always) else NAME


def made(connection: Connection, token: str, *, always: bool, max_age_s: int) -> Cookie:
    """The cookie of a new session; max_age_s 0 takes it away."""
    return Cookie(
        key=_name(connection, always),
        value=token,
        path="/",
        max_age=max_age_s,
        httponly=True,
        samesite="lax",
        secure=secure(connection, always),
    )


def keep(connection: Connection, token: str, who: Actor) -> None:
    """The guard has found whose session it is: what forms of this page are bound to, and whose name stands on a refusal."""
    connection.scope["state"][_TOKEN] = token
    connection.scope["state"][_ACTOR] = who


def actor_of(connection: Connection) -> Actor | None:
    """Who looks; nobody where the guard has not found out."""
    found: Actor | None = connection.scope["state"].get(_ACTOR)
    return found


def csrf_of(connection: Connection) -> str:
    """What every changing form of this session must send; "" without a session. It says nothing of the session's token."""
    token = connection.scope["state"].get(_TOKEN, "")
    return hmac.digest(token.encode(), b"tollway csrf", hashlib.sha256).hex() if token else ""


def same_origin(connection: Connection) -> bool:
    """Whether the browser says that the request comes from a page of ours."""
    origin = connection.headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc == connection.headers.get("host", "")
    return connection.headers.get("sec-fetch-site") in ("same-origin", "none")


async def check(request: Request[Any, Any, Any]) -> None:
    """Forbidden for a changing request that does not come from a form of this session. A header, or the form's hidden field."""
    if request.method in SAFE:
        return
    if request.headers.get("origin") is not None and not same_origin(request):
        raise Forbidden("This form was sent from another site: nothing was changed.")
    sent = request.headers.get(CSRF_HEADER, "") or str((await request.form()).get(CSRF_FIELD, ""))
    wanted = csrf_of(request)
    if not wanted or not hmac.compare_digest(sent.encode(), wanted.encode()):
        raise Forbidden("This page is no longer current: nothing was changed. Load it again and repeat what you did.")


def theme_of(connection: Connection) -> str:
    """light or dark as chosen; "" is what the system says."""
    chosen = connection.cookies.get(THEME, "")
    return chosen if chosen in ("light", "dark") else ""


def zone_of(connection: Connection) -> str:
    """The browser's zone as it told us, else UTC."""
    told = connection.cookies.get(ZONE, "").replace("%2F", "/")
    try:
        return str(zone(told)) if 0 < len(told) <= 64 else "UTC"
    except ValueError:
        return "UTC"
