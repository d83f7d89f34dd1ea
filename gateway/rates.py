"""Rate limits of organisations, teams and keys: setting, listing and lifting them. The command line and the admin API both call this.

Workers see a change about a second later. Knows no counting (money/limits.py) and no HTTP.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import reading
from gateway.db.tables import limits
from gateway.errors import InvalidRequest, NotFound
from gateway.people.common import LISTED_MAX, changing, check_id, check_model, scope_id_of, scope_name

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


async def set_limit(engine: AsyncEngine, new: NewLimit) -> Limit:
    """Set all three figures of a scope and route; made when there is none."""
    figures = {"rpm": new.rpm, "tpm": new.tpm, "parallel": new.parallel}
    if all(figure is None for figure in figures.values()):
        raise InvalidRequest("Set at least one of rpm, tpm and parallel; to lift a limit, delete it.", param="rpm")
    for name, figure in figures.items():
        if figure is not None and not 0 <= figure <= FIGURE_MAX:
            raise InvalidRequest(f"{name}: a limit is 0 to {FIGURE_MAX}.", param=name)
    check_model(new.model)
    async with changing(engine) as (connection, now_us):
        scope_id = await scope_id_of(connection, new.scope_kind, new.scope)
        same = and_(
            limits.c.scope_kind == new.scope_kind,
            limits.c.scope_id == scope_id,
            limits.c.model == new.model if new.model is not None else limits.c.model.is_(None),
            limits.c.deleted_at_us.is_(None),
        )
        limit_id = (await connection.execute(update(limits).where(same).values(figures).returning(limits.c.id))).scalar_one_or_none()
        if limit_id is None:
            made = insert(limits).values(scope_kind=new.scope_kind, scope_id=scope_id, model=new.model, created_at_us=now_us, **figures)
            limit_id = (await connection.execute(made.returning(limits.c.id))).scalar_one()
        return (await _limits(connection, limits.c.id == limit_id))[0]


async def list_limits(engine: AsyncEngine) -> list[Limit]:
    """Live limits, oldest first."""
    async with reading(engine).connect() as connection:
        return await _limits(connection, limits.c.deleted_at_us.is_(None))


async def delete_limit(engine: AsyncEngine, limit_id: int) -> None:
    """The limit is gone about two seconds later."""
    missing = NotFound(f"There is no limit {limit_id}: `tollway limits list` shows each with its number.", param="id")
    check_id(limit_id, missing)
    async with changing(engine) as (connection, now_us):
        ended = update(limits).where(limits.c.id == limit_id, limits.c.deleted_at_us.is_(None)).values(deleted_at_us=now_us)
        if (await connection.execute(ended)).rowcount == 0:
            raise missing


async def _limits(connection: AsyncConnection, which: ColumnElement[bool]) -> list[Limit]:
    statement = select(limits, scope_name(limits).label("scope")).where(which).order_by(limits.c.id).limit(LISTED_MAX)
    return [
        Limit(id=r.id, scope_kind=r.scope_kind, scope=r.scope, model=r.model, rpm=r.rpm, tpm=r.tpm, parallel=r.parallel)
        for r in await connection.execute(statement)
    ]
