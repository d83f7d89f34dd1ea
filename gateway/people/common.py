"""What all changes of people, keys and limits share: the transaction that workers notice, names and their checks, whose a limit is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access import ADMIN, Actor
from gateway.db.engine import clock_us
from gateway.db.tables import api_keys, catalog_version, former_secrets, organisations, teams
from gateway.errors import Forbidden, InvalidRequest, NotFound

MODEL_MAX = 200  # characters of a route's or model's name
LISTED_MAX = 100_000  # rows of one listing
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@asynccontextmanager
async def changing(engine: AsyncEngine) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """A transaction that moves the version which workers poll, and the database's time in it."""
    async with engine.begin() as connection:
        await connection.execute(update(catalog_version).values(version=catalog_version.c.version + 1))
        yield connection, await now_us_of(connection)


@asynccontextmanager
async def alone(engine: AsyncEngine) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """The same for what workers need not notice: no other change of people runs beside it."""
    async with engine.begin() as connection:
        await connection.execute(select(catalog_version.c.version).with_for_update())  # a transaction of SQLite is alone by itself
        yield connection, await now_us_of(connection)


async def now_us_of(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())


def check_name(kind: str, name: str, param: str = "name") -> None:
    if _NAME.fullmatch(name) is None:
        told = f"'{name[:80]}' cannot name {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        raise InvalidRequest(
            f"{told}: use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first.",
            param=param,
        )


def no_team(name: str, param: str = "team") -> NotFound:
    told = name[:80]
    return NotFound(f"There is no team '{told}': `tollway teams list` shows them, `tollway teams add {told}` makes it.", param=param)


async def team_id_of(connection: AsyncConnection, name: str, param: str = "team") -> int:
    """NotFound names `param`, the field that the name stood in."""
    if _NAME.fullmatch(name) is None:
        raise no_team(name, param)
    statement = select(teams.c.id).where(teams.c.name == name, teams.c.deleted_at_us.is_(None))
    found = (await connection.execute(statement)).scalar_one_or_none()
    if found is None:
        raise no_team(name, param)
    return int(found)


async def managed_team(connection: AsyncConnection, name: str, actor: Actor, param: str = "team") -> int:
    """The id of a team whose keys and members the actor may change. NotFound for one it may not even see."""
    team_id = await team_id_of(connection, name, param)
    if not actor.sees(team_id):
        raise no_team(name, param)
    if not actor.manages(team_id):
        raise Forbidden(f"This changes the team {name}: its team admins and admins may.", code="role_required")
    return team_id


async def managed_scope(connection: AsyncConnection, kind: str, name: str, actor: Actor) -> tuple[int, int | None]:
    """(id, its team's id) of what a budget or limit is for, where the actor may set one.

    Team admins set those of their team's keys; those of a team or organisation hold for them too, so an admin sets them.
    """
    if kind == "key":
        key_id, team_id = await key_ids(connection, name, actor, "scope")
        if not actor.manages(team_id):
            raise Forbidden("This changes a key of a team: its team admins and admins may.", code="role_required")
        return key_id, team_id
    if kind == "team":
        team_id = await team_id_of(connection, name, "scope")
        if not actor.sees(team_id):
            raise no_team(name, "scope")
    if actor.role != ADMIN:
        raise Forbidden("What a team or organisation may use, an admin sets. Team admins set what its keys may.", code="role_required")
    scope_id = await scope_id_of(connection, kind, name)
    return scope_id, scope_id if kind == "team" else None


async def check_managed_row(connection: AsyncConnection, row: Any, actor: Actor, missing: NotFound) -> int | None:
    """The team's id of a budget or limit that the actor may change. row: its scope_kind, scope_id. NotFound for one it may not see."""
    if row is None:
        raise missing
    team_id = None if row.scope_kind == "organisation" else row.scope_id
    if row.scope_kind == "key":
        team_id = (await connection.execute(select(api_keys.c.team_id).where(api_keys.c.id == row.scope_id))).scalar_one()
    if actor.scope is not None and (team_id is None or not actor.sees(team_id)):
        raise missing
    if actor.role != ADMIN and not (row.scope_kind == "key" and team_id is not None and actor.manages(team_id)):
        raise Forbidden("What a team or organisation may use, an admin sets. Team admins set what its keys may.", code="role_required")
    return team_id


async def key_ids(connection: AsyncConnection, public: str, actor: Actor, param: str = "key") -> tuple[int, int]:
    """(id, team's id) of a key that was not revoked, by its public part, a former one or the whole key. NotFound for one it may not see."""
    told = public.removeprefix("tw-")[:12]
    missing = no_key(told, param)
    if not told.isprintable():
        raise missing
    former = select(former_secrets.c.key_id).where(former_secrets.c.public == told)
    which = or_(api_keys.c.public == told, api_keys.c.id.in_(former)), api_keys.c.revoked_at_us.is_(None)
    row = (await connection.execute(select(api_keys.c.id, api_keys.c.team_id).where(*which))).one_or_none()
    if row is None or not actor.sees(row.team_id):
        raise missing
    return row.id, row.team_id


def no_key(public: str, param: str = "key") -> NotFound:
    return NotFound(f"There is no key '{public[:80]}': `tollway keys list` shows the public part of each.", param=param)


def visible(table: Table, scope: frozenset[int]) -> ColumnElement[bool]:
    """Of budgets or limits those of these teams and of their keys."""
    keys = select(api_keys.c.id).where(api_keys.c.team_id.in_(scope))
    of_teams = and_(table.c.scope_kind == "team", table.c.scope_id.in_(scope))
    return or_(of_teams, and_(table.c.scope_kind == "key", table.c.scope_id.in_(keys)))


def check_text(field: str, text: str, most: int) -> None:
    """What people may name freely: a line of text that every database can hold. InvalidRequest names `field`."""
    if len(text) > most or not text.isprintable():
        raise InvalidRequest(f"{field}: write at most {most} printable characters.", param=field)


def check_model(model: str | None) -> None:
    """A route's name in a budget or limit, None = all. InvalidRequest."""
    if model == "":
        raise InvalidRequest("model: name a route, or leave it out for all.", param="model")
    check_text("model", model or "", MODEL_MAX)


def check_id(row_id: int, missing: NotFound) -> None:
    """A number that no row can have finds none, before a database refuses to compare it."""
    if not 0 < row_id < 1 << 63:
        raise missing


async def scope_id_of(connection: AsyncConnection, kind: str, name: str) -> int:
    """The id of what a budget or limit is for."""
    if kind == "team":
        return await team_id_of(connection, name, "scope")
    if kind == "organisation":
        statement = select(organisations.c.id).where(organisations.c.name == name)
    else:
        raise InvalidRequest(f"There is no scope '{kind}': use organisation, team or key.", param="scope_kind")
    found = (await connection.execute(statement)).scalar_one_or_none() if name.isprintable() else None
    if found is None:
        raise NotFound(f"There is no {kind} '{name[:80]}'.", param="scope")
    return int(found)


def scope_name(table: Table) -> ColumnElement[str]:
    """What a budget or limit is for, as people call it."""
    columns = {"organisation": organisations.c.name, "team": teams.c.name, "key": api_keys.c.public}
    names = {
        kind: select(column).where(column.table.c.id == table.c.scope_id).correlate(table).scalar_subquery()
        for kind, column in columns.items()
    }
    return case(names, value=table.c.scope_kind)
