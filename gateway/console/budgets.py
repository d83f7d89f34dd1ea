"""Budgets: who runs out when. Setting, overriding and lifting them for those who may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from litestar import Response, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access, people
from gateway.catalog import Catalog
from gateway.console import charts, forms, shell
from gateway.console.overview import gone
from gateway.console.shell import Asked
from gateway.errors import GatewayError, InvalidRequest
from gateway.money.forecast import OfBudget
from gateway.money.pricing import nanousd
from gateway.money.windows import PERIODS
from gateway.views import budgets as views
from gateway.views import figures

OPEN_TO = access.MONEY | access.TEAM_EDIT
SPARK = (100, 26)
SHOWN_MAX = 200  # budgets of one page
KINDS = ("team", "organisation", "key")
FIELDS = {"limit": "usd", "period": "per", "team": "scope", "organisation": "scope", "key": "scope"}  # as the forms call them


class Budgeted(Protocol):
    """What these pages need of a worker's parts."""

    engine: AsyncEngine
    catalog: Catalog


def handlers(parts: Budgeted) -> list[BaseRouteHandler]:
    return [*_reading(parts), *_changing(parts)]


def _reading(parts: Budgeted) -> list[BaseRouteHandler]:
    @get("/budgets", access=OPEN_TO)
    async def listed(request: Asked) -> Response[str]:
        return await _list(parts, request)

    @get("/budgets/{budget_id:int}", access=OPEN_TO)
    async def one(request: Asked, budget_id: FromPath[int]) -> Response[str]:
        return await _one(parts, request, budget_id)

    return [listed, one]


def _changing(parts: Budgeted) -> list[BaseRouteHandler]:
    @post("/budgets", access=access.TEAM_EDIT)
    async def set_budget(request: Asked) -> Response[str]:
        sent = await forms.sent(request)
        try:
            made = await people.set_budget(parts.engine, _new(sent), actor=access.actor(request))
        except GatewayError as error:
            return await _list(parts, request, sent, shell.of_form(error))
        return shell.redirect(f"/console/budgets/{made.id}", request)

    @post("/budgets/{budget_id:int}/override", access=access.TEAM_EDIT)
    async def override(request: Asked, budget_id: FromPath[int]) -> Response[str]:
        sent = await forms.sent(request)
        try:
            limit = _amount(sent.get("usd", ""))
            await people.override_budget(parts.engine, budget_id, limit, sent.get("until", ""), actor=access.actor(request))
        except GatewayError as error:
            return await _one(parts, request, budget_id, sent, shell.of_form(error))
        return shell.redirect(f"/console/budgets/{budget_id}", request)

    @post("/budgets/{budget_id:int}/end-override", access=access.TEAM_EDIT)
    async def end_override(request: Asked, budget_id: FromPath[int]) -> Response[str]:
        await people.end_override(parts.engine, budget_id, actor=access.actor(request))
        return shell.redirect(f"/console/budgets/{budget_id}", request)

    @post("/budgets/{budget_id:int}/lift", access=access.TEAM_EDIT)
    async def lift(request: Asked, budget_id: FromPath[int]) -> Response[str]:
        await people.delete_budget(parts.engine, budget_id, actor=access.actor(request))
        return shell.redirect("/console/budgets", request)

    return [set_budget, override, end_override, lift]


def _amount(text: str) -> int:
    try:
        return nanousd(text.removeprefix("$").replace(",", ""), "usd")
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param="usd") from error


def _new(sent: dict[str, str]) -> people.NewBudget:
    told = sent.get("alerts", "")
    percents = [one.strip().rstrip("%").strip() for one in told.split(",") if one.strip()]
    if not all(one.isascii() and one.isdigit() and len(one) <= 3 for one in percents):
        raise InvalidRequest("alerts: write per cents with commas between, such as 80, 100.", param="alerts")
    return people.NewBudget(
        scope_kind=sent.get("scope_kind", ""),
        scope=sent.get("scope", ""),
        limit_nanousd=_amount(sent.get("usd", "")),
        period=sent.get("per", ""),
        timezone=sent.get("timezone", "") or "UTC",
        model=sent.get("model", "") or None,
        alerts=tuple(int(one) for one in percents) if told else None,
    )


async def _list(parts: Budgeted, request: Asked, sent: dict[str, str] | None = None, error: GatewayError | None = None) -> Response[str]:
    who, now_us = access.actor(request), shell.now_us()
    asked, every = shell.query(request, "q"), await views.of_scope(parts.engine, who.whole)
    matching = [one for one in every if asked.q.casefold() in one.budget.scope.casefold()]
    found = matching[:SHOWN_MAX]
    return await shell.page(
        request,
        who,
        "budgets.html",
        title="Budgets",
        status=200 if error is None else error.status,
        budgets=found,
        more=len(matching) - len(found),
        total=len(every),
        q=asked.q,
        sparks={one.budget.id: spark(one, now_us) for one in found},
        gone_of={one.budget.id: gone(one.since_us, one.until_us, now_us) for one in found},
        kinds=KINDS if who.role == access.ADMIN else ("key",),
        routes=list(parts.catalog.routes),
        periods=PERIODS,
        may=who.role in access.TEAM_EDIT,
        sent=sent or {},
        errors=forms.wrong(error, FIELDS),
    )


async def _one(
    parts: Budgeted, request: Asked, budget_id: int, sent: dict[str, str] | None = None, error: GatewayError | None = None
) -> Response[str]:
    who, now_us = access.actor(request), shell.now_us()
    found, burn = await views.one(parts.engine, budget_id, who.whole, now_us)
    return await shell.page(
        request,
        who,
        "budget.html",
        title=f"Budget of {found.budget.scope}",
        status=200 if error is None else error.status,
        one=found,
        burn=burn,
        chart=chart(found, burn),
        share=figures.ratio(found.line.spent, found.limit),
        gone=gone(found.since_us, found.until_us, now_us),
        may=who.role == access.ADMIN or (who.role == access.TEAM_ADMIN and found.budget.scope_kind == "key"),
        sent=sent or {},
        errors=forms.wrong(error, FIELDS),
    )


class Spark(Struct, frozen=True):
    """Points of two lines in a box of SPARK: what was left, and from now on what is expected to be; "" = there is none."""

    left: str
    ahead: str


def spark(one: OfBudget, now_us: int) -> Spark:
    """The period from left to right, nothing left at the bottom, the limit near the top; what is beyond either is drawn at its edge."""
    width, height = SPARK
    points, until_us = views.left(one, now_us), one.until_us or now_us

    def lines(points: Sequence[tuple[int, int]]) -> str:
        return " ".join(f"{across(at_us):.1f},{down(left):.1f}" for at_us, left in points)

    def across(at_us: int) -> float:
        return width * min(1.0, max(0.0, (at_us - one.since_us) / max(1, until_us - one.since_us)))

    def down(left: int) -> float:
        return 2 + (height - 4) * (1 - min(1.0, max(0.0, left / max(one.limit, 1))))

    ahead = [] if one.line.expected is None or not points else [points[-1], (until_us, one.limit - one.line.expected)]
    return Spark(lines(points), lines(ahead))


def chart(found: OfBudget, burn: views.Burn) -> charts.Chart:
    """Burn-down of what is left: solid, the forecast dashed in its band, the even pace dotted, hatched where requests are refused."""
    second = 1_000_000
    spec: dict[str, Any] = {
        "x": [at // second for at in burn.x],
        "step": burn.step_us // second,
        "zone": found.budget.timezone,
        "unit": "usd",
        "max": max(found.limit, 1) * 1.06,
        "now": burn.x[sum(one is not None for one in burn.left) - 1] // second,
        "series": [
            {"label": "Left", "color": "c1", "width": 2.25, "fill": True, "data": list(burn.left)},
            {"label": "Forecast", "color": "c1", "dash": [5, 4], "data": list(burn.expected)},
            {"label": "Even pace", "color": "c8", "dash": [2, 3], "width": 1.25, "data": list(burn.pace)},
        ],
    }
    if any(one is not None for one in burn.low):
        spec["band"] = [list(burn.low), list(burn.high)]
    told = f"{figures.money(found.limit - found.line.spent)} of {figures.money(found.limit)} is left."
    if found.gone_us is not None and found.until_us is not None:
        local = views.zone_of(found)
        when = figures.day(found.gone_us, local)
        spec["shade"] = {"x": found.gone_us // second}
        spec["marks"] = [{"x": found.gone_us // second, "y": 0, "label": f"gone {when}"}]
        told += f" At this pace nothing is left from {when} on."
    local = views.zone_of(found)
    rows = tuple(
        (f"{figures.day(at, local)} {figures.clock(at, local)}", *("" if value is None else figures.money(value) for value in values))
        for at, *values in zip(burn.x, burn.left, burn.expected, strict=True)
    )
    legend = (
        charts.Named("Left", 1, None),
        charts.Named("Forecast, four times of five in the band", 1, None, True),
        charts.Named("Even pace", 8, None, True),
    )
    return charts.Chart(spec=spec, legend=legend, head=("Time", "Left", "Forecast"), rows=rows, label=told)
