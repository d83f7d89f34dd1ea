"""One's own account: another password, and signing out everywhere."""

from __future__ import annotations

from litestar import Response, get, post
from litestar.handlers import BaseRouteHandler

from gateway import access
from gateway.access import EVERYONE
from gateway.console import cookies, forms, shell
from gateway.console.login import Doorman, address
from gateway.console.shell import Asked
from gateway.errors import GatewayError, InvalidRequest

PASSWORDS = ("old", "new", "again")


def handlers(doorman: Doorman) -> list[BaseRouteHandler]:
    """Behind the guard."""

    @get("/account", access=EVERYONE)
    async def account(request: Asked) -> Response[str]:
        return await _page(request)

    @post("/account", access=EVERYONE)
    async def change_password(request: Asked) -> Response[str]:
        sent = await forms.sent(request, exact=PASSWORDS)
        try:
            if sent.get("new") != sent.get("again"):
                raise InvalidRequest("The two new passwords differ: write the same one twice.", param="again")
            token = await doorman.sessions.change_password(
                access.actor(request), sent.get("old", ""), sent.get("new", ""), address(request)
            )
        except GatewayError as error:
            return await _page(request, shell.of_form(error))
        return doorman.welcome(request, token, "/console/account")

    @post("/account/sign-out", access=EVERYONE)
    async def sign_out_everywhere(request: Asked) -> Response[str]:
        await doorman.sessions.end_all(access.actor(request))
        answer = shell.redirect("/console/login", request)
        answer.set_cookie(cookies.made(request, "", always=doorman.always, max_age_s=0))
        return answer

    return [account, change_password, sign_out_everywhere]


async def _page(request: Asked, error: GatewayError | None = None) -> Response[str]:
    who = access.actor(request)
    field = None if error is None else error.param or ("old" if error.code == "wrong_password" else "")
    return await shell.page(
        request,
        who,
        "account.html",
        title="Your account",
        status=200 if error is None else error.status,
        errors={} if error is None else {field: error.message},
    )
