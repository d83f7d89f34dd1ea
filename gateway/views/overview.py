"""The overview: what was spent and saved, how fast and how well it went, where requests went, and what needs a hand.

Reads roll-ups and budgets; the state of backends and of the journal is the answering worker's own. Knows no page.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.catalog import Catalog
from gateway.db.columns import CLASSES
from gateway.db.engine import snapshot
from gateway.db.tables import teams, usage
from gateway.money import forecast
from gateway.money.accounts import Accounts
from gateway.money.forecast import OfBudget
from gateway.money.ledger import BOOKED, DAY_US, ROLLUP_SUMS
from gateway.money.marks import MISSED
from gateway.money.pricing import usd
from gateway.routing.router import Router
from gateway.views.attention import STATES, Attention
from gateway.views.burn import Burn
from gateway.views.savings import saved_by_routing
from gateway.views.series import Part, Series, Steps, before, joined, series, steps, tail

SPLITS = {"team": "team_id", "route": "route", "backend": "backend"}
ATTENTION_MAX = 5
LAG_S = 60.0  # of the journal, from which on it is told
MISSED_US = 7 * DAY_US  # longer stretches are not searched for missed objectives


OUTPUTS = tuple(name for name in CLASSES if not name.startswith(("input", "cache")))
_AT = {name: place for place, name in enumerate(ROLLUP_SUMS)}


class Watched(Protocol):
    """What it needs of a worker's parts."""

    engine: AsyncEngine
    catalog: Catalog
    router: Router
    accounts: Accounts
    attention: Attention


class Asked(Struct, frozen=True, kw_only=True):
    """[since_us, until_us) in whole quarters of an hour. scope: ids of the teams that are seen, None = all. split: of SPLITS."""

    since_us: int
    until_us: int
    tz: str = "UTC"
    scope: frozenset[int] | None = None
    split: str = "team"


class Place(Struct, frozen=True):
    """Where requests went. nano-USD. backend "" = the response cache."""

    backend: str
    requests: int
    cost: int
    tokens: int


class Notice(Struct, frozen=True, kw_only=True):
    """Something that needs a hand, worst first. kind: ejected | budget | burn | journal | unpriced. bad: not only a warning. subject: a
    backend's or scope's name. number: seconds (of a burn until a month's errors are used up), rows or a budget's id. at_us: when."""

    kind: str
    bad: bool
    subject: str = ""
    number: int = 0
    at_us: int | None = None
    budget: OfBudget | None = None
    burn: Burn | None = None
    detail: str = ""


class Month(Struct, frozen=True, kw_only=True):
    """The present month of the viewer's zone. budget: of the organisation, where exactly one month's budget covers what is seen."""

    since_us: int
    until_us: int
    now_us: int
    spent: int
    held: int
    expected: int | None
    limit: int | None


class Overview(Struct, frozen=True, kw_only=True):
    """money: nano-USD. before: what the same length before came to. names: team id -> name and place of birth. missed: answered requests
    that missed an objective, None = not counted. together: of all that is seen; split: the cost alone, by what was asked.

    objective_ms: to the first token, where all routes have the same. places_from_us: where the end of the stretch begins that places, what
    choosing saved, output_per_s and a split by other names than teams are of: all of it, unless that is too much to read at once.
    output_per_s: tokens that completed requests were answered with per second that they took from end to end, a mean; None without any.
    """

    steps: Steps
    together: Series
    before: Part
    split: Series
    names: dict[int, str]
    places: tuple[Place, ...]
    places_from_us: int
    by_routing: int
    output_per_s: float | None
    month: Month
    budgets: tuple[OfBudget, ...]
    missed: int | None
    objective_ms: float | None
    attention: tuple[Notice, ...]
    now_us: int

    @property
    def empty(self) -> bool:
        return self.together.total.of("requests") == 0 and self.month.spent == 0 and not self.before.of("requests")


async def overview(parts: Watched, asked: Asked) -> Overview:
    """Everything at once, of one instant."""
    at = steps(asked.since_us, asked.until_us, asked.tz)
    where: dict[str, Any] = {} if asked.scope is None else {"team_id": asked.scope}
    split = SPLITS[asked.split]
    async with snapshot(parts.engine) as connection:
        together = await series(connection, (), where, at, latencies=True)
        compared = await before(connection, where, asked.since_us, asked.until_us)
        end = at if asked.scope is None else tail(together.points, at)  # by team and place there are no hours
        apart = await series(connection, (split,), where, at if split == "team_id" else end, sums=("cost",))
        whole = Steps(end.until_us - end.starts[0], end.starts[:1], end.until_us, end.tz)
        by_place = await series(connection, ("route", "backend", "outcome"), where, whole)
        names = {row.id: row.name for row in await connection.execute(select(teams.c.id, teams.c.name).order_by(teams.c.id))}
        missed = await _missed(connection, asked)
    budgets = await forecast.of_budgets(parts.engine, asked.scope)
    month = await _month(parts.engine, asked, budgets)
    return Overview(
        steps=at,
        together=together,
        before=compared,
        split=apart,
        names=names if asked.scope is None else {one: names[one] for one in names if one in asked.scope},
        places=_places(by_place),
        places_from_us=end.starts[0],
        by_routing=saved_by_routing(parts.catalog, _uncached(by_place)),
        output_per_s=_output_per_s(_uncached(by_place).values()),
        month=month,
        budgets=tuple(sorted(budgets, key=_worst)),
        missed=missed,
        objective_ms=_objective(parts.catalog),
        attention=_attention(parts, budgets, together.total, month.now_us, parts.attention.burn(asked.scope)),
        now_us=month.now_us,
    )


def _places(made: Series) -> tuple[Place, ...]:
    """The cache is a place of its own, so that the requests add up."""
    found: dict[str, Part] = {}
    for (_, backend, outcome), stretches in made.by.items():
        if outcome not in BOOKED:
            found.setdefault("" if outcome == "cached" else backend, Part()).merge(joined(stretches.values()))
    places = (Place(name, part.of("requests"), part.of("cost"), part.tokens) for name, part in found.items())
    return tuple(sorted(places, key=lambda one: (-one.requests, one.backend)))


def _uncached(made: Series) -> Mapping[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for (route, backend, outcome), stretches in made.by.items():
        if outcome == "completed":
            there = found.setdefault((route, backend), [0] * len(ROLLUP_SUMS))
            found[route, backend] = [a + b for a, b in zip(there, joined(stretches.values()).sums, strict=True)]
    return found


def _output_per_s(completed: Iterable[Sequence[int]]) -> float | None:
    """Of sums by the names of ROLLUP_SUMS. A mean is all that they can tell: how it is spread over requests is not stored."""
    whole = list(map(sum, zip(*completed, strict=True)))
    if not whole or not whole[_AT["duration_ms"]]:
        return None
    return 1000 * sum(whole[_AT[name]] for name in OUTPUTS) / whole[_AT["duration_ms"]]


async def _missed(connection: AsyncConnection, asked: Asked) -> int | None:
    if asked.until_us - asked.since_us > MISSED_US:
        return None
    stretch = usage.c.started_at_us >= asked.since_us, usage.c.started_at_us < asked.until_us
    marked = usage.c.marks != 0, usage.c.marks.bitwise_and(MISSED) != 0  # the first is what the index of such rows asks for
    seen = () if asked.scope is None else (usage.c.team_id.in_(sorted(asked.scope)),)
    return int((await connection.execute(select(func.count()).select_from(usage).where(*stretch, *marked, *seen))).scalar_one())


async def _month(engine: AsyncEngine, asked: Asked, budgets: list[OfBudget]) -> Month:
    told = await forecast.forecast(engine, forecast.Asked(by=(), per="month", timezone=asked.tz), asked.scope)
    kind = "organisation" if asked.scope is None else "team"
    covering = [one for one in budgets if (one.budget.scope_kind, one.budget.period, one.budget.model) == (kind, "month", None)]
    alone = covering[0] if len(covering) == 1 and (asked.scope is None or len(asked.scope) == 1) else None
    return Month(
        since_us=told.since_us,
        until_us=told.until_us,
        now_us=told.now_us,
        spent=told.total.spent if alone is None else alone.line.spent,
        held=0 if alone is None else alone.budget.leased_nanousd,
        expected=told.total.expected if alone is None else alone.line.expected,
        limit=None if alone is None else alone.limit,
    )


def _worst(one: OfBudget) -> tuple[float, int]:
    return (-(one.line.spent / one.limit) if one.limit else -1.0 if one.line.spent else 0.0, one.budget.id)


def _objective(catalog: Catalog) -> float | None:
    told = {route.ttft_ms for route in catalog.routes.values()}
    return next(iter(told)) if len(told) == 1 else None


def _attention(parts: Watched, budgets: list[OfBudget], total: Part, now_us: int, burn: Burn | None) -> tuple[Notice, ...]:
    found = [
        Notice(kind="ejected", bad=view.state == "ejected", subject=view.backend, number=round(view.ready_in_s), detail=STATES[view.state])
        for view in parts.router.snapshot(time.monotonic())
        if view.state in STATES and view.backend in parts.catalog.backends
    ]
    for one in budgets:
        if one.gone_us is not None:
            gone = one.gone_us <= now_us
            found.append(Notice(kind="budget", bad=gone, subject=one.budget.scope, number=one.budget.id, at_us=one.gone_us, budget=one))
    if burn is not None:
        found.append(Notice(kind="burn", bad=burn.pace.bad, number=round(burn.hours * 3600), burn=burn))
    lag_s = parts.accounts.stats().lag_s
    if lag_s > LAG_S:
        found.append(Notice(kind="journal", bad=True, number=round(lag_s)))
    if total.of("unpriced"):
        found.append(Notice(kind="unpriced", bad=False, number=total.of("unpriced")))
    return tuple(sorted(found, key=lambda one: (not one.bad, one.at_us or 0))[:ATTENTION_MAX])


def document(told: Overview) -> dict[str, Any]:
    """For JSON: money as integer nano-USD and as USD, instants in µs."""
    total, compared = told.together.total, told.before
    return {
        "since_us": told.steps.starts[0],
        "until_us": told.steps.until_us,
        "now_us": told.now_us,
        "spent": _money(total.of("cost")),
        "spent_before": _money(compared.of("cost")),
        "requests": total.of("requests"),
        "requests_before": compared.of("requests"),
        "outcomes": {name: count for name, count in sorted(total.outcomes.items()) if count},
        "unpriced": total.of("unpriced"),
        "missed_objective": told.missed,
        "ttft_ms": _quantiles(total, "ttft"),
        "duration_ms": _quantiles(total, "duration"),
        "output_tokens_per_s": None if told.output_per_s is None else round(told.output_per_s, 3),
        "saved": {"cache": _money(total.of("saved")), "routing": _money(told.by_routing)},
        "month": {
            "since_us": told.month.since_us,
            "until_us": told.month.until_us,
            "spent": _money(told.month.spent),
            "expected": _money(told.month.expected),
            "limit": _money(told.month.limit),
        },
        "places_from_us": told.places_from_us,
        "places": [
            {
                "backend": one.backend or None,
                "cached": not one.backend,
                "requests": one.requests,
                "spent": _money(one.cost),
                "tokens": one.tokens,
            }
            for one in told.places
        ],
        "points": [
            {"at_us": at_us, "spent": _money(part.of("cost")), "requests": part.of("requests"), "ttft_ms": _quantiles(part, "ttft")}
            for at_us, part in zip(told.steps.starts, told.together.points, strict=True)
        ],
        "budgets": [forecast.of_budget_document(one) for one in told.budgets],
        "attention": [
            {"kind": one.kind, "bad": one.bad, "subject": one.subject, "number": one.number, "at_us": one.at_us} for one in told.attention
        ],
    }


def _money(amount: int | None) -> dict[str, Any] | None:
    return None if amount is None else {"nanousd": amount, "usd": usd(amount)}


def _quantiles(part: Part, metric: str) -> dict[str, int | None]:
    return {f"p{share * 100:.0f}": part.quantile(metric, share) for share in (0.5, 0.95, 0.99)}
