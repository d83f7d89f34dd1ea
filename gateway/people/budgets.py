"""Budgets of organisations, teams and keys: setting, overriding, listing and lifting them. What is drawn on them, money/ knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Row, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit
from gateway.access import Actor
from gateway.db.engine import reading
from gateway.db.rollup_tables import rollups
from gateway.db.tables import budget_thresholds, budget_windows, budgets
from gateway.errors import InvalidRequest, NotFound
from gateway.instants import future_us
from gateway.money.windows import PERIODS, bounds, zone
from gateway.people.common import (
    LISTED_MAX,
    changing,
    check_id,
    check_managed_row,
    check_model,
    managed_scope,
    now_us_of,
    scope_name,
    visible,
)

ALERTS = (80, 100)  # percents of a new budget whose crossing is told
ALERTS_MAX = 10
ALIKE_MAX = 500  # budgets that one statement asks about
LIMIT_MAX = 1_000_000_000 * 10**9  # nano-USD: a thousand million dollars, far inside 64 bits


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


async def set_budget(engine: AsyncEngine, new: NewBudget, *, actor: Actor) -> Budget:
    """Set the limit of a scope's budget for this model, period and time zone; made when there is none.

    Its windows are opened by whoever first draws on them; one opened in mid-period starts with what the scope has spent in it so far.
    """
    _check_budget(new)
    async with changing(engine) as (connection, now_us):
        scope_id, team_id = await managed_scope(connection, new.scope_kind, new.scope, actor)
        same = and_(
            budgets.c.scope_kind == new.scope_kind,
            budgets.c.scope_id == scope_id,
            budgets.c.model == new.model if new.model is not None else budgets.c.model.is_(None),
            budgets.c.period == new.period,
            budgets.c.timezone == new.timezone,
            budgets.c.deleted_at_us.is_(None),
        )
        before = (await _budgets(connection, now_us, same))[:1]
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
        after = (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]
        await _tell(connection, actor, "budget.set", team_id, before[0] if before else None, after)
        return after


async def _set_alerts(connection: AsyncConnection, budget_id: int, percents: tuple[int, ...]) -> None:
    if percents:
        await connection.execute(insert(budget_thresholds), [{"budget_id": budget_id, "percent": one} for one in sorted(set(percents))])


async def override_budget(engine: AsyncEngine, budget_id: int, limit_nanousd: int, until: str, *, actor: Actor) -> Budget:
    """Another limit for a while; it ends by itself. until: see `instants.instant_us`. An override that runs is replaced."""
    if not 0 <= limit_nanousd <= LIMIT_MAX:
        raise InvalidRequest(f"A limit is 0 to {LIMIT_MAX // 10**9} USD.", param="limit")
    async with changing(engine) as (connection, now_us):
        before, team_id = await _managed(connection, budget_id, now_us, actor)
        values = {"override_nanousd": limit_nanousd, "override_until_us": future_us(until, now_us, "until", "an override")}
        await connection.execute(update(budgets).where(budgets.c.id == budget_id).values(values))
        after = (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]
        await _tell(connection, actor, "budget.override", team_id, before, after)
        return after


async def end_override(engine: AsyncEngine, budget_id: int, *, actor: Actor) -> Budget:
    """The budget's own limit again. Harmless where no override runs."""
    async with changing(engine) as (connection, now_us):
        before, team_id = await _managed(connection, budget_id, now_us, actor)
        await connection.execute(update(budgets).where(budgets.c.id == budget_id).values(override_nanousd=None, override_until_us=None))
        after = (await _budgets(connection, now_us, budgets.c.id == budget_id))[0]
        await _tell(connection, actor, "budget.end_override", team_id, before, after)
        return after


async def list_budgets(engine: AsyncEngine, scope: frozenset[int] | None = None, budget_id: int | None = None) -> list[Budget]:
    """Live budgets with their present windows; with a scope those of its teams and of their keys. budget_id: that one alone; NotFound for
    a number that none can have."""
    which: ColumnElement[bool] = budgets.c.deleted_at_us.is_(None)
    if budget_id is not None:
        check_id(budget_id, _no_budget(budget_id))
        which = and_(which, budgets.c.id == budget_id)
    if scope is not None:
        which = and_(which, visible(budgets, scope))
    async with reading(engine).connect() as connection:
        return await _budgets(connection, await now_us_of(connection), which)


async def delete_budget(engine: AsyncEngine, budget_id: int, *, actor: Actor) -> None:
    """The limit is gone about two seconds later; requests that run settle into its window."""
    async with changing(engine) as (connection, now_us):
        before, team_id = await _managed(connection, budget_id, now_us, actor)
        await connection.execute(update(budgets).where(budgets.c.id == budget_id).values(deleted_at_us=now_us))
        await _tell(connection, actor, "budget.delete", team_id, before, None)


async def _managed(connection: AsyncConnection, budget_id: int, now_us: int, actor: Actor) -> tuple[Budget, int | None]:
    """(a live budget that the actor may change, its team's id)"""
    missing = _no_budget(budget_id)
    check_id(budget_id, missing)
    which = and_(budgets.c.id == budget_id, budgets.c.deleted_at_us.is_(None))
    row = (await connection.execute(select(budgets.c.scope_kind, budgets.c.scope_id).where(which))).one_or_none()
    team_id = await check_managed_row(connection, row, actor, missing)
    return (await _budgets(connection, now_us, which))[0], team_id


async def _tell(
    connection: AsyncConnection, actor: Actor, action: str, team_id: int | None, before: Budget | None, after: Budget | None
) -> None:
    one = after or before
    if one is None:
        raise ValueError("a change has a before or an after")
    ident = f"{one.scope_kind} {one.scope}" + ("" if one.model is None else f" on {one.model}") + f" per {one.period}"
    told = {"before": _fields(before), "after": _fields(after)}
    await audit.write(connection, actor, action=action, kind="budget", ident=ident, team_id=team_id, **told)


def _fields(budget: Budget | None) -> dict[str, Any] | None:
    """What of a budget people set."""
    if budget is None:
        return None
    names = ("limit_nanousd", "override_nanousd", "override_until_us", "timezone", "alerts")
    return {name: getattr(budget, name) for name in names}


def _no_budget(budget_id: int) -> NotFound:
    return NotFound(f"There is no budget {budget_id}: `tollway budgets list` shows each with its number.", param="id")


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
    unopened = await _spent_so_far(connection, [row for row in rows if row.spent is None], now_us)

    def spent(row: Row[Any]) -> int:
        return int(unopened.get(row.id, 0) if row.spent is None else row.spent)

    return [_budget(row, now_us, spent(row), tuple(percents.get(row.id, ()))) for row in rows]


async def _spent_so_far(connection: AsyncConnection, rows: Sequence[Row[Any]], now_us: int) -> dict[int, int]:
    """Budget's id -> nano-USD of its present period by the roll-ups; of none where there is nothing. Those that are alike read together."""
    alike: dict[tuple[str, bool, int], list[Row[Any]]] = {}
    for row in rows:
        since_us = bounds(row.period, row.timezone, now_us)[0]
        alike.setdefault((row.scope_kind, row.model is None, since_us), []).append(row)
    found: dict[int, int] = {}
    for (kind, every, since_us), some in alike.items():
        column = rollups.c[{"organisation": "org_id", "team": "team_id", "key": "key_id"}[kind]]
        keys = (column,) if every else (column, rollups.c.route)
        for first in range(0, len(some), ALIKE_MAX):
            part = some[first : first + ALIKE_MAX]
            ids = sorted({row.scope_id for row in part})
            sums = select(*keys, func.sum(rollups.c.cost)).where(column.in_(ids), rollups.c.bucket_us >= since_us).group_by(*keys)
            spent = {tuple(key): int(cost) for *key, cost in await connection.execute(sums)}
            found |= {row.id: spent.get((row.scope_id,) if every else (row.scope_id, row.model), 0) for row in part}
    return found


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
