"""Rate limits of a team and of its keys: listed, set and lifted."""

from __future__ import annotations

from typing import Any, Protocol

from litestar import Response, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access, rates
from gateway.access import EVERYONE, TEAM_EDIT
from gateway.catalog import Catalog
from gateway.console import forms, shell
from gateway.console.shell import Asked
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.rates import Limit
from gateway.views import team as views
from gateway.views.team import LimitsView

FIGURES = ("rpm", "tpm", "parallel")
FIELDS = {"scope": "key", "scope_kind": "key", "team": "key", "model": "route"}  # as the form calls them
KEYS_MAX = 200  # to choose from; others are set by command or call
SHOWN_MAX = 500  # limits of one page


class Limiting(Protocol):
    """What this page needs of a worker's parts."""

    engine: AsyncEngine
    catalog: Catalog


def handlers(parts: Limiting) -> list[BaseRouteHandler]:
    @get("/teams/{team:str}/limits", access=EVERYONE)
    async def listed(request: Asked, team: FromPath[str]) -> Response[str]:
        return await _page(parts, request, team)

    @post("/teams/{team:str}/limits", access=TEAM_EDIT)
    async def set_limit(request: Asked, team: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            await rates.set_limit(parts.engine, asked(team, sent), actor=access.actor(request))
        except GatewayError as error:
            return await _page(parts, request, team, sent, shell.of_form(error))
        return shell.redirect(f"/console/teams/{team}/limits", request)

    @post("/teams/{team:str}/limits/{limit_id:int}/lift", access=TEAM_EDIT)
    async def lift(request: Asked, team: FromPath[str], limit_id: FromPath[int]) -> Response[str]:
        await rates.delete_limit(parts.engine, limit_id, actor=access.actor(request))
        return shell.redirect(f"/console/teams/{team}/limits", request)

    return [listed, set_limit, lift]


def asked(team: str, sent: dict[str, str]) -> rates.NewLimit:
    """What a form asks for: key "" = the team, route "" = every one. InvalidRequest names the field that is no number."""
    key = sent.get("key", "")
    kind, scope = ("key", key) if key else ("team", team)
    return rates.NewLimit(scope_kind=kind, scope=scope, model=sent.get("route") or None, **{name: _figure(sent, name) for name in FIGURES})


def _figure(sent: dict[str, str], name: str) -> int | None:
    text = sent.get(name, "").replace(",", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > len(str(rates.FIGURE_MAX)):
        raise InvalidRequest(f"{name}: write a whole number up to {rates.FIGURE_MAX:,}, or nothing for no limit.", param=name)
    return int(text)


async def _page(
    parts: Limiting, request: Asked, name: str, sent: dict[str, str] | None = None, error: GatewayError | None = None
) -> Response[str]:
    who = access.actor(request)
    view = await views.limits(parts.engine, who, name)
    begun = {} if sent is not None else _begun(view, str(request.query_params.get("limit", "")))
    return await shell.page(
        request,
        who,
        "team_limits.html",
        title=f"Rate limits of {name}",
        status=200 if error is None else error.status,
        view=view,
        shown=view.limits[:SHOWN_MAX],
        reads_members=who.role in TEAM_EDIT,
        keys=_choices(view),
        routes=_routes(parts.catalog, sent or begun),
        sent=sent or begun,
        errors=forms.wrong(error, FIELDS),
    )


def _begun(view: LimitsView, number: str) -> dict[str, str]:
    """What the form begins with where one of the limits is to be changed: its own figures. NotFound for one that is not of this page."""
    if not number:
        return {}
    one = next((one for one in view.limits if str(one.id) == number), None)
    if one is None:
        raise NotFound(f"There is no limit {number[:20]} here.", param="limit")
    return {"key": one.scope if one.scope_kind == "key" else "", "route": one.model or "", **{name: _text(one, name) for name in FIGURES}}


def _text(one: Limit, name: str) -> str:
    figure = getattr(one, name)
    return "" if figure is None else str(figure)


def _choices(view: LimitsView) -> list[tuple[str, str]]:
    """Whom the actor may limit, for the form: (value, label), the newest keys."""
    newest = list(view.keys.values())[: -KEYS_MAX - 1 : -1]
    keys = [(one.public, f"Key {one.name or 'without a name'}, tw-{one.public}") for one in newest]
    return ([("", "The team, all its keys together")] if view.whole else []) + keys


def _routes(catalog: Catalog, sent: dict[str, Any]) -> list[tuple[str, str]]:
    names = list(dict.fromkeys([*catalog.routes, *([sent["route"]] if sent.get("route") else [])]))
    return [("", "every route"), *((name, name) for name in names)]
