"""People who sign in to the console: who they are, what they may do in which team, and the one-time links they set a password with.

A member has a role of everything (admin, finance) or, per team, team_admin or member. Knows no session; passwords come here as hashes.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Row, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit
from gateway.access import ADMIN, FINANCE, MEMBER, TEAM_ADMIN, Actor
from gateway.db.engine import reading
from gateway.db.tables import api_keys, members, memberships, sessions, teams
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.people.common import LISTED_MAX, alone, check_text, managed_team, no_team, team_id_of

WIDE_ROLES = (ADMIN, FINANCE)
TEAM_ROLES = (TEAM_ADMIN, MEMBER)
EMAIL_MAX = 254
NAME_MAX = 200
LINK_S = 48 * 3600  # how long a link to set a password works
_EMAIL = re.compile(r"[^@\s<>\"'(),;:\\]{1,64}@[^@\s<>\"'(),;:\\]{1,189}")


class Member(Struct, frozen=True, kw_only=True):
    """role: admin | finance of everything, or "". teams: team -> team_admin | member. has_password: whether one was set already."""

    id: int
    email: str
    name: str
    role: str
    teams: dict[str, str]
    has_password: bool
    created_at_us: int


class NewMember(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """role: admin | finance of everything, or "" and what teams say. teams: team -> team_admin | member."""

    email: str
    name: str = ""
    role: str = ""
    teams: dict[str, str] = {}


def normal_email(email: str) -> str:
    """One spelling for each address: a person types it as it comes."""
    return email.strip().lower()


async def add_member(engine: AsyncEngine, new: NewMember, actor: Actor) -> tuple[str | None, Member]:
    """(the token of a link to set a password, the member). Somebody who is there already joins the teams named, without a link; who is
    given a role of everything begins anew with one, since whoever invited them may know the password.

    An admin makes anybody; a team admin members of its own teams alone.
    """
    email = _checked(new)
    if new.role and actor.role != ADMIN:
        raise Forbidden(f"An admin alone makes somebody {new.role}.", code="role_required")
    if not new.role and not new.teams:
        raise InvalidRequest("teams: name at least one team, or give the role admin or finance.", param="teams")
    async with alone(engine) as (connection, now_us):
        places = {name: (await managed_team(connection, name, actor, "teams"), role) for name, role in sorted(new.teams.items())}
        row = (await connection.execute(select(members).where(members.c.email == email))).one_or_none()
        known = row is not None and row.deleted_at_us is None
        if known and (new.role or new.name) and actor.role == ADMIN:
            changed = {"name": new.name or row.name, "role": new.role or row.role} if row is not None else {}
            await connection.execute(update(members).where(members.c.email == email).values(changed))
        raised = row is not None and known and bool(new.role) and not row.role
        link = _new_link() if raised or not known else None
        if row is not None and raised:
            await _begin_anew(connection, row.id, _link_values(link, now_us))
        if not known:
            values = {"name": new.name, "role": new.role, "password": None, "created_at_us": now_us, "deleted_at_us": None}
            await _put(connection, row, values | {"email": email} | _link_values(link, now_us))
        found = (await connection.execute(select(members.c.id).where(members.c.email == email))).scalar_one()
        for team_id, role in places.values():
            await _join(connection, found, team_id, role)
        member = (await _members(connection, members.c.id == found, actor.scope))[0]
        await _tell_added(connection, actor, member, new.role, places)
    return link, member


async def list_members(engine: AsyncEngine, scope: frozenset[int] | None = None, team: str | None = None) -> list[Member]:
    """Members by e-mail; with a scope those of its teams, and of their teams those in it. team: its members alone; NotFound."""
    which: ColumnElement[bool] = members.c.deleted_at_us.is_(None)
    async with reading(engine).connect() as connection:
        if scope is not None or team is not None:
            inside = select(memberships.c.member_id).join(teams, teams.c.id == memberships.c.team_id).where(teams.c.deleted_at_us.is_(None))
            if scope is not None:
                inside = inside.where(memberships.c.team_id.in_(scope))
            if team is not None:
                inside = inside.where(teams.c.id == await _seen_team(connection, team, scope))
            which = and_(which, members.c.id.in_(inside))
        return await _members(connection, which, scope)


async def _seen_team(connection: AsyncConnection, name: str, scope: frozenset[int] | None) -> int:
    team_id = await team_id_of(connection, name)
    if scope is not None and team_id not in scope:
        raise no_team(name)
    return team_id


async def set_role(engine: AsyncEngine, email: str, role: str, actor: Actor) -> Member:
    """admin | finance of everything, or "" = what the teams say. Who had neither is signed out and sets a password by a new link
    (`new_link`): whoever invited them may know the present one.
    """
    _check_role(role)
    async with alone(engine) as (connection, _):
        before = await _one(connection, email, None)
        await connection.execute(update(members).where(members.c.id == before.id).values(role=role))
        if role and not before.role:
            await _begin_anew(connection, before.id, {"link_digest": None, "link_expires_at_us": None})
        change = {"before": {"role": before.role}, "after": {"role": role}}
        await audit.write(connection, actor, action="member.role", kind="member", ident=before.email, **change)  # type: ignore[arg-type]
        return await _one(connection, email, None)


async def set_team_role(engine: AsyncEngine, email: str, team: str, role: str | None, actor: Actor) -> Member:
    """What somebody may do in a team; None = not in it any longer. For whoever manages the team."""
    if role is not None and role not in TEAM_ROLES:
        raise InvalidRequest(f"role: use {' or '.join(TEAM_ROLES)}.", param="role")
    async with alone(engine) as (connection, _):
        team_id = await managed_team(connection, team, actor)
        before = await _one(connection, email, actor.scope)
        await connection.execute(delete(memberships).where(memberships.c.member_id == before.id, memberships.c.team_id == team_id))
        if role is not None:
            await connection.execute(insert(memberships).values(member_id=before.id, team_id=team_id, role=role))
        await audit.write(
            connection,
            actor,
            action="member.team" if role is not None else "member.leave",
            kind="member",
            ident=before.email,
            team_id=team_id,
            before={team: before.teams.get(team)},
            after={team: role},
        )
        return (await _members(connection, members.c.id == before.id, actor.scope) or [before])[0]


async def end_member(engine: AsyncEngine, email: str, actor: Actor) -> None:
    """Signed out everywhere at once, and no way in any longer. Keys that were theirs stay: they are the team's."""
    async with alone(engine) as (connection, now_us):
        before = await _one(connection, email, None)
        ended = {"deleted_at_us": now_us, "password": None, "link_digest": None, "link_expires_at_us": None}
        await connection.execute(update(members).where(members.c.id == before.id).values(ended))
        await connection.execute(delete(memberships).where(memberships.c.member_id == before.id))
        await connection.execute(delete(sessions).where(sessions.c.member_id == before.id))
        await connection.execute(update(api_keys).where(api_keys.c.member_id == before.id).values(member_id=None))
        told = {"name": before.name, "role": before.role, "teams": before.teams}
        await audit.write(connection, actor, action="member.end", kind="member", ident=before.email, before=told)


async def new_link(engine: AsyncEngine, email: str, actor: Actor) -> str:
    """The token of a link to set a new password, which ends the link before. The old password works until it is used."""
    link = _new_link()
    async with alone(engine) as (connection, now_us):
        member = await _one(connection, email, None)
        values = _link_values(link, now_us)
        await connection.execute(update(members).where(members.c.id == member.id).values(values))
        await audit.write(connection, actor, action="member.link", kind="member", ident=member.email)
    return link


async def set_password(engine: AsyncEngine, email: str, password_hash: str, actor: Actor) -> None:
    """A new password from its hash; everywhere signed out."""
    async with alone(engine) as (connection, _):
        member = await _one(connection, email, None)
        await put_password(connection, member.id, password_hash)
        await audit.write(connection, actor, action="member.password", kind="member", ident=member.email)


async def put_password(connection: AsyncConnection, member_id: int, password_hash: str) -> None:
    """The hash in, links and sessions out."""
    values = {"password": password_hash, "link_digest": None, "link_expires_at_us": None}
    await connection.execute(update(members).where(members.c.id == member_id).values(values))
    await connection.execute(delete(sessions).where(sessions.c.member_id == member_id))


async def _begin_anew(connection: AsyncConnection, member_id: int, link: Mapping[str, Any]) -> None:
    """No password and no session any more; link: columns of the new one, or of none."""
    await connection.execute(update(members).where(members.c.id == member_id).values(password=None, **link))
    await connection.execute(delete(sessions).where(sessions.c.member_id == member_id))


def link_path(link: str) -> str:
    """Where a link's token sets a password."""
    return f"/console/welcome?link={link}"


def link_digest(link: str) -> bytes:
    """What the table holds of a link's token."""
    return hashlib.sha256(b"link\0" + link.encode()).digest()


async def _tell_added(connection: AsyncConnection, actor: Actor, member: Member, wide: str, places: Mapping[str, tuple[int, str]]) -> None:
    """One row for each team, which its admins see and which names no other; and one for a role of everything, which admins alone see.
    places: team -> (its id, the role in it).
    """
    rows: list[tuple[int | None, dict[str, Any]]] = [(None, {"role": member.role})] if wide else []
    rows += [(team_id, {"teams": {team: role}}) for team, (team_id, role) in places.items()]
    for team_id, told in rows:
        after = {"name": member.name, **told}
        await audit.write(connection, actor, action="member.add", kind="member", ident=member.email, team_id=team_id, after=after)


# ---- inside ------------------------------------------------------------------------------------------------------------------------
def _new_link() -> str:
    return secrets.token_urlsafe(32)


def _link_values(link: str | None, now_us: int) -> dict[str, Any]:
    return {} if link is None else {"link_digest": link_digest(link), "link_expires_at_us": now_us + LINK_S * 1_000_000}


def _checked(new: NewMember) -> str:
    email = normal_email(new.email)
    if len(email) > EMAIL_MAX or not email.isprintable() or _EMAIL.fullmatch(email) is None:
        raise InvalidRequest(f"'{email[:80]}' is no e-mail address: write one such as anna@example.org.", param="email")
    check_text("name", new.name, NAME_MAX)
    _check_role(new.role)
    for name, role in new.teams.items():
        if role not in TEAM_ROLES:
            raise InvalidRequest(f"teams.{name[:80]}: use {' or '.join(TEAM_ROLES)}.", param="teams")
    return email


def _check_role(role: str) -> None:
    if role not in ("", *WIDE_ROLES):
        raise InvalidRequest(f'role: use {" or ".join(WIDE_ROLES)}, or "" for what the teams say.', param="role")


async def _put(connection: AsyncConnection, row: Row[Any] | None, values: Mapping[str, Any]) -> None:
    """A new member, or one who comes back."""
    if row is None:
        await connection.execute(insert(members).values(dict(values)))
    else:
        await connection.execute(update(members).where(members.c.id == row.id).values(dict(values)))


async def _join(connection: AsyncConnection, member_id: int, team_id: int, role: str) -> None:
    await connection.execute(delete(memberships).where(memberships.c.member_id == member_id, memberships.c.team_id == team_id))
    await connection.execute(insert(memberships).values(member_id=member_id, team_id=team_id, role=role))


async def _one(connection: AsyncConnection, email: str, scope: frozenset[int] | None) -> Member:
    email = normal_email(email)
    missing = NotFound(f"There is no member '{email[:80]}': `tollway members list` shows them.", param="email")
    if not email.isprintable():
        raise missing
    which = and_(members.c.email == email, members.c.deleted_at_us.is_(None))
    if scope is not None:
        which = and_(which, members.c.id.in_(select(memberships.c.member_id).where(memberships.c.team_id.in_(scope))))
    found = await _members(connection, which, scope)
    if not found:
        raise missing
    return found[0]


async def _members(connection: AsyncConnection, which: ColumnElement[bool], scope: frozenset[int] | None) -> list[Member]:
    rows = (await connection.execute(select(members).where(which).order_by(members.c.email).limit(LISTED_MAX))).all()
    places = (
        select(memberships.c.member_id, memberships.c.role, teams.c.name)
        .join(teams, teams.c.id == memberships.c.team_id)
        .where(teams.c.deleted_at_us.is_(None), memberships.c.member_id.in_(select(members.c.id).where(which)))
        .order_by(teams.c.name)
    )
    if scope is not None:
        places = places.where(memberships.c.team_id.in_(scope))
    held: dict[int, dict[str, str]] = {}
    for member_id, role, name in await connection.execute(places):
        held.setdefault(member_id, {})[name] = role
    return [
        Member(
            id=row.id,
            email=row.email,
            name=row.name,
            role=row.role,
            teams=held.get(row.id, {}),
            has_password=row.password is not None,
            created_at_us=row.created_at_us,
        )
        for row in rows
    ]
