"""What the present day, week or month will have cost at its end, by group of a report or per budget. Reads roll-ups; ahead.py estimates.

History is days of UTC, whatever the zone of the period: an estimate does not gain by being cut at a local midnight. The parts of days at
both ends of what is left are weighed by how the last week's spend was spread over the hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import people
from gateway.db.engine import clock_us, snapshot
from gateway.db.tables import budgets
from gateway.errors import InvalidRequest
from gateway.money import cells as tables
from gateway.money import reports
from gateway.money.ahead import DAYS, Ahead, ahead
from gateway.money.ledger import DAY_US, HOUR_US, ROLLUP_SUMS
from gateway.money.pricing import usd
from gateway.money.report_query import Wanted, read
from gateway.money.windows import bounds

PERIODS = ("day", "week", "month")
ROWS_MAX = 10_000
PROFILE_DAYS = 7  # of which the spread over the hours is taken
COLUMNS = ("spent_usd", "expected_usd", "low_usd", "high_usd", "method", "days")
_COST = ROLLUP_SUMS.index("cost")
_THURSDAY = 3  # 1970-01-01
_COLUMNS = {"organisation": "org_id", "team": "team_id", "key": "key_id"}


class Asked(Struct, frozen=True, kw_only=True):
    """by: names of reports.GROUPS, none of time. per: of PERIODS, the present one of the zone. team: only of this one."""

    by: tuple[str, ...] = ("team",)
    per: str = "month"
    timezone: str = "UTC"
    team: str | None = None


class Line(Struct, frozen=True, kw_only=True):
    """nano-USD. spent: in the period until now. expected, low, high: at its end, what was spent included; None = not to be told."""

    group: tuple[str, ...]
    spent: int
    expected: int | None
    low: int | None
    high: int | None
    method: str
    days: int


class Forecast(Struct, frozen=True, kw_only=True):
    """The total is estimated from the sum of all groups, so its interval is narrower than the sum of theirs."""

    by: tuple[str, ...]
    per: str
    timezone: str
    since_us: int
    until_us: int
    now_us: int
    lines: tuple[Line, ...]
    total: Line


class OfBudget(Struct, frozen=True, kw_only=True):
    """limit: with what overrides it now. passes: whether the limit is likely to be reached: no | perhaps | yes; empty = not to be told.

    since_us, until_us: its present window, None = it has no end. gone_us: when the limit is expected to be reached, None = not in this
    window; an instant that is past: it is reached. history: nano-USD spent by day of UTC (its number since 1970), of DAYS before today and
    today, as far as the forecast has read it.
    """

    budget: people.Budget
    limit: int
    line: Line
    passes: str
    since_us: int = 0
    until_us: int | None = None
    gone_us: int | None = None
    history: Mapping[int, int] = {}


async def forecast(engine: AsyncEngine, asked: Asked, scope: frozenset[int] | None = None) -> Forecast:
    """scope: ids of the teams whose spend counts, None = all. InvalidRequest names what was asked wrongly."""
    local = reports.check(reports.Asked(by=asked.by, timezone=asked.timezone))
    if any(name in reports.TIMES for name in asked.by):
        raise InvalidRequest(f"A forecast is of one period: group by {', '.join(reports.PLACES)}.", param="by")
    if asked.per not in PERIODS:
        raise InvalidRequest(f"There is no forecast per '{asked.per[:80]}': use {', '.join(PERIODS)}.", param="per")
    async with snapshot(engine) as connection:
        where = await reports.of_teams(connection, asked.team, scope)
        now_us = await _now_us(connection)
        since_us, until_us = bounds(asked.per, str(local), now_us)
        assert until_us is not None
        keys = tuple(reports.column(name) for name in asked.by)
        past = await _past(connection, keys, where, (since_us, until_us, now_us))
        names = await reports.names(connection, asked.by, list(past.days))
    groups: dict[tuple[str, ...], _Days] = {}
    whole = _Days()
    for group, days in past.days.items():
        groups.setdefault(reports.called(asked.by, "", group, names), _Days()).add(days)
        whole.add(days)
    first = tuple("total" if place == 0 else "" for place in range(len(asked.by)))
    return Forecast(
        by=asked.by,
        per=asked.per,
        timezone=asked.timezone,
        since_us=since_us,
        until_us=until_us,
        now_us=now_us,
        lines=tuple(past.line(group, groups[group]) for group in sorted(groups)),
        total=past.line(first, whole),
    )


async def of_budgets(engine: AsyncEngine, scope: frozenset[int] | None = None, budget_id: int | None = None) -> list[OfBudget]:
    """Every live budget with what it will have spent at the end of its period; without a forecast where it has none.

    scope: ids of the teams whose budgets are told, None = all. budget_id: that one alone. Those of one kind and period are read together.
    """
    listed = await people.list_budgets(engine, scope, budget_id)
    async with snapshot(engine) as connection:
        now_us = await _now_us(connection)
        held = select(budgets.c.id, budgets.c.scope_id)
        some_of = held if budget_id is None else held.where(budgets.c.id == budget_id)
        ids = {row.id: row.scope_id for row in await connection.execute(some_of)}
        alike: dict[tuple[str, bool, int, int], list[people.Budget]] = {}
        for budget in listed:
            since_us, until_us = bounds(budget.period, budget.timezone, now_us)
            if until_us is not None and budget.id in ids:
                alike.setdefault((budget.scope_kind, budget.model is None, since_us, until_us), []).append(budget)
        lines: dict[int, tuple[Line, Mapping[int, int]]] = {}
        for (kind, every, since_us, until_us), some in alike.items():
            column = _COLUMNS[kind]
            where = {column: frozenset(ids[budget.id] for budget in some)}
            past = await _past(connection, (column,) if every else (column, "route"), where, (since_us, until_us, now_us))
            for budget in some:
                group = (ids[budget.id],) if every else (ids[budget.id], budget.model)
                days = past.days.get(group, _Days())
                days.spent = budget.spent_nanousd
                lines[budget.id] = past.line((), days), days.by_day | {past.today: days.today}
    return [_of_budget(budget, lines.get(budget.id), now_us) for budget in listed]


def _of_budget(budget: people.Budget, past: tuple[Line, Mapping[int, int]] | None, now_us: int) -> OfBudget:
    since_us, until_us = bounds(budget.period, budget.timezone, now_us)
    limit = budget.limit_nanousd
    if budget.override_nanousd is not None and (budget.override_until_us or 0) > now_us:
        limit = budget.override_nanousd
    nothing = Line(group=(), spent=budget.spent_nanousd, expected=None, low=None, high=None, method="none", days=0)
    told, history = past or (nothing, {})
    return OfBudget(
        budget=budget,
        limit=limit,
        line=told,
        passes=_passes(told, limit),
        since_us=since_us,
        until_us=until_us,
        gone_us=_gone_us(told, limit, now_us, until_us),
        history=history,
    )


def _gone_us(line: Line, limit: int, now_us: int, until_us: int | None) -> int | None:
    """When the limit is reached, if what is still to come is spread evenly over what is left of the period."""
    if line.spent >= limit:
        return now_us
    if until_us is None or line.expected is None or line.expected <= limit:
        return None
    return now_us + (limit - line.spent) * (until_us - now_us) // (line.expected - line.spent)


def _passes(line: Line, limit: int) -> str:
    if line.spent >= limit:
        return "yes"
    if line.expected is None:
        return ""
    if line.low is None or line.high is None:
        return "perhaps" if line.expected >= limit else "no"
    return "yes" if line.low >= limit else "perhaps" if line.high >= limit else "no"


async def _now_us(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())


class _Days:
    """nano-USD of one group: by day of UTC before today, of today, and of the period until now."""

    __slots__ = ("by_day", "spent", "today")

    def __init__(self) -> None:
        self.by_day: dict[int, int] = {}
        self.today = 0
        self.spent = 0

    def add(self, other: _Days) -> None:
        for day, amount in other.by_day.items():
            self.by_day[day] = self.by_day.get(day, 0) + amount
        self.today += other.today
        self.spent += other.spent


class _Past(Struct):
    """weights: how much of today and of each day after it the rest of the period is. today: its number since 1970."""

    days: dict[tuple[Any, ...], _Days]
    weights: list[float]
    today: int

    def line(self, group: tuple[str, ...], days: _Days) -> Line:
        first = self.today - DAYS
        history = [days.by_day.get(day, 0) for day in range(first, self.today)]
        more: Ahead = ahead(history, self.weights, (first + _THURSDAY) % 7, days.today)
        told = more.method != "none"
        return Line(
            group=group,
            spent=days.spent,
            expected=days.spent + more.expected if told else None,
            low=None if more.low is None else days.spent + more.low,
            high=None if more.high is None else days.spent + more.high,
            method=more.method,
            days=more.days,
        )


async def _past(connection: AsyncConnection, keys: tuple[str, ...], where: Mapping[str, Any], period: tuple[int, int, int]) -> _Past:
    """period: (since, until, now) in µs."""
    since_us, until_us, now_us = period
    today = now_us // DAY_US
    soon = today * DAY_US + DAY_US

    async def costs(first_us: int, last_us: int, label: Any, by: tuple[str, ...] = keys) -> list[tuple[str, tuple[Any, ...], int]]:
        wanted = Wanted(
            keys=by, since_us=first_us, until_us=last_us, label=label, where=where, rows_max=ROWS_MAX, latencies=False, sums=("cost",)
        )
        return [(one.label, one.group, one.sums[_COST]) for one in (await read(connection, wanted))[0]]

    days: dict[tuple[Any, ...], _Days] = {}
    for label, group, cost in await costs((today - DAYS) * DAY_US, soon, lambda at_us: str(at_us // DAY_US)):
        of_group = days.setdefault(group, _Days())
        if int(label) == today:
            of_group.today += cost
        else:
            of_group.by_day[int(label)] = of_group.by_day.get(int(label), 0) + cost
    for _, group, cost in await costs(since_us, soon, lambda _: ""):
        days.setdefault(group, _Days()).spent += cost
    profile = [0] * (DAY_US // HOUR_US)  # finer would be read from quarters of an hour, a hundred times as many rows
    for label, _, cost in await costs((today - PROFILE_DAYS) * DAY_US, today * DAY_US, _place, ()):
        profile[int(label)] += max(0, cost)
    return _Past(days, weights(profile, now_us, until_us), today)


def _place(at_us: int) -> str:
    return str(at_us % DAY_US // HOUR_US)


def weights(profile: Sequence[int], now_us: int, until_us: int) -> list[float]:
    """How much of today and of each later day of UTC lies in [now, until). profile: what equal parts of a day weigh."""
    whole, part_us = sum(profile), DAY_US // len(profile)

    def gone(at_us: int) -> float:
        """The share of a day that is over at an instant of it."""
        place, rest = divmod(at_us % DAY_US, part_us)
        if whole == 0:
            return at_us % DAY_US / DAY_US
        return (sum(profile[:place]) + profile[place] * rest / part_us) / whole

    found = []
    for day_us in range(now_us - now_us % DAY_US, until_us, DAY_US):
        first = gone(now_us) if day_us <= now_us else 0.0
        last = gone(until_us) if until_us < day_us + DAY_US else 1.0
        found.append(max(0.0, last - first))
    return found


# ---- shown
def cells(line: Line) -> tuple[str | int | None, ...]:
    """In the order of COLUMNS, the group first: USD with nine decimals."""
    amounts = (line.spent, line.expected, line.low, line.high)
    return (*line.group, *(None if amount is None else usd(amount) for amount in amounts), line.method, line.days)


def as_csv(found: Forecast) -> str:
    width = len(found.by)
    return tables.as_csv((*found.by, *COLUMNS), ((*map(tables.safe, line.group), *cells(line)[width:]) for line in found.lines))


def document(found: Forecast) -> dict[str, Any]:
    """For JSON; money also as integer nano-USD."""
    return {
        "by": found.by,
        "per": found.per,
        "timezone": found.timezone,
        "since_us": found.since_us,
        "until_us": found.until_us,
        "now_us": found.now_us,
        "lines": [dict(zip(found.by, line.group, strict=True)) | _object(line) for line in found.lines],
        "total": _object(found.total),
    }


def _object(line: Line) -> dict[str, Any]:
    named = dict(zip(COLUMNS, cells(line)[len(line.group) :], strict=True))
    amounts = {"spent": line.spent, "expected": line.expected, "low": line.low, "high": line.high}
    return named | {f"{name}_nanousd": amount for name, amount in amounts.items()}


def of_budget_document(one: OfBudget) -> dict[str, Any]:
    budget = one.budget
    return {
        "id": budget.id,
        "scope_kind": budget.scope_kind,
        "scope": budget.scope,
        "model": budget.model,
        "per": budget.period,
        "timezone": budget.timezone,
        "limit_usd": usd(one.limit),
        "limit_nanousd": one.limit,
        "passes": one.passes,
        **_object(one.line),
    }
