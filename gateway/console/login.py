"""Signing in and out: with e-mail and password, or with an API key that has a role. Knows cookies; sessions.py knows sessions."""

from __future__ import annotations

from litestar import Response, get, post
from litestar.handlers import BaseRouteHandler

from gateway.access import EVERYONE, Actor
from gateway.console import cookies, forms, shell
from gateway.console.shell import Asked
from gateway.errors import Forbidden, GatewayError, InvalidKey, InvalidRequest
from gateway.sessions import Sessions

HOME = "/console/overview"
KINDS = ("password", "key")
PASSWORDS = ("password", "again")


class SignedOut(InvalidKey):
    """Nobody is signed in: the console answers with the login page."""


class Doorman:
    """Finds who is signed in, and makes and takes away the session's cookie. always: cookies are for TLS alone."""

    def __init__(self, sessions: Sessions, always: bool) -> None:
        self.sessions = sessions
        self.always = always

    async def find(self, connection: cookies.Connection) -> Actor:
        """For the guard. SignedOut without a session."""
        token = cookies.token_of(connection, self.always)
        who = await self.sessions.actor(token) if token else None
        if who is None:
            raise SignedOut("Sign in first.")
        cookies.keep(connection, token, who)
        return who

    def welcome(self, request: Asked, token: str, path: str) -> Response[str]:
        """On to a page, with a new session's cookie."""
        answer = shell.redirect(path, request)
        answer.set_cookie(cookies.made(request, token, always=self.always, max_age_s=self.sessions.seconds))
        return answer


def open_handlers(doorman: Doorman) -> list[BaseRouteHandler]:
    """Open to everybody."""

    @get("/login")
    async def form(request: Asked) -> Response[str]:
        return await _form(request, {})

    @post("/login")
    async def sign_in(request: Asked) -> Response[str]:
        sent = await _sent(request)
        try:
            token = await _token(doorman.sessions, sent, address(request))
        except GatewayError as error:
            return await _form(request, sent, shell.of_form(error))
        return doorman.welcome(request, token, _next(sent.get("next", "")))

    @get("/welcome")
    async def set_password(request: Asked) -> Response[str]:
        return await _welcome(request, str(request.query_params.get("link", "")))

    @post("/welcome")
    async def password_set(request: Asked) -> Response[str]:
        sent = await _sent(request)
        try:
            if sent.get("password") != sent.get("again"):
                raise InvalidRequest("The two passwords differ: write the same one twice.", param="again")
            token = await doorman.sessions.with_link(sent.get("link", ""), sent.get("password", ""), address(request))
        except GatewayError as error:
            return await _welcome(request, sent.get("link", ""), shell.of_form(error))
        return doorman.welcome(request, token, HOME)

    return [form, sign_in, set_password, password_set]


def handlers(doorman: Doorman) -> list[BaseRouteHandler]:
    """Behind the guard."""

    @post("/logout", access=EVERYONE)
    async def sign_out(request: Asked) -> Response[str]:
        await doorman.sessions.end(cookies.token_of(request, doorman.always))
        answer = shell.redirect("/console/login", request)
        answer.set_cookie(cookies.made(request, "", always=doorman.always, max_age_s=0))
        return answer

    return [sign_out]


async def _sent(request: Asked) -> dict[str, str]:
    """The form's fields. There is no session yet that a token could be bound to, so where it comes from must be said by the browser."""
    if not cookies.same_origin(request):
        raise Forbidden("This form was sent from another site.")
    return await forms.sent(request, exact=PASSWORDS)


def address(request: Asked) -> str:
    """Where a try to sign in comes from, for the throttle."""
    return request.client.host if request.client is not None else ""


async def _token(sessions: Sessions, sent: dict[str, str], address: str) -> str:
    if sent.get("kind") == "key":
        if not sent.get("key", "").strip():
            raise InvalidRequest("Paste an API key: it looks like tw-….", param="key")
        return await sessions.with_key(sent["key"])
    for name, word in (("email", "your e-mail address"), ("password", "your password")):
        if not sent.get(name):
            raise InvalidRequest(f"Write {word}.", param=name)
    return await sessions.with_password(sent["email"], sent["password"], address)


async def _welcome(request: Asked, link: str, error: GatewayError | None = None) -> Response[str]:
    status = 200 if error is None else error.status
    link = link[: forms.FIELD_MAX]
    return await shell.page(request, None, "welcome.html", title="Set your password", status=status, link=link, error=error)


async def _form(request: Asked, sent: dict[str, str], error: GatewayError | None = None) -> Response[str]:
    kind = sent.get("kind") or request.query_params.get("with", "password")
    return await shell.page(
        request,
        None,
        "login.html",
        title="Sign in",
        status=200 if error is None else error.status,
        kind=kind if kind in KINDS else "password",
        next=_next(sent.get("next") or str(request.query_params.get("next", ""))),
        email=sent.get("email", "")[:300],
        error=error,
    )


def _next(path: str) -> str:
    """Where to go after signing in: only ever a page of ours."""
    odd = any(part in path for part in ("\\", "//", ".."))
    plain = path.startswith("/console/") and path.isprintable() and len(path) <= 2000 and not odd
    return HOME if not plain or path.startswith("/console/log") else path
