"""API keys of teams: making, listing and ending them. A key's text is given once and stored nowhere."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.auth import SCOPES, mint
from gateway.db.engine import reading
from gateway.db.tables import api_keys, teams
from gateway.errors import InvalidRequest, NotFound
from gateway.instants import future_us
from gateway.labels import checked, mapping
from gateway.people.common import LISTED_MAX, MODEL_MAX, changing, check_text, team_id_of

MODELS_MAX = 1000  # names in one key's allow-list


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret. models: None = all. labels: its own, beside its team's."""

    id: int
    public: str
    team: str
    name: str
    scopes: tuple[str, ...]
    models: tuple[str, ...] | None
    tag: str
    labels: dict[str, str]
    created_at_us: int
    expires_at_us: int | None
    revoked_at_us: int | None


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key is asked to be. expires: see `instants.instant_us`."""

    team: str
    name: str = ""
    scopes: tuple[str, ...] = ("inference",)
    models: tuple[str, ...] | None = None
    expires: str | None = None
    tag: str = ""
    labels: dict[str, str] = {}


async def add_key(engine: AsyncEngine, secret: bytes, new: NewKey) -> tuple[str, Key]:
    """(the key's text, which is stored nowhere, the key). secret: the first of `auth.load_secrets`."""
    for scope in new.scopes:
        if scope not in SCOPES:
            raise InvalidRequest(f"There is no scope '{scope}': use {', '.join(SCOPES)}.", param="scopes")
    if not new.scopes:
        raise InvalidRequest(f"A key without a scope can do nothing: give one or more of {', '.join(SCOPES)}.", param="scopes")
    if new.models is not None and (not new.models or len(new.models) > MODELS_MAX or not all(new.models)):
        raise InvalidRequest(f"models: name 1 to {MODELS_MAX} routes or upstream models, or leave it out for all.", param="models")
    for position, name in enumerate(new.models or ()):
        check_text(f"models[{position}]", name, MODEL_MAX)
    check_text("name", new.name, 200)
    check_text("tag", new.tag, 64)
    labels = checked(new.labels, "labels")
    minted = mint(secret)
    async with changing(engine) as (connection, now_us):
        team_id = await team_id_of(connection, new.team)
        expires_at_us = None if new.expires is None else future_us(new.expires, now_us, "expires", "a key")
        statement = insert(api_keys).values(
            team_id=team_id,
            public=minted.public,
            digest=minted.digest,
            name=new.name,
            scopes=" ".join(sorted(set(new.scopes))),
            models=None if new.models is None else msgspec.json.encode(new.models).decode(),
            tag=new.tag,
            labels=labels,
            created_at_us=now_us,
            expires_at_us=expires_at_us,
        )
        await connection.execute(statement)
        row = (await connection.execute(_keys().where(api_keys.c.public == minted.public))).one()
    return minted.text, _key(row)


async def list_keys(engine: AsyncEngine, team: str | None = None) -> list[Key]:
    """Keys of one team or of all, revoked ones included, oldest first."""
    statement = _keys().order_by(api_keys.c.id).limit(LISTED_MAX)
    async with reading(engine).connect() as connection:
        if team is not None:
            statement = statement.where(api_keys.c.team_id == await team_id_of(connection, team))
        return [_key(row) for row in await connection.execute(statement)]


async def revoke_key(engine: AsyncEngine, public: str) -> Key:
    """End a key on every worker within about two seconds. public: its 12 characters, or the whole of it. Twice is harmless."""
    public = public.removeprefix("tw-")[:12]
    missing = NotFound(f"There is no key '{public}': `tollway keys list` shows the public part of each.", param="key")
    if not public.isprintable():
        raise missing
    async with changing(engine) as (connection, now_us):
        ended = api_keys.c.public == public, api_keys.c.revoked_at_us.is_(None)
        await connection.execute(update(api_keys).where(*ended).values(revoked_at_us=now_us))
        row = (await connection.execute(_keys().where(api_keys.c.public == public))).one_or_none()
        if row is None:
            raise missing
    return _key(row)


def _keys() -> Any:
    names = ("id", "public", "name", "scopes", "models", "tag", "labels", "created_at_us", "expires_at_us", "revoked_at_us")
    return select(*(api_keys.c[name] for name in names), teams.c.name.label("team")).join(teams, teams.c.id == api_keys.c.team_id)


def _key(row: Row[Any]) -> Key:
    return Key(
        id=row.id,
        public=row.public,
        team=row.team,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        models=None if row.models is None else msgspec.json.decode(row.models, type=tuple[str, ...]),
        tag=row.tag,
        labels=mapping(row.labels, "labels"),
        created_at_us=row.created_at_us,
        expires_at_us=row.expires_at_us,
        revoked_at_us=row.revoked_at_us,
    )
