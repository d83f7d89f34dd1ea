"""Rate limits of organisations, teams and keys: setting, listing and lifting them. The command line and the admin API both call this.

Workers see a change about a second later. Knows no counting (money/limits.py) and no HTTP.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit
from gateway.access import Actor
from gateway.db.engine import reading
from gateway.db.tables import limits
from gateway.errors import InvalidRequest, NotFound
from gateway.people.common import LISTED_MAX, changing, check_id, check_managed_row, check_model, managed_scope, scope_name, visible

FIGURE_MAX = 10**12


class NewLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """scope_kind: organisation | team | key. scope: a name, or a key's public part. model: a route's name, None = all.

    rpm: requests per minute, tpm: tokens per minute, parallel: requests at once; None = not limited.
    """

    scope_kind: str
    scope: str
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    model: str | None = None


class Limit(Struct, frozen=True, kw_only=True):
    id: int
    scope_kind: str
    scope: str
    model: str | None
    rpm: int | None
    tpm: int | None
    parallel: int | None


async def set_limit(engine: AsyncEngine, new: NewLimit, *, actor: Actor) -> Limit:
    """Set all three figures of a scope and route; made when there is none."""
    figures = {"rpm": new.rpm, "tpm": new.tpm, "parallel": new.parallel}
    if all(figure is None for figure in figures.values()):
        raise InvalidRequest("Set at least one of rpm, tpm and parallel; to lift a limit, delete it.", param="rpm")
    for name, figure in figures.items():
        if figure is not None and not 0 <= figure <= FIGURE_MAX:
            raise InvalidRequest(f"{name}: a limit is 0 to {FIGURE_MAX}.", param=name)
    check_model(new.model)
    async with changing(engine) as (connection, now_us):
        scope_id, team_id = await managed_scope(connection, new.scope_kind, new.scope, actor)
        same = and_(
            limits.c.scope_kind == new.scope_kind,
            limits.c.scope_id == scope_id,
            limits.c.model == new.model if new.model is not None else limits.c.model.is_(None),
            limits.c.deleted_at_us.is_(None),
        )
        before = (await _limits(connection, same))[:1]
        limit_id = (await connection.execute(update(limits).where(same).values(figures).returning(limits.c.id))).scalar_one_or_none()
        if limit_id is None:
            made = insert(limits).values(scope_kind=new.scope_kind, scope_id=scope_id, model=new.model, created_at_us=now_us, **figures)
            limit_id = (await connection.execute(made.returning(limits.c.id))).scalar_one()
        after = (await _limits(connection, limits.c.id == limit_id))[0]
        await _tell(connection, actor, "limit.set", team_id, before[0] if before else None, after)
        return after


async def list_limits(engine: AsyncEngine, scope: frozenset[int] | None = None) -> list[Limit]:
    """Live limits, oldest first; with a scope those of its teams and of their keys."""
    which: ColumnElement[bool] = limits.c.deleted_at_us.is_(None)
    if scope is not None:
        which = and_(which, visible(limits, scope))
    async with reading(engine).connect() as connection:
        return await _limits(connection, which)


async def delete_limit(engine: AsyncEngine, limit_id: int, *, actor: Actor) -> None:
    """The limit is gone about two seconds later."""
    missing = NotFound(f"There is no limit {limit_id}: `tollway limits list` shows each with its number.", param="id")
    check_id(limit_id, missing)
    which = and_(limits.c.id == limit_id, limits.c.deleted_at_us.is_(None))
    async with changing(engine) as (connection, now_us):
        row = (await connection.execute(select(limits.c.scope_kind, limits.c.scope_id).where(which))).one_or_none()
        team_id = await check_managed_row(connection, row, actor, missing)
        before = (await _limits(connection, which))[0]
        await connection.execute(update(limits).where(which).values(deleted_at_us=now_us))
        await _tell(connection, actor, "limit.delete", team_id, before, None)


async def _tell(
    connection: AsyncConnection, actor: Actor, action: str, team_id: int | None, before: Limit | None, after: Limit | None
) -> None:
    one = after or before
    if one is None:
        raise ValueError("a change has a before or an after")
    ident = f"{one.scope_kind} {one.scope}" + ("" if one.model is None else f" on {one.model}")
    told = {"before": _fields(before), "after": _fields(after)}
    await audit.write(connection, actor, action=action, kind="limit", ident=ident, team_id=team_id, **told)


def _fields(limit: Limit | None) -> dict[str, int | None] | None:
    return None if limit is None else {"rpm": limit.rpm, "tpm": limit.tpm, "parallel": limit.parallel}


async def _limits(connection: AsyncConnection, which: ColumnElement[bool]) -> list[Limit]:
    statement = select(limits, scope_name(limits).label("scope")).where(which).order_by(limits.c.id).limit(LISTED_MAX)
    return [
        Limit(id=r.id, scope_kind=r.scope_kind, scope=r.scope, model=r.model, rpm=r.rpm, tpm=r.tpm, parallel=r.parallel)
        for r in await connection.execute(statement)
    ]
