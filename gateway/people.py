"""Organisations, teams, API keys and their budgets: making, listing and ending them. The command line and the admin API both call this.

Every change moves `catalog_version` in its own transaction, so that all workers see it about a second later. Knows no request and no HTTP;
what cannot be done is a GatewayError that says what to do.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Row, Table, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.auth import SCOPES, mint
from gateway.db.engine import clock_us, reading
from gateway.db.tables import api_keys, budget_thresholds, budget_windows, budgets, catalog_version, organisations, rollups, teams
from gateway.errors import InvalidRequest, NotFound
from gateway.instants import future_us
from gateway.labels import checked, mapping
from gateway.money.windows import PERIODS, bounds, zone

DEFAULT_ORG = "default"
ALERTS = (80, 100)  # percents of a new budget whose crossing is told
ALERTS_MAX = 10
MODEL_MAX = 200  # characters of a route's or model's name
MODELS_MAX = 1000  # names in one key's allow-list
LISTED_MAX = 100_000  # rows of one listing
LIMIT_MAX = 1_000_000_000 * 10**9  # nano-USD: a thousand million dollars, far inside 64 bits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Team(Struct, frozen=True, kw_only=True):
    """labels: what the backend of each of its requests must carry."""

    id: int
    name: str
    org: str
    labels: dict[str, str]
    created_at_us: int


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


class NewBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """scope_kind: organisation | team | key. scope: a name, or a key's public part. model: a route's name, None = all.

    alerts: percents of the limit whose crossing is told; None = as they are, ALERTS of a new budget.
    """

    scope_kind: str
    scope: str
    limit_nanousd: int
    period: str
    timezone: str = "UTC"
    model: str | None = None
    alerts: tuple[int, ...] | None = None


class Budget(Struct, frozen=True, kw_only=True):
    """A live budget with its present window: what is spent, and what processes hold of it for requests.

    override, override_until: None where none runs. alerts: percents whose crossing is told.
    """

    id: int
    scope_kind: str
    scope: str
    model: str | None
    period: str
    timezone: str
    limit_nanousd: int
    override_nanousd: int | None
    override_until_us: int | None
    spent_nanousd: int
    leased_nanousd: int
    resets_at_us: int | None
    alerts: tuple[int, ...]

    @property
    def cap_nanousd(self) -> int:
        """The limit that holds now."""
        return self.limit_nanousd if self.override_nanousd is None else self.override_nanousd

    @property
    def ceiling_nanousd(self) -> int:
        """The most that the present window can come to."""
        return max(self.cap_nanousd, self.spent_nanousd + self.leased_nanousd)


# ---- teams -------------------------------------------------------------------------------------------------------------------------
async def add_team(engine: AsyncEngine, name: str, org: str = DEFAULT_ORG, labels: Mapping[str, str] | None = None) -> Team:
    """A new team; its organisation is made with the first one."""
    asked = checked(labels or {}, "labels")
    _check_name("team", name)
    _check_name("organisation", org)
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
    return Team(id=team_id, name=name, org=org, labels=mapping(asked, "labels"), created_at_us=now_us)


async def label_team(engine: AsyncEngine, name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Other labels for a team, none = no longer any; every worker asks for them within about two seconds."""
    asked = checked(labels, "labels")
    async with changing(engine) as (connection, _):
        await connection.execute(update(teams).where(teams.c.id == await _team_id(connection, name)).values(labels=asked))
    return mapping(asked, "labels")


async def list_teams(engine: AsyncEngine) -> list[Team]:
    """Live teams by name."""
    statement = (
        select(teams.c.id, teams.c.name, organisations.c.name.label("org"), teams.c.labels, teams.c.created_at_us)
        .join(organisations, organisations.c.id == teams.c.org_id)
        .where(teams.c.deleted_at_us.is_(None))
        .order_by(teams.c.name)
        .limit(LISTED_MAX)
    )
    async with reading(engine).connect() as connection:
        rows = await connection.execute(statement)
        return [Team(id=r.id, name=r.name, org=r.org, labels=mapping(r.labels, "labels"), created_at_us=r.created_at_us) for r in rows]


async def delete_team(engine: AsyncEngine, name: str) -> None:
    """Its keys stop working on every worker; its ledger stays."""
    if _NAME.fullmatch(name) is None:
        raise _no_team(name)
    async with changing(engine) as (connection, now_us):
        gone = await connection.execute(
            update(teams).where(teams.c.name == name, teams.c.deleted_at_us.is_(None)).values(deleted_at_us=now_us)
        )
        if gone.rowcount == 0:
            raise _no_team(name)


# ---- keys --------------------------------------------------------------------------------------------------------------------------
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
        team_id = await _team_id(connection, new.team)
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
            statement = statement.where(api_keys.c.team_id == await _team_id(connection, team))
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


# ---- budgets -----------------------------------------------------------------------------------------------------------------------
async def set_budget(engine: AsyncEngine, new: NewBudget) -> Budget:
    """Set the limit of a scope's budget for this model, period and time zone; made when there is none.

    Its windows are opened by whoever first draws on them; one opened in mid-period starts with what the scope has spent in it so far.
    """
    _check_budget(new)
    async with changing(engine) as (connection, now_us):
        scope_id = await scope_id_of(connection, new.scope_kind, new.scope)
        same = and_(
            budgets.c.scope_kind == new.scope_kind,
            budgets.c.scope_id == scope_id,
            budgets.c.model == new.model if new.model is not None else budgets.c.model.is_(None),
            budgets.c.period == new.period,
            budgets.c.timezone == new.timezone,
            budgets.c.deleted_at_us.is_(None),
        )
        changed = update(budgets).where(same).values(limit_nanousd=new.limit_nanousd).returning(budgets.c.id)
        budget_id = (await connection.execute(changed)).scalar_one_or_none()
        if budget_id is None:
            made = insert(budgets).values(
                scope_kind=new.scope_kind,
                scope_id=scope_id,
                model=new.model,
                period=new.period,
                timezone=new.timezone,
                limit_nanousd=new.limit_nanousd,
                created_at_us=now_us,
            )
            budget_id = (await connection.execute(made.returning(budgets.c.id))).scalar_one()
            await _set_alerts(connection, budget_id, ALERTS if new.alerts is None else new.alerts)
        elif new.alerts is not None:
            await connection.execute(delete(budget_thresholds).where(budget_thresholds.c.budget_id == budget_id))
            await _set_alerts(connection, budget_id, new.alerts)
        return (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]


async def _set_alerts(connection: AsyncConnection, budget_id: int, percents: tuple[int, ...]) -> None:
    if percents:
        await connection.execute(insert(budget_thresholds), [{"budget_id": budget_id, "percent": one} for one in sorted(set(percents))])


async def override_budget(engine: AsyncEngine, budget_id: int, limit_nanousd: int, until: str) -> Budget:
    """Another limit for a while; it ends by itself. until: see `instants.instant_us`. An override that runs is replaced."""
    if not 0 <= limit_nanousd <= LIMIT_MAX:
        raise InvalidRequest(f"A limit is 0 to {LIMIT_MAX // 10**9} USD.", param="limit")
    check_id(budget_id, _no_budget(budget_id))
    async with changing(engine) as (connection, now_us):
        values = {"override_nanousd": limit_nanousd, "override_until_us": future_us(until, now_us, "until", "an override")}
        changed = update(budgets).where(budgets.c.id == budget_id, budgets.c.deleted_at_us.is_(None)).values(values)
        if (await connection.execute(changed)).rowcount == 0:
            raise _no_budget(budget_id)
        return (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]


async def end_override(engine: AsyncEngine, budget_id: int) -> Budget:
    """The budget's own limit again. Harmless where no override runs."""
    check_id(budget_id, _no_budget(budget_id))
    async with changing(engine) as (connection, now_us):
        values = {"override_nanousd": None, "override_until_us": None}
        changed = update(budgets).where(budgets.c.id == budget_id, budgets.c.deleted_at_us.is_(None)).values(values)
        if (await connection.execute(changed)).rowcount == 0:
            raise _no_budget(budget_id)
        return (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]


async def list_budgets(engine: AsyncEngine) -> list[Budget]:
    """Live budgets with their present windows."""
    async with reading(engine).connect() as connection:
        return await _budgets(connection, await _now_us(connection), budgets.c.deleted_at_us.is_(None))


async def delete_budget(engine: AsyncEngine, budget_id: int) -> None:
    """The limit is gone about two seconds later; requests that run settle into its window."""
    check_id(budget_id, _no_budget(budget_id))
    async with changing(engine) as (connection, now_us):
        ended = update(budgets).where(budgets.c.id == budget_id, budgets.c.deleted_at_us.is_(None)).values(deleted_at_us=now_us)
        if (await connection.execute(ended)).rowcount == 0:
            raise _no_budget(budget_id)


# ---- inside ------------------------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def changing(engine: AsyncEngine) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """A transaction that moves the version which workers poll, and the database's time in it."""
    async with engine.begin() as connection:
        await connection.execute(update(catalog_version).values(version=catalog_version.c.version + 1))
        yield connection, await _now_us(connection)


async def _now_us(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())


def _check_name(kind: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"'{name[:80]}' cannot name a {kind}: use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first.",
            param="name",
        )


def _no_team(name: str) -> NotFound:
    told = name[:80]
    return NotFound(f"There is no team '{told}': `tollway teams list` shows them, `tollway teams add {told}` makes it.", param="team")


async def _team_id(connection: AsyncConnection, name: str) -> int:
    if _NAME.fullmatch(name) is None:
        raise _no_team(name)
    statement = select(teams.c.id).where(teams.c.name == name, teams.c.deleted_at_us.is_(None))
    found = (await connection.execute(statement)).scalar_one_or_none()
    if found is None:
        raise _no_team(name)
    return int(found)


def _no_budget(budget_id: int) -> NotFound:
    return NotFound(f"There is no budget {budget_id}: `tollway budgets list` shows each with its number.", param="id")


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


def _check_budget(new: NewBudget) -> None:
    if new.period not in PERIODS:
        raise InvalidRequest(f"There is no period '{new.period}': use {', '.join(PERIODS)}.", param="period")
    if not 0 <= new.limit_nanousd <= LIMIT_MAX:
        raise InvalidRequest(f"A limit is 0 to {LIMIT_MAX // 10**9} USD.", param="limit")
    if new.alerts is not None and (len(new.alerts) > ALERTS_MAX or not all(1 <= percent <= 100 for percent in new.alerts)):
        raise InvalidRequest(f"alerts: at most {ALERTS_MAX} percents between 1 and 100, or none.", param="alerts")
    check_model(new.model)
    try:
        zone(new.timezone)
    except ValueError as error:
        raise InvalidRequest(f"timezone: {error}.", param="timezone") from error


async def scope_id_of(connection: AsyncConnection, kind: str, name: str) -> int:
    """The id of what a budget or limit is for."""
    if kind == "team":
        return await _team_id(connection, name)
    if kind == "organisation":
        statement = select(organisations.c.id).where(organisations.c.name == name)
    elif kind == "key":
        name = name.removeprefix("tw-")[:12]
        statement = select(api_keys.c.id).where(api_keys.c.public == name, api_keys.c.revoked_at_us.is_(None))
    else:
        raise InvalidRequest(f"There is no scope '{kind}': use organisation, team or key.", param="scope_kind")
    found = (await connection.execute(statement)).scalar_one_or_none() if name.isprintable() else None
    if found is None:
        raise NotFound(f"There is no {kind} '{name[:80]}'.", param="scope")
    return int(found)


async def _budgets(connection: AsyncConnection, now_us: int, which: ColumnElement[bool]) -> list[Budget]:
    """Budgets with the window that holds now. Where nobody has opened it yet: with what opening it would book."""
    window = budget_windows.c
    present = and_(
        window.budget_id == budgets.c.id, window.starts_at_us <= now_us, or_(window.ends_at_us.is_(None), window.ends_at_us > now_us)
    )
    statement = (
        select(budgets, window.spent, window.leased, scope_name(budgets).label("scope"))
        .join(budget_windows, present, isouter=True)
        .where(which)
        .order_by(budgets.c.id)
        .limit(LISTED_MAX)
    )
    rows = (await connection.execute(statement)).all()
    percents: dict[int, list[int]] = {}
    listed = select(budget_thresholds).where(budget_thresholds.c.budget_id.in_(select(budgets.c.id).where(which)))
    for budget_id, percent in await connection.execute(listed.order_by(budget_thresholds.c.percent)):
        percents.setdefault(budget_id, []).append(percent)
    found = []
    for row in rows:
        spent = await _spent_so_far(connection, row, now_us) if row.spent is None else row.spent
        found.append(_budget(row, now_us, spent, tuple(percents.get(row.id, ()))))
    return found


async def _spent_so_far(connection: AsyncConnection, budget: Row[Any], now_us: int) -> int:
    column = rollups.c[{"organisation": "org_id", "team": "team_id", "key": "key_id"}[budget.scope_kind]]
    conditions = [column == budget.scope_id, rollups.c.bucket_us >= bounds(budget.period, budget.timezone, now_us)[0]]
    if budget.model is not None:
        conditions.append(rollups.c.route == budget.model)
    return int((await connection.execute(select(func.coalesce(func.sum(rollups.c.cost), 0)).where(*conditions))).scalar_one())


def scope_name(table: Table) -> ColumnElement[str]:
    """What a budget or limit is for, as people call it."""
    columns = {"organisation": organisations.c.name, "team": teams.c.name, "key": api_keys.c.public}
    names = {
        kind: select(column).where(column.table.c.id == table.c.scope_id).correlate(table).scalar_subquery()
        for kind, column in columns.items()
    }
    return case(names, value=table.c.scope_kind)


def _budget(row: Row[Any], now_us: int, spent: int, alerts: tuple[int, ...]) -> Budget:
    overridden = row.override_nanousd is not None and row.override_until_us is not None and row.override_until_us > now_us
    return Budget(
        id=row.id,
        scope_kind=row.scope_kind,
        scope=row.scope,
        model=row.model,
        period=row.period,
        timezone=row.timezone,
        limit_nanousd=row.limit_nanousd,
        override_nanousd=row.override_nanousd if overridden else None,
        override_until_us=row.override_until_us if overridden else None,
        spent_nanousd=spent,
        leased_nanousd=0 if row.leased is None else row.leased,
        resets_at_us=bounds(row.period, row.timezone, now_us)[1],
        alerts=alerts,
    )
