"""Organisations and teams: what a key belongs to and spend is accounted to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from msgspec import Struct
from sqlalchemy import insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit
from gateway.access import Actor
from gateway.db.engine import reading
from gateway.db.tables import organisations, teams
from gateway.errors import InvalidRequest
from gateway.labels import checked, mapping
from gateway.people.common import LISTED_MAX, changing, check_name, team_id_of

DEFAULT_ORG = "default"


class Team(Struct, frozen=True, kw_only=True):
    """labels: what the backend of each of its requests must carry."""

    id: int
    name: str
    org: str
    labels: dict[str, str]
    created_at_us: int


class Organisation(Struct, frozen=True, kw_only=True):
    """What teams are held together by: a budget of its own may hold for all of them. Made with its first team."""

    name: str
    teams: tuple[str, ...]


async def add_team(
    engine: AsyncEngine, name: str, org: str = DEFAULT_ORG, labels: Mapping[str, str] | None = None, *, actor: Actor
) -> Team:
    """A new team; its organisation is made with the first one."""
    asked = checked(labels or {}, "labels")
    check_name("team", name)
    check_name("organisation", org, "org")
    async with changing(engine) as (connection, now_us):
        taken = (await connection.execute(select(teams.c.deleted_at_us).where(teams.c.name == name))).one_or_none()
        if taken is not None:
            gone = "" if taken.deleted_at_us is None else " (deleted: its rows stay in the ledger, so its name stays taken)"
            raise InvalidRequest(f"There is already a team '{name}'{gone}.", code="already_exists", param="name", status=409)
        org_id = (await connection.execute(select(organisations.c.id).where(organisations.c.name == org))).scalar_one_or_none()
        if org_id is None:
            made = insert(organisations).values(name=org, created_at_us=now_us).returning(organisations.c.id)
            org_id = (await connection.execute(made)).scalar_one()
        statement = insert(teams).values(org_id=org_id, name=name, salt=secrets.token_hex(16), labels=asked, created_at_us=now_us)
        team_id = (await connection.execute(statement.returning(teams.c.id))).scalar_one()
        after = {"org": org, "labels": labels or {}}
        await audit.write(connection, actor, action="team.add", kind="team", ident=name, team_id=team_id, after=after)
    return Team(id=team_id, name=name, org=org, labels=mapping(asked, "labels"), created_at_us=now_us)


async def label_team(engine: AsyncEngine, name: str, labels: Mapping[str, str], *, actor: Actor) -> dict[str, str]:
    """Other labels for a team, none = no longer any; every worker asks for them within about two seconds."""
    asked = checked(labels, "labels")
    async with changing(engine) as (connection, _):
        team_id = await team_id_of(connection, name)
        before = (await connection.execute(select(teams.c.labels).where(teams.c.id == team_id))).scalar_one()
        await connection.execute(update(teams).where(teams.c.id == team_id).values(labels=asked))
        change = {"before": {"labels": mapping(before, "labels")}, "after": {"labels": dict(labels)}}
        await audit.write(connection, actor, action="team.labels", kind="team", ident=name, team_id=team_id, **change)
    return mapping(asked, "labels")


async def list_teams(engine: AsyncEngine, scope: frozenset[int] | None = None) -> list[Team]:
    """Live teams by name; with a scope those alone."""
    statement = (
        select(teams.c.id, teams.c.name, organisations.c.name.label("org"), teams.c.labels, teams.c.created_at_us)
        .join(organisations, organisations.c.id == teams.c.org_id)
        .where(teams.c.deleted_at_us.is_(None))
        .order_by(teams.c.name)
        .limit(LISTED_MAX)
    )
    if scope is not None:
        statement = statement.where(teams.c.id.in_(scope))
    async with reading(engine).connect() as connection:
        rows = await connection.execute(statement)
        return [Team(id=r.id, name=r.name, org=r.org, labels=mapping(r.labels, "labels"), created_at_us=r.created_at_us) for r in rows]


async def delete_team(engine: AsyncEngine, name: str, *, actor: Actor) -> None:
    """Its keys stop working on every worker; its ledger stays."""
    async with changing(engine) as (connection, now_us):
        team_id = await team_id_of(connection, name)
        await connection.execute(update(teams).where(teams.c.id == team_id).values(deleted_at_us=now_us))
        await audit.write(connection, actor, action="team.delete", kind="team", ident=name, team_id=team_id, before={"name": name})


async def list_organisations(engine: AsyncEngine) -> list[Organisation]:
    """All organisations by name, each with its live teams."""
    live = select(organisations.c.name, teams.c.name.label("team")).join(teams, teams.c.org_id == organisations.c.id, isouter=True)
    async with reading(engine).connect() as connection:
        kept = or_(teams.c.id.is_(None), teams.c.deleted_at_us.is_(None))
        names = await connection.execute(select(organisations.c.name).order_by(organisations.c.name).limit(LISTED_MAX))
        found: dict[str, list[str]] = {name: [] for name in names.scalars()}
        for row in await connection.execute(live.where(kept).order_by(teams.c.name)):
            found[row.name] += [] if row.team is None else [row.team]
    return [Organisation(name=name, teams=tuple(held)) for name, held in found.items()]
