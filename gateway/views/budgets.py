"""A budget over its period: what was left at each step, what is expected to be left, and when nothing is. Reads roll-ups and windows."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import snapshot
from gateway.db.tables import budgets
from gateway.errors import NotFound
from gateway.money import forecast
from gateway.money.forecast import OfBudget
from gateway.money.ledger import BUCKET_US, DAY_US
from gateway.money.windows import zone
from gateway.views.series import joined, series, steps

WITHOUT_END_US = 30 * DAY_US  # of a budget for all time so much is drawn
WEEK_US = 7 * DAY_US


class Burn(Struct, frozen=True, kw_only=True):
    """nano-USD. x: instants in µs, the present among them. left: until now; expected, low, high: what is left from now on, not under 0;
    pace: an even spend. daily: spent a day over the last seven. refused: requests of this period that were refused.
    """

    x: tuple[int, ...]
    left: tuple[int | None, ...]
    expected: tuple[int | None, ...]
    low: tuple[int | None, ...]
    high: tuple[int | None, ...]
    pace: tuple[int | None, ...]
    step_us: int
    daily: int
    refused: int


async def of_scope(engine: AsyncEngine, scope: frozenset[int] | None) -> list[OfBudget]:
    """Budgets of the teams that are seen: those that run out first, first, then by share."""
    return sorted(await forecast.of_budgets(engine, scope), key=order)


def zone_of(found: OfBudget) -> ZoneInfo:
    """Budgets are cut in their own zone, whoever looks."""
    return zone(found.budget.timezone)


def order(one: OfBudget) -> tuple[bool, int, float, int]:
    share = one.line.spent / one.limit if one.limit else float(one.line.spent > 0)
    return one.gone_us is None, one.gone_us or 0, -share, one.budget.id


async def one(engine: AsyncEngine, budget_id: int, scope: frozenset[int] | None, now_us: int) -> tuple[OfBudget, Burn]:
    """NotFound also for a budget that is not seen."""
    found = next(iter(await forecast.of_budgets(engine, scope, budget_id)), None)
    if found is None:
        raise NotFound(f"There is no budget {budget_id}.", param="id")
    return found, await _burn(engine, found, now_us)


def left(one: OfBudget, now_us: int) -> tuple[tuple[int, int], ...]:
    """A burn-down in small, of what the forecast has read: (instant in µs, nano-USD that were left), from the beginning of the period until
    now, at each day of UTC that is known. Nothing of a budget without an end.
    """
    if one.until_us is None:
        return ()
    still = one.limit - one.line.spent
    points = [(now_us, still)]
    for day in sorted(one.history, reverse=True):
        if day * DAY_US <= one.since_us:
            break
        still += one.history[day]
        points.append((day * DAY_US, min(one.limit, still)))
    return ((one.since_us, one.limit), *reversed(points))


async def _burn(engine: AsyncEngine, found: OfBudget, now_us: int) -> Burn:
    budget = found.budget
    column = {"organisation": "org_id", "team": "team_id", "key": "key_id"}[budget.scope_kind]
    end_us = now_us + -now_us % BUCKET_US
    since_us, until_us = (found.since_us, found.until_us) if found.until_us is not None else (end_us - WITHOUT_END_US, end_us)
    at = steps(since_us, until_us, budget.timezone)
    week = steps(end_us - WEEK_US, end_us, "UTC")
    async with snapshot(engine) as connection:
        scope_id = (await connection.execute(select(budgets.c.scope_id).where(budgets.c.id == budget.id))).scalar_one()
        where = {column: scope_id} | ({} if budget.model is None else {"route": budget.model})
        told = await series(connection, (), where, at)
        daily = joined((await series(connection, (), where, week)).points).of("cost") // 7
    past = [start for start in at.starts if start < now_us]
    x = (*past, now_us, *(start for start in at.starts if start > now_us), until_us) if until_us > now_us else (*past, now_us)
    left_now = found.limit - found.line.spent
    costs = [part.of("cost") for part in told.points]
    left = [left_now + sum(costs[place : len(past)]) for place in range(len(past))] + [left_now]
    here = len(left) - 1
    return Burn(
        x=x,
        left=tuple(left + [None] * (len(x) - len(left))),
        expected=_ahead(x, here, left_now, found, found.line.expected),
        low=_ahead(x, here, left_now, found, found.line.high),
        high=_ahead(x, here, left_now, found, found.line.low),
        pace=tuple(found.limit * (until_us - one) // (until_us - since_us) for one in x)
        if found.until_us is not None
        else (None,) * len(x),
        step_us=at.step_us,
        daily=daily,
        refused=told.total.outcomes.get("refused", 0),
    )


def _ahead(x: tuple[int, ...], here: int, left_now: int, found: OfBudget, end: int | None) -> tuple[int | None, ...]:
    """A line from what is left now to what is left when `end` will have been spent."""
    if end is None or found.until_us is None:
        return (None,) * len(x)
    now_us, until_us = x[here], found.until_us
    return tuple(
        None if place < here else max(0, left_now - (end - found.line.spent) * (at_us - now_us) // max(1, until_us - now_us))
        for place, at_us in enumerate(x)
    )
