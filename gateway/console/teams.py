"""Teams and keys: what a team can do and what is left; its admins make, rotate, block and extend keys and invite members by themselves."""

from __future__ import annotations

from typing import Any, Protocol

from litestar import Response, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access, people
from gateway.access import ADMINS, EVERYONE, TEAM_EDIT
from gateway.auth import load_secrets
from gateway.catalog import Catalog
from gateway.console import charts, cookies, forms, shell
from gateway.console.budgets import chart
from gateway.console.overview import places_of, values
from gateway.console.shell import Asked
from gateway.errors import GatewayError
from gateway.money.windows import bounds
from gateway.people import members
from gateway.people.members import NewMember
from gateway.settings import Settings
from gateway.views import team as views
from gateway.views.series import Series, steps, word

SCOPE_WORDS = {
    "inference": "call models",
    "team_admin": "manage this team",
    "finance": "read all spend",
    "admin": "administer everything",
}
SHOWN_MAX = 200  # teams of one page, and keys


class Peopled(Protocol):
    """What these pages need of a worker's parts."""

    settings: Settings
    engine: AsyncEngine
    catalog: Catalog


def handlers(parts: Peopled) -> list[BaseRouteHandler]:
    return [*_teams(parts), *_key_pages(parts), *_key_changes(parts), *_members(parts)]


def _teams(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/teams", access=EVERYONE)
    async def listed(request: Asked) -> Response[str]:
        return await _list(parts, request)

    @post("/teams", access=ADMINS)
    async def add_team(request: Asked) -> Response[str]:
        sent = await forms.sent(request)
        try:
            made = await people.add_team(
                parts.engine, sent.get("name", ""), sent.get("org") or people.DEFAULT_ORG, actor=access.actor(request)
            )
        except GatewayError as error:
            return await _list(parts, request, sent, shell.of_form(error))
        return shell.redirect(f"/console/teams/{made.name}", request)

    @get("/teams/{team:str}", access=EVERYONE)
    async def one(request: Asked, team: FromPath[str]) -> Response[str]:
        return await _one(parts, request, team)

    @post("/teams/{team:str}", access=TEAM_EDIT)
    async def add_key(request: Asked, team: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            new = people.NewKey(
                team=team,
                name=sent.get("name", ""),
                scopes=(sent.get("scope") or "inference",),
                models=words(sent.get("models", "")),
                expires=sent.get("expires") or None,
                tag=sent.get("tag", ""),
                member=sent.get("member") or None,
            )
            text, key = await people.add_key(parts.engine, load_secrets(parts.settings)[0], new, actor=access.actor(request))
        except GatewayError as error:
            return await _one(parts, request, team, sent, shell.of_form(error))
        return await _secret(request, text, key, "made")

    return [listed, add_team, one, add_key]


def _key_pages(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/teams/{team:str}/keys/{public:str}", access=EVERYONE)
    async def key_page(request: Asked, team: FromPath[str], public: FromPath[str]) -> Response[str]:
        return await _key(parts, request, team, public)

    @post("/teams/{team:str}/keys/{public:str}", access=TEAM_EDIT)
    async def change_key(request: Asked, team: FromPath[str], public: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            change = people.KeyChange(
                name=sent.get("name", ""), models=words(sent.get("models", "")), tag=sent.get("tag", ""), member=sent.get("member") or None
            )
            key = await people.change_key(parts.engine, public, change, actor=access.actor(request))
        except GatewayError as error:
            return await _key(parts, request, team, public, (sent, shell.of_form(error)))
        return shell.redirect(key_url(key), request)

    @post("/teams/{team:str}/keys/{public:str}/rotate", access=TEAM_EDIT)
    async def rotate(request: Asked, team: FromPath[str], public: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        overlap = sent.get("overlap", people.OVERLAP)
        try:
            text, key = await people.rotate_key(
                parts.engine,
                load_secrets(parts.settings)[0],
                public,
                None if overlap == "none" else overlap,
                actor=access.actor(request),
            )
        except GatewayError as error:
            return await _key(parts, request, team, public, (sent, shell.of_form(error)))
        return await _secret(request, text, key, "rotated")

    return [key_page, change_key, rotate]


def _key_changes(parts: Peopled) -> list[BaseRouteHandler]:
    @post("/teams/{team:str}/keys/{public:str}/expire", access=TEAM_EDIT)
    async def expire(request: Asked, team: FromPath[str], public: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            change = people.KeyChange(expires=sent.get("expires") or None)
            key = await people.change_key(parts.engine, public, change, actor=access.actor(request))
        except GatewayError as error:
            return await _key(parts, request, team, public, (sent, shell.of_form(error)))
        return shell.redirect(key_url(key), request)

    @post("/teams/{team:str}/keys/{public:str}/block", access=TEAM_EDIT)
    async def block(request: Asked, public: FromPath[str]) -> Response[str]:
        return shell.redirect(key_url(await people.block_key(parts.engine, public, actor=access.actor(request))), request)

    @post("/teams/{team:str}/keys/{public:str}/unblock", access=TEAM_EDIT)
    async def unblock(request: Asked, public: FromPath[str]) -> Response[str]:
        return shell.redirect(key_url(await people.unblock_key(parts.engine, public, actor=access.actor(request))), request)

    @post("/teams/{team:str}/keys/{public:str}/revoke", access=TEAM_EDIT)
    async def revoke(request: Asked, public: FromPath[str]) -> Response[str]:
        return shell.redirect(key_url(await people.revoke_key(parts.engine, public, actor=access.actor(request))), request)

    return [expire, block, unblock, revoke]


def _members(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/teams/{team:str}/members", access=TEAM_EDIT)
    async def listed(request: Asked, team: FromPath[str]) -> Response[str]:
        return await _team_members(parts, request, team)

    @post("/teams/{team:str}/members", access=TEAM_EDIT)
    async def invite(request: Asked, team: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            new = NewMember(email=sent.get("email", ""), name=sent.get("name", ""), teams={team: sent.get("role", "")})
            link, member = await members.add_member(parts.engine, new, access.actor(request))
        except GatewayError as error:
            return await _team_members(parts, request, team, sent, shell.of_form(error))
        if link is None:
            return shell.redirect(f"/console/teams/{team}/members", request)
        return await shell.page(
            request,
            access.actor(request),
            "invited.html",
            title="Invited",
            team=team,
            member=member,
            path=members.link_path(link),
            origin=_origin(request),
        )

    @post("/teams/{team:str}/members/role", access=TEAM_EDIT)
    async def set_role(request: Asked, team: FromPath[str]) -> Response[str]:
        sent = await forms.sent(request)
        role = sent.get("role", "")
        await members.set_team_role(parts.engine, sent.get("email", ""), team, None if role == "none" else role, access.actor(request))
        return shell.redirect(f"/console/teams/{team}/members", request)

    return [listed, invite, set_role]


# ---- the pages ---------------------------------------------------------------------------------------------------------------------
async def _list(parts: Peopled, request: Asked, sent: dict[str, str] | None = None, error: GatewayError | None = None) -> Response[str]:
    who = access.actor(request)
    since_us, _ = month(request)
    asked, every = shell.query(request, "q"), await views.teams(parts.engine, who.scope, since_us)
    matching = [one for one in every if asked.q.casefold() in one.team.name.casefold()]
    found = matching[:SHOWN_MAX]
    return await shell.page(
        request,
        who,
        "teams.html",
        title="Teams and keys",
        teams=found,
        more=len(matching) - len(found),
        total=len(every),
        q=asked.q,
        since_us=since_us,
        **_form(sent, error),
        may=who.role in ADMINS,
    )


async def _one(
    parts: Peopled, request: Asked, name: str, sent: dict[str, str] | None = None, error: GatewayError | None = None
) -> Response[str]:
    who, query = access.actor(request), shell.query(request, default="30d")
    since_us, now_us = month(request)
    view = await views.team(parts.engine, who, name, since_us, now_us)
    at = steps(*query.buckets, query.tz)
    spending = await views.spending(parts.engine, view, at, now_us)
    return await shell.page(
        request,
        who,
        "team.html",
        title=name,
        view=view,
        query=query,
        spelled=shell.spelled(query),
        per=word(at.step_us),
        spend=by_route(spending.routes, parts.catalog),
        burnt=spending.burnt,
        chart=None if spending.burnt is None else chart(*spending.burnt),
        opens_budgets=who.role in access.MONEY | TEAM_EDIT,
        keys=view.keys[:SHOWN_MAX],
        look_days=people.LOOK_DAYS,
        since_us=since_us,
        reads_members=who.role in TEAM_EDIT,
        scopes=[(one, told) for one, told in SCOPE_WORDS.items() if who.role in ADMINS or one in ("inference", access.TEAM_ADMIN)],
        routes=", ".join(parts.catalog.routes),
        **_form(sent, error),
    )


def by_route(spent: Series, catalog: Catalog) -> charts.Chart:
    """Spend by route, stacked; a request that met no route is of none."""
    points = len(spent.steps.starts)
    named = {group[0] or "none": values(parts, points, "cost") for group, parts in spent.by.items()}
    return charts.stacked(named, places_of(catalog.routes), spent.steps, "usd", f"Spend by route {word(spent.steps.step_us)}")


async def _key(
    parts: Peopled, request: Asked, team: str, public: str, wrong: tuple[dict[str, str], GatewayError] | None = None
) -> Response[str]:
    who = access.actor(request)
    view, row = await views.key(parts.engine, who, team, public, month(request))
    sent, error = wrong or ({}, None)
    return await shell.page(
        request,
        who,
        "key.html",
        title=row.key.name or row.key.public,
        view=view,
        row=row,
        since_us=month(request)[0],
        look_days=people.LOOK_DAYS,
        **_form(sent, error),
    )


async def _team_members(
    parts: Peopled, request: Asked, name: str, sent: dict[str, str] | None = None, error: GatewayError | None = None
) -> Response[str]:
    who = access.actor(request)
    team, found = await views.team_members(parts.engine, who, name)
    return await shell.page(
        request, who, "members.html", title=name, team=team, members=found, edits=who.manages(team.id), **_form(sent, error)
    )


async def _secret(request: Asked, text: str, key: people.Key, how: str) -> Response[str]:
    """The one page that shows a key's text; it can be loaded again by nobody."""
    return await shell.page(request, access.actor(request), "secret.html", title="Store this key", text=text, key=key, how=how)


# ---- inside ------------------------------------------------------------------------------------------------------------------------
def month(request: Asked) -> tuple[int, int]:
    """(the beginning of the month where the browser is, now)"""
    now_us = shell.now_us()
    return bounds("month", cookies.zone_of(request), now_us)[0], now_us


def key_url(key: people.Key) -> str:
    return f"/console/teams/{key.team}/keys/{key.public}"


def words(text: str) -> tuple[str, ...] | None:
    """Names separated by commas or spaces; None of nothing, which is all."""
    return tuple(text.replace(",", " ").split()) or None


def _origin(request: Asked) -> str:
    """This gateway's address as the browser has it: it sends one with every form."""
    return request.headers.get("origin", "")


def _form(sent: dict[str, str] | None, error: GatewayError | None) -> dict[str, Any]:
    """What was sent and what is wrong with it, by field ("" = of no field), and the status of the page."""
    return {"sent": sent or {}, "errors": forms.wrong(error), "status": 200 if error is None else error.status}
