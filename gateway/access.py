"""Who may do what: the roles, whom each call is open to, and the one guard that asks. Knows no table and no page.

A handler names the roles it is open to when it is made, `@get("/teams", access=WATCH)`; one that names none is open to nobody.
Which rows a caller sees is bound in SQL by `Actor.scope`: another team's thing answers like a missing one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from msgspec import Struct

from gateway.auth import Principal
from gateway.errors import Forbidden

ADMIN, FINANCE, TEAM_ADMIN, MEMBER = "admin", "finance", "team_admin", "member"
ROLES = (ADMIN, FINANCE, TEAM_ADMIN, MEMBER)  # widest first

ADMINS = frozenset({ADMIN})
MONEY = frozenset({ADMIN, FINANCE})
TEAM_EDIT = frozenset({ADMIN, TEAM_ADMIN})
WATCH = frozenset({ADMIN, TEAM_ADMIN, MEMBER})
EVERYONE = frozenset(ROLES)

_ACTOR = "tollway.actor"

Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]


class Actor(Struct, frozen=True, kw_only=True):
    """Who calls /admin or the console: an API key, somebody signed in, or the command line.

    name: for the audit log. role: the widest of its roles. teams: team id -> team_admin | member; empty for admin and finance, who see all.
    """

    name: str
    role: str
    teams: Mapping[int, str] = {}
    member_id: int | None = None
    key_id: int | None = None

    @property
    def scope(self) -> frozenset[int] | None:
        """Ids of the teams whose rows it may see; None = all."""
        return None if self.role in MONEY else frozenset(self.teams)

    @property
    def whole(self) -> frozenset[int] | None:
        """Ids of the teams that it sees as their admin does: spend, budgets, members, audit log; None = all."""
        return None if self.role in MONEY else frozenset(team for team, role in self.teams.items() if role == TEAM_ADMIN)

    def sees(self, team_id: int) -> bool:
        """Whether it may read a team's rows."""
        return self.role in MONEY or team_id in self.teams

    def manages(self, team_id: int) -> bool:
        """Whether it may change a team's keys and members."""
        return self.role == ADMIN or (self.role == TEAM_ADMIN and self.teams.get(team_id) == TEAM_ADMIN)


COMMAND_LINE = Actor(name="command line", role=ADMIN)  # whoever may run `tollway` on this machine may read the database as well
GATEWAY = Actor(name="gateway", role=ADMIN)  # what the gateway does by itself, such as the first admin key

Finder: TypeAlias = Callable[[Connection], Awaitable[Actor]]
Guard: TypeAlias = Callable[[Connection, BaseRouteHandler], Awaitable[None]]


def of_key(who: Principal) -> Actor:
    """What an API key may do here. Forbidden for one that is for inference alone."""
    role = next((role for role in (ADMIN, FINANCE, TEAM_ADMIN) if role in who.scopes), None)
    if role is None:
        raise Forbidden("This call needs a key with the admin scope: `tollway keys add --team … --admin`.", code="admin_required")
    teams = {who.team_id: TEAM_ADMIN} if role == TEAM_ADMIN else {}
    return Actor(name=f"key {who.key_public}", role=role, teams=teams, key_id=who.key_id)


def guard(find: Finder) -> Guard:
    """The guard of a router. find: whose call it is; raises when it is nobody's."""

    async def check(connection: Connection, handler: BaseRouteHandler) -> None:
        who = await find(connection)
        open_to = handler.opt.get("access", frozenset())
        if who.role not in open_to:
            raise Forbidden(refusal(open_to), code="role_required")
        cast(dict[str, Any], connection.scope)[_ACTOR] = who

    return check


def refusal(open_to: frozenset[str]) -> str:
    """What somebody without the role is told."""
    names = [role.replace("_", " ") for role in ROLES if role in open_to]
    if not names:
        return "This call is open to nobody."
    return f"This call needs the role {' or '.join(names)}; an admin can give it."


def actor(connection: Connection) -> Actor:
    """Who calls; the guard has found out."""
    return cast(Actor, cast(dict[str, Any], connection.scope)[_ACTOR])
