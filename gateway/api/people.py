"""`/admin/organisations`, `/admin/teams`, `/admin/keys` and `/admin/members`. Checks, decodes, calls; what a caller sees and may change,
the functions of people/ decide by its Actor.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from litestar import Request, delete, get, patch, post, put
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath, FromQuery
from msgspec import Struct, structs
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import people
from gateway.access import ADMINS, EVERYONE, MONEY, TEAM_EDIT, actor
from gateway.api.parameters import known
from gateway.auth import Keyring, load_secrets
from gateway.db.engine import reading
from gateway.people import members
from gateway.people.used import last_used
from gateway.settings import Settings

Asked = Request[Any, Any, Any]


class Peopled(Protocol):
    """What these calls need of a worker's parts."""

    settings: Settings
    engine: AsyncEngine
    keyring: Keyring


class NewTeam(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """labels: what the backend of each of its requests must carry, such as {"residency": "eu"}."""

    name: str
    org: str = people.DEFAULT_ORG
    labels: dict[str, str] = {}


class TeamLabels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    labels: dict[str, str]


class MadeKey(Struct, frozen=True, kw_only=True):
    """`secret` is the whole key; it is shown this once."""

    secret: str
    key: people.Key


class Rotation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """overlap: until when the secret before works too: 12h, 30d, 8w, a date or an instant; null = no longer."""

    overlap: str | None = people.OVERLAP


class Invited(Struct, frozen=True, kw_only=True):
    """link: where the member sets a password, once and within two days; null for somebody who was there already."""

    link: str | None
    member: members.Member


class Link(Struct, frozen=True, kw_only=True):
    link: str


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """admin or finance of everything; "" = what the teams say."""

    role: Literal["admin", "finance", ""]


class TeamRole(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Literal["team_admin", "member"]


class Organisations(Struct, frozen=True):
    data: list[people.Organisation]


class Teams(Struct, frozen=True):
    data: list[people.Team]


class SeenKey(people.Key, frozen=True, kw_only=True):
    """last_used_us, last_used_grain_us: its last request began within the grain after it: a quarter of an hour, or a day of UTC where that
    is over; null = none in 92 days.
    """

    last_used_us: int | None
    last_used_grain_us: int | None


class Keys(Struct, frozen=True):
    data: list[SeenKey]


class Members(Struct, frozen=True):
    data: list[members.Member]


def handlers(parts: Peopled) -> list[BaseRouteHandler]:
    """For a guarded router."""
    return [*_teams(parts), *_keys(parts), *_key_states(parts), *_members(parts), *_roles(parts)]


def _teams(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/organisations", summary="All organisations with their teams; one is made with its first team", access=MONEY)
    async def list_organisations(request: Asked) -> Organisations:
        known(request, ())
        return Organisations(await people.list_organisations(parts.engine))

    @get("/teams", summary="The teams that the caller may see", access=EVERYONE)
    async def list_teams(request: Asked) -> Teams:
        known(request, ())
        return Teams(await people.list_teams(parts.engine, actor(request).scope))

    @post("/teams", summary="Make a team", access=ADMINS)
    async def add_team(request: Asked, data: Annotated[NewTeam, Body()]) -> people.Team:
        return await people.add_team(parts.engine, data.name, data.org, data.labels, actor=actor(request))

    @delete("/teams/{name:str}", summary="End a team and its keys", access=ADMINS)
    async def delete_team(request: Asked, name: FromPath[str]) -> None:
        await people.delete_team(parts.engine, name, actor=actor(request))

    @put("/teams/{name:str}/labels", summary="Set what the backend of each of a team's requests must carry; {} = nothing", access=ADMINS)
    async def label_team(request: Asked, name: FromPath[str], data: Annotated[TeamLabels, Body()]) -> TeamLabels:
        return TeamLabels(labels=await people.label_team(parts.engine, name, data.labels, actor=actor(request)))

    return [list_organisations, list_teams, add_team, delete_team, label_team]


def _keys(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/keys", summary="The keys that the caller may see, or a team's, without their secrets, each with its last use", access=EVERYONE)
    async def list_keys(request: Asked, team: FromQuery[str | None] = None) -> Keys:
        known(request, ("team",))
        scope = actor(request).scope
        found = await people.list_keys(parts.engine, team, scope)
        async with reading(parts.engine).connect() as connection:
            last = await last_used(connection, scope)
        return Keys([_seen(key, last.get(key.id)) for key in found])

    @post("/keys", summary="Make a key; its secret is in this answer alone", access=TEAM_EDIT)
    async def add_key(request: Asked, data: Annotated[people.NewKey, Body()]) -> MadeKey:
        text, key = await people.add_key(parts.engine, load_secrets(parts.settings)[0], data, actor=actor(request))
        return MadeKey(secret=text, key=key)

    @patch("/keys/{public:str}", summary="Change a key's name, models, end, tag, labels or owner; what is left out stays", access=TEAM_EDIT)
    async def change_key(request: Asked, public: FromPath[str], data: Annotated[people.KeyChange, Body()]) -> people.Key:
        return await people.change_key(parts.engine, public, data, actor=actor(request))

    @delete("/keys/{public:str}", status_code=200, summary="Revoke a key, or a secret from before a rotation, for ever", access=TEAM_EDIT)
    async def revoke_key(request: Asked, public: FromPath[str]) -> people.Key:
        return await people.revoke_key(parts.engine, public, actor=actor(request))

    return [list_keys, add_key, change_key, revoke_key]


def _seen(key: people.Key, last: people.LastUse | None) -> SeenKey:
    at_us, grain_us = (None, None) if last is None else (last.at_us, last.grain_us)
    return SeenKey(**structs.asdict(key), last_used_us=at_us, last_used_grain_us=grain_us)


def _key_states(parts: Peopled) -> list[BaseRouteHandler]:
    @post(
        "/keys/{public:str}/rotate",
        status_code=200,
        summary="A new secret for a key; the old one works until a day",
        access=TEAM_EDIT,
    )
    async def rotate_key(request: Asked, public: FromPath[str], data: Annotated[Rotation, Body()]) -> MadeKey:
        secret = load_secrets(parts.settings)[0]
        text, key = await people.rotate_key(parts.engine, secret, public, data.overlap, actor=actor(request))
        return MadeKey(secret=text, key=key)

    @put("/keys/{public:str}/block", summary="Refuse a key's requests until it is unblocked", access=TEAM_EDIT)
    async def block_key(request: Asked, public: FromPath[str]) -> people.Key:
        return await people.block_key(parts.engine, public, actor=actor(request))

    @delete("/keys/{public:str}/block", status_code=200, summary="Let a blocked key work again", access=TEAM_EDIT)
    async def unblock_key(request: Asked, public: FromPath[str]) -> people.Key:
        return await people.unblock_key(parts.engine, public, actor=actor(request))

    return [rotate_key, block_key, unblock_key]


def _members(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/members", summary="The members that the caller may see, or a team's", access=TEAM_EDIT)
    async def list_members(request: Asked, team: FromQuery[str | None] = None) -> Members:
        known(request, ("team",))
        return Members(await members.list_members(parts.engine, actor(request).scope, team))

    @post("/members", summary="Make a member, or let one join teams; a new one sets a password by the link in the answer", access=TEAM_EDIT)
    async def add_member(request: Asked, data: Annotated[members.NewMember, Body()]) -> Invited:
        link, member = await members.add_member(parts.engine, data, actor(request))
        return Invited(link=None if link is None else members.link_path(link), member=member)

    @delete("/members/{email:str}", summary="End a member: signed out at once", access=ADMINS)
    async def end_member(request: Asked, email: FromPath[str]) -> None:
        await members.end_member(parts.engine, email, actor(request))

    @post("/members/{email:str}/link", status_code=200, summary="A new link to set a password; it ends the one before", access=ADMINS)
    async def new_link(request: Asked, email: FromPath[str]) -> Link:
        return Link(link=members.link_path(await members.new_link(parts.engine, email, actor(request))))

    return [list_members, add_member, end_member, new_link]


def _roles(parts: Peopled) -> list[BaseRouteHandler]:
    @put("/members/{email:str}/role", summary="Make a member admin or finance of everything, or neither", access=ADMINS)
    async def set_role(request: Asked, email: FromPath[str], data: Annotated[Role, Body()]) -> members.Member:
        return await members.set_role(parts.engine, email, data.role, actor(request))

    @put("/members/{email:str}/teams/{team:str}", summary="What a member may do in a team", access=TEAM_EDIT)
    async def set_team_role(request: Asked, email: FromPath[str], team: FromPath[str], data: Annotated[TeamRole, Body()]) -> members.Member:
        return await members.set_team_role(parts.engine, email, team, data.role, actor(request))

    @delete("/members/{email:str}/teams/{team:str}", summary="Take a member out of a team", access=TEAM_EDIT)
    async def leave_team(request: Asked, email: FromPath[str], team: FromPath[str]) -> None:
        await members.set_team_role(parts.engine, email, team, None, actor(request))

    return [set_role, set_team_role, leave_team]
