"""Teams as people look at them: what each spent since an instant, and of one its keys with what they did, budgets, limits and members."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import people, rates
from gateway.access import ADMIN, MEMBER, Actor
from gateway.db.engine import snapshot
from gateway.db.rollup_tables import rollups
from gateway.db.tables import api_keys, memberships
from gateway.db.tables import teams as everyone
from gateway.errors import Forbidden
from gateway.money.forecast import OfBudget
from gateway.people import Budget, Key, LastUse, Team, Use, members, used
from gateway.people.common import no_team
from gateway.people.members import Member
from gateway.rates import Limit
from gateway.views import budgets
from gateway.views.budgets import Burn
from gateway.views.series import Series, Steps, series


class TeamRow(Struct, frozen=True, kw_only=True):
    """keys: live ones. spent: None = nothing yet. last_us: the quarter of an hour of its last request."""

    team: Team
    keys: int
    members: int
    spent: Use | None
    last_us: int | None


class KeyRow(Struct, frozen=True, kw_only=True):
    """limit: the key's own rate limit, if it has one. last: None = no use in people.LOOK_DAYS days. state: active | rotating | expired |
    blocked | revoked.
    """

    key: Key
    use: Use | None
    last: LastUse | None
    limit: Limit | None
    state: str


class TeamView(Struct, frozen=True, kw_only=True):
    """edits: whether the actor may change keys and members. own: only the actor's own keys are shown."""

    team: Team
    keys: tuple[KeyRow, ...]
    budgets: tuple[Budget, ...]
    edits: bool
    own: bool


class Spending(Struct, frozen=True):
    """burnt: what is left of the team's own budget of all routes, None without one. routes: spend by route."""

    burnt: tuple[OfBudget, Burn] | None
    routes: Series


class LimitsView(Struct, frozen=True, kw_only=True):
    """keys: live ones by their public part. edits: whether the actor may change those of keys; whole: of the team too."""

    team: Team
    limits: tuple[Limit, ...]
    keys: Mapping[str, Key]
    edits: bool
    whole: bool


async def teams(engine: AsyncEngine, scope: frozenset[int] | None, since_us: int) -> list[TeamRow]:
    """Live teams by name; with a scope those alone. since_us: from when spend counts, a whole quarter of an hour."""
    found = await people.list_teams(engine, scope)
    live = [api_keys.c.revoked_at_us.is_(None)]
    if scope is not None:
        live.append(api_keys.c.team_id.in_(scope))
    async with snapshot(engine) as connection:
        spent = await used.used_since(connection, "team_id", scope, since_us)
        of_team = select(func.max(rollups.c.bucket_us)).where(rollups.c.team_id == everyone.c.id).scalar_subquery()
        last: Mapping[int, int | None] = {
            row.id: row.at_us for row in await connection.execute(select(everyone.c.id, of_team.label("at_us")))
        }
        keys = select(api_keys.c.team_id, func.count()).where(*live).group_by(api_keys.c.team_id)
        counted: Mapping[int, int] = {team_id: number for team_id, number in await connection.execute(keys)}  # noqa: C416 - rows are no pairs
        people_of = select(memberships.c.team_id, func.count()).group_by(memberships.c.team_id)
        joined: Mapping[int, int] = {team_id: number for team_id, number in await connection.execute(people_of)}  # noqa: C416
    return [
        TeamRow(team=one, keys=counted.get(one.id, 0), members=joined.get(one.id, 0), spent=spent.get(one.id), last_us=last.get(one.id))
        for one in found
    ]


async def team(engine: AsyncEngine, actor: Actor, name: str, since_us: int, now_us: int) -> TeamView:
    """One team. NotFound also for one that the actor may not see. Somebody who is only a member of it sees the own keys alone."""
    found = await one_team(engine, actor, name)
    own = actor.teams.get(found.id) == MEMBER
    keys = await people.list_keys(engine, name, actor.scope, member_id=actor.member_id if own else None)
    inside = frozenset({found.id})
    async with snapshot(engine) as connection:
        use = await used.used_since(connection, "key_id", inside, since_us)
        last = await used.last_used(connection, inside)
    of_keys = {one.scope: one for one in await rates.list_limits(engine, inside) if one.scope_kind == "key" and one.model is None}
    shown = frozenset(one.public for one in keys)
    held = [one for one in await people.list_budgets(engine, inside) if one.scope_kind == "team" or one.scope in shown]
    return TeamView(
        team=found,
        keys=tuple(
            KeyRow(key=key, use=use.get(key.id), last=last.get(key.id), limit=of_keys.get(key.public), state=state_of(key, now_us))
            for key in sorted(keys, key=lambda key: (key.revoked_at_us is not None, -key.id))
        ),
        budgets=tuple(held),
        edits=actor.manages(found.id),
        own=own,
    )


async def spending(engine: AsyncEngine, view: TeamView, at: Steps, now_us: int) -> Spending:
    """What a team that the actor sees spent in these steps, and what is left for it."""
    main = next((one for one in view.budgets if one.scope_kind == "team" and one.model is None), None)
    burnt = None if main is None else await budgets.one(engine, main.id, frozenset({view.team.id}), now_us)
    async with snapshot(engine) as connection:
        return Spending(burnt, await series(connection, ("route",), {"team_id": view.team.id}, at, sums=("cost",)))


async def one_team(engine: AsyncEngine, actor: Actor, name: str) -> Team:
    """A live team that the actor may see."""
    found = next((one for one in await people.list_teams(engine, actor.scope) if one.name == name), None)
    if found is None:
        raise no_team(name)
    return found


async def key(engine: AsyncEngine, actor: Actor, name: str, public: str, times: tuple[int, int]) -> tuple[TeamView, KeyRow]:
    """(its team, one key of it), by its public part or a former one. times: (since_us, now_us) of `team`."""
    view = await team(engine, actor, name, *times)
    for row in view.keys:
        if public in (row.key.public, *(one.public for one in row.key.former)):
            return view, row
    raise people.no_key(public)


async def limits(engine: AsyncEngine, actor: Actor, name: str) -> LimitsView:
    """The rate limits of a team and of its live keys; a member's own keys alone."""
    found = await one_team(engine, actor, name)
    own = actor.teams.get(found.id) == MEMBER
    listed = await people.list_keys(engine, name, actor.scope, member_id=actor.member_id if own else None)
    keys = {one.public: one for one in listed if one.revoked_at_us is None}
    there = await rates.list_limits(engine, frozenset({found.id}))
    return LimitsView(
        team=found,
        limits=tuple(one for one in there if one.scope_kind == "team" or one.scope in keys),
        keys=keys,
        edits=actor.manages(found.id),
        whole=actor.role == ADMIN,
    )


async def team_members(engine: AsyncEngine, actor: Actor, name: str) -> tuple[Team, list[Member]]:
    """(the team, its members)"""
    found = await one_team(engine, actor, name)
    if not actor.manages(found.id):
        raise Forbidden(f"Who is in team '{found.name}' is its admins' to see.", code="role_required")
    return found, await members.list_members(engine, frozenset({found.id}))


def state_of(key: Key, now_us: int) -> str:
    """What stands in the way of a key, the lasting thing first."""
    if key.revoked_at_us is not None:
        return "revoked"
    if key.blocked_at_us is not None:
        return "blocked"
    if key.expires_at_us is not None and key.expires_at_us <= now_us:
        return "expired"
    return "rotating" if key.former else "active"
