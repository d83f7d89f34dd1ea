"""API keys of teams: making, changing, rotating, blocking, listing and ending them. A key's text is given once and stored nowhere.

A rotated key stays the same key with another secret: its budgets, limits and past stay its own, and the secret before works beside the
new one until its day.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs
from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit
from gateway.access import ADMIN, FINANCE, Actor
from gateway.auth import SCOPES, mint
from gateway.db.engine import reading
from gateway.db.tables import api_keys, former_secrets, members, memberships, sessions, teams
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.instants import future_us
from gateway.labels import checked, mapping
from gateway.people.common import LISTED_MAX, MODEL_MAX, changing, check_text, key_ids, managed_team, no_key, no_team, now_us_of, team_id_of

MODELS_MAX = 1000  # names in one key's allow-list
FORMER_MAX = 3  # secrets from before that may work beside a key's own
OVERLAP = "24h"


class Former(Struct, frozen=True, kw_only=True):
    """A secret from before a rotation, which works until its day."""

    public: str
    until_us: int


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret. models: None = all. labels: its own, beside its team's. member: whose it is, None = the team's.

    blocked_at_us: refused since then, until it is unblocked. former: secrets from before a rotation that still work.
    """

    id: int
    public: str
    team: str
    name: str
    scopes: tuple[str, ...]
    models: tuple[str, ...] | None
    tag: str
    labels: dict[str, str]
    member: str | None
    former: tuple[Former, ...]
    created_at_us: int
    expires_at_us: int | None
    blocked_at_us: int | None
    revoked_at_us: int | None


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key is asked to be. expires: see `instants.instant_us`. member: the e-mail of whose it is, None = the team's."""

    team: str
    name: str = ""
    scopes: tuple[str, ...] = ("inference",)
    models: tuple[str, ...] | None = None
    expires: str | None = None
    tag: str = ""
    labels: dict[str, str] = {}
    member: str | None = None


class KeyChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a key becomes otherwise; what is left out stays. models null = all, expires null = never, member null = the team's."""

    name: str | UnsetType = UNSET
    models: tuple[str, ...] | UnsetType | None = UNSET
    expires: str | UnsetType | None = UNSET
    tag: str | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    member: str | UnsetType | None = UNSET


async def add_key(engine: AsyncEngine, secret: bytes, new: NewKey, *, actor: Actor) -> tuple[str, Key]:
    """(the key's text, which is stored nowhere, the key). secret: the first of `auth.load_secrets`."""
    _check_scopes(new.scopes, actor)
    values = _checked({"name": new.name, "models": new.models, "tag": new.tag, "labels": new.labels})
    minted = mint(secret)
    async with changing(engine) as (connection, now_us):
        team_id = await managed_team(connection, new.team, actor)
        statement = insert(api_keys).values(
            team_id=team_id,
            public=minted.public,
            digest=minted.digest,
            scopes=" ".join(sorted(set(new.scopes))),
            created_at_us=now_us,
            expires_at_us=None if new.expires is None else future_us(new.expires, now_us, "expires", "a key"),
            member_id=None if new.member is None else await _member_id(connection, new.member, team_id),
            **values,
        )
        await connection.execute(statement)
        key = (await _listed(connection, now_us, api_keys.c.public == minted.public))[0]
        await _tell(connection, actor, "key.add", team_id, None, key)
    return minted.text, key


async def change_key(engine: AsyncEngine, public: str, change: KeyChange, *, actor: Actor) -> Key:
    """Other words, allow-list, end or owner; every worker sees it within about two seconds."""
    given = {name: value for name, value in structs.asdict(change).items() if value is not UNSET}
    values = _checked(given)
    if not given:
        raise InvalidRequest("Name what changes: name, models, expires, tag, labels or member.")

    async def changed(connection: AsyncConnection, now_us: int, ids: tuple[int, int]) -> Mapping[str, Any]:
        more: dict[str, Any] = {}
        if "expires" in given:
            more["expires_at_us"] = None if given["expires"] is None else future_us(given["expires"], now_us, "expires", "a key")
        if "member" in given:
            more["member_id"] = None if given["member"] is None else await _member_id(connection, given["member"], ids[1])
        return values | more

    return await _alter(engine, public, "key.change", changed, actor)


async def block_key(engine: AsyncEngine, public: str, *, actor: Actor) -> Key:
    """Every worker refuses it within about two seconds, its former secrets too; `unblock_key` undoes it. Twice is harmless."""

    async def changed(_connection: AsyncConnection, now_us: int, _ids: tuple[int, int]) -> Mapping[str, Any]:
        return {"blocked_at_us": func.coalesce(api_keys.c.blocked_at_us, now_us)}

    return await _alter(engine, public, "key.block", changed, actor)


async def unblock_key(engine: AsyncEngine, public: str, *, actor: Actor) -> Key:
    """It works again, within about two seconds. Harmless for one that is not blocked."""

    async def changed(_connection: AsyncConnection, _now_us: int, _ids: tuple[int, int]) -> Mapping[str, Any]:
        return {"blocked_at_us": None}

    return await _alter(engine, public, "key.unblock", changed, actor)


async def rotate_key(engine: AsyncEngine, secret: bytes, public: str, overlap: str | None = OVERLAP, *, actor: Actor) -> tuple[str, Key]:
    """(the key's new text, the key). overlap: until when the secret before works too, see `instants.instant_us`; None = no longer."""
    minted = mint(secret)

    async def changed(connection: AsyncConnection, now_us: int, ids: tuple[int, int]) -> Mapping[str, Any]:
        if overlap is None:
            await connection.execute(delete(sessions).where(sessions.c.key_id == ids[0]))  # opened with a secret that ends now
        else:
            until_us = future_us(overlap, now_us, "overlap", "an overlap")
            row = (await connection.execute(select(api_keys.c.public, api_keys.c.digest).where(api_keys.c.id == ids[0]))).one()
            kept = {"public": row.public, "digest": row.digest, "key_id": ids[0], "until_us": until_us}
            ended = former_secrets.c.key_id == ids[0], former_secrets.c.until_us <= now_us
            await connection.execute(delete(former_secrets).where(*ended))
            await connection.execute(insert(former_secrets).values(kept))
            count = select(func.count()).select_from(former_secrets).where(former_secrets.c.key_id == ids[0])
            if (await connection.execute(count)).scalar_one() > FORMER_MAX:
                raise InvalidRequest(f"{FORMER_MAX} secrets from before still work beside this one: revoke one of them first.", status=409)
        return {"public": minted.public, "digest": minted.digest}

    return minted.text, await _alter(engine, public, "key.rotate", changed, actor)


async def revoke_key(engine: AsyncEngine, public: str, *, actor: Actor) -> Key:
    """End a key on every worker within about two seconds. public: its 12 characters, or the whole of it. Twice is harmless.

    The public part of a secret from before a rotation ends that secret alone.
    """
    told = public.removeprefix("tw-")[:12]
    if not told.isprintable():
        raise no_key(told)
    async with changing(engine) as (connection, now_us):
        former = (await connection.execute(select(former_secrets.c.key_id).where(former_secrets.c.public == told))).scalar_one_or_none()
        which = api_keys.c.public == told if former is None else api_keys.c.id == former
        row = (await connection.execute(select(api_keys.c.id, api_keys.c.team_id).where(which))).one_or_none()
        if row is None or not actor.sees(row.team_id):
            raise no_key(told)
        _check_manages(actor, row.team_id)
        before = (await _listed(connection, now_us, which))[0]
        _check_scopes(before.scopes, actor)
        if former is not None:
            await connection.execute(delete(former_secrets).where(former_secrets.c.public == told))
            await connection.execute(delete(sessions).where(sessions.c.key_id == former))  # which secret opened one is not kept
        else:
            await connection.execute(update(api_keys).where(which, api_keys.c.revoked_at_us.is_(None)).values(revoked_at_us=now_us))
            await connection.execute(delete(former_secrets).where(former_secrets.c.key_id == row.id))
        key = (await _listed(connection, now_us, which))[0]
        await _tell(connection, actor, "key.revoke", row.team_id, before, key)
    return key


async def list_keys(
    engine: AsyncEngine, team: str | None = None, scope: frozenset[int] | None = None, *, member_id: int | None = None
) -> list[Key]:
    """Keys of one team or of all, revoked ones included, oldest first; with a scope those of its teams. member_id: that one's alone."""
    which: list[ColumnElement[bool]] = [] if scope is None else [api_keys.c.team_id.in_(scope)]
    if member_id is not None:
        which.append(api_keys.c.member_id == member_id)
    async with reading(engine).connect() as connection:
        if team is not None:
            team_id = await team_id_of(connection, team)
            if scope is not None and team_id not in scope:
                raise no_team(team)
            which.append(api_keys.c.team_id == team_id)
        return await _listed(connection, await now_us_of(connection), *which)


# ---- inside ------------------------------------------------------------------------------------------------------------------------
Changed = Callable[[AsyncConnection, int, tuple[int, int]], Awaitable[Mapping[str, Any]]]


async def _alter(engine: AsyncEngine, public: str, action: str, changed: Changed, actor: Actor) -> Key:
    """A change of one live key that the actor may change. changed: (connection, now, (key's id, team's id)) -> its new values."""
    async with changing(engine) as (connection, now_us):
        ids = await key_ids(connection, public, actor)
        _check_manages(actor, ids[1])
        this = api_keys.c.id == ids[0]
        before = (await _listed(connection, now_us, this))[0]
        _check_scopes(before.scopes, actor)
        await connection.execute(update(api_keys).where(this).values(dict(await changed(connection, now_us, ids))))
        key = (await _listed(connection, now_us, this))[0]
        await _tell(connection, actor, action, ids[1], before, key)
    return key


def _check_manages(actor: Actor, team_id: int) -> None:
    if not actor.manages(team_id):
        raise Forbidden("This changes a key of a team: its team admins and admins may.", code="role_required")


def _check_scopes(scopes: tuple[str, ...], actor: Actor) -> None:
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidRequest(f"There is no scope '{scope[:80]}': use {', '.join(SCOPES)}.", param="scopes")
        if scope in (ADMIN, FINANCE) and actor.role != ADMIN:
            raise Forbidden(f"A key with the scope {scope} is an admin's to make and change.", code="role_required")
    if not scopes:
        raise InvalidRequest(f"A key without a scope can do nothing: give one or more of {', '.join(SCOPES)}.", param="scopes")


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of those of name, models, tag and labels that are given."""
    values: dict[str, Any] = {name: given[name] for name in ("name", "tag") if name in given}
    for name, most in (("name", 200), ("tag", 64)):
        check_text(name, values.get(name, ""), most)
    if "models" in given:
        models = given["models"]
        if models is not None and (not models or len(models) > MODELS_MAX or not all(models)):
            raise InvalidRequest(f"models: name 1 to {MODELS_MAX} routes or upstream models, or leave it out for all.", param="models")
        for position, name in enumerate(models or ()):
            check_text(f"models[{position}]", name, MODEL_MAX)
        values["models"] = None if models is None else msgspec.json.encode(models).decode()
    if "labels" in given:
        values["labels"] = checked(given["labels"], "labels")
    return values


async def _member_id(connection: AsyncConnection, email: str, team_id: int) -> int:
    """Somebody of the key's team."""
    email = email.strip().lower()
    missing = NotFound(f"There is no member '{email[:80]}' in this team.", param="member")
    if not email.isprintable():
        raise missing
    inside = memberships.c.member_id == members.c.id, memberships.c.team_id == team_id
    which = select(members.c.id).where(members.c.email == email, members.c.deleted_at_us.is_(None), *inside)
    found = (await connection.execute(which)).scalar_one_or_none()
    if found is None:
        raise missing
    return int(found)


async def _listed(connection: AsyncConnection, now_us: int, *which: ColumnElement[bool]) -> list[Key]:
    names = (
        "id",
        "public",
        "name",
        "scopes",
        "models",
        "tag",
        "labels",
        "created_at_us",
        "expires_at_us",
        "blocked_at_us",
        "revoked_at_us",
    )
    statement = (
        select(*(api_keys.c[name] for name in names), teams.c.name.label("team"), members.c.email.label("member"))
        .join(teams, teams.c.id == api_keys.c.team_id)
        .join(members, members.c.id == api_keys.c.member_id, isouter=True)
        .where(*which)
        .order_by(api_keys.c.id)
        .limit(LISTED_MAX)
    )
    rows = (await connection.execute(statement)).all()
    before = select(former_secrets.c.key_id, former_secrets.c.public, former_secrets.c.until_us)
    mine = former_secrets.c.key_id == api_keys.c.id, former_secrets.c.until_us > now_us
    former: dict[int, list[Former]] = {}
    for row in await connection.execute(before.where(*mine, *which).order_by(former_secrets.c.until_us)):
        former.setdefault(row.key_id, []).append(Former(public=row.public, until_us=row.until_us))
    return [_key(row, tuple(former.get(row.id, ()))) for row in rows]


def _key(row: Any, former: tuple[Former, ...]) -> Key:
    return Key(
        id=row.id,
        public=row.public,
        team=row.team,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        models=None if row.models is None else msgspec.json.decode(row.models, type=tuple[str, ...]),
        tag=row.tag,
        labels=mapping(row.labels, "labels"),
        member=row.member,
        former=former,
        created_at_us=row.created_at_us,
        expires_at_us=row.expires_at_us,
        blocked_at_us=row.blocked_at_us,
        revoked_at_us=row.revoked_at_us,
    )


async def _tell(connection: AsyncConnection, actor: Actor, action: str, team_id: int, before: Key | None, after: Key) -> None:
    told = {"before": None if before is None else _fields(before), "after": _fields(after)}
    await audit.write(connection, actor, action=action, kind="key", ident=(before or after).public, team_id=team_id, **told)


def _fields(key: Key) -> dict[str, Any]:
    """What of a key people set."""
    told = {name: value for name, value in structs.asdict(key).items() if name not in ("id", "team", "created_at_us")}
    return told | {"former": [one.public for one in key.former]}
