"""`/admin/budgets` and `/admin/limits`: what a key, a team or an organisation may spend and how fast. Checks, decodes, calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, delete, get, put
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath
from msgspec import Struct

from gateway import people, rates
from gateway.access import EVERYONE, TEAM_EDIT, actor
from gateway.api.parameters import known
from gateway.api.people import Peopled
from gateway.errors import InvalidRequest
from gateway.money.pricing import nanousd, usd

Asked = Request[Any, Any, Any]


class NewBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """scope: a team's or organisation's name, or a key's public part. usd: a decimal number as a string. model: a route, null = all.

    alerts: percents of the limit whose crossing is told; null = as they are, 80 and 100 of a new budget.
    """

    scope_kind: Literal["organisation", "team", "key"]
    scope: str
    usd: str
    per: Literal["day", "week", "month", "total"]
    timezone: str = "UTC"
    model: str | None = None
    alerts: tuple[int, ...] | None = None


class Override(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """usd: a decimal number as a string. until: 12h, 30d, 8w, a date or an instant."""

    usd: str
    until: str


class BudgetView(Struct, frozen=True, kw_only=True):
    """Money in USD with nine decimals. held: of running requests and of what processes keep ready for the next.

    limit_usd: the budget's own; override_usd and override_until_us: what holds instead while an override runs, else null.
    """

    id: int
    scope_kind: str
    scope: str
    model: str | None
    per: str
    timezone: str
    limit_usd: str
    override_usd: str | None
    override_until_us: int | None
    spent_usd: str
    held_usd: str
    resets_at_us: int | None
    alerts: tuple[int, ...]


class LimitList(Struct, frozen=True):
    data: list[rates.Limit]


class BudgetList(Struct, frozen=True):
    data: list[BudgetView]


def handlers(parts: Peopled) -> list[BaseRouteHandler]:
    """For a guarded router."""
    return [*_budgets(parts), *_limits(parts)]


def _budgets(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/budgets", summary="The budgets that the caller may see, with their present period", access=EVERYONE)
    async def list_budgets(request: Asked) -> BudgetList:
        known(request, ())
        return BudgetList([_view(budget) for budget in await people.list_budgets(parts.engine, actor(request).scope)])

    @put("/budgets", summary="Set a limit; the same scope, model, period and zone again changes it", access=TEAM_EDIT)
    async def set_budget(request: Asked, data: Annotated[NewBudget, Body()]) -> BudgetView:
        limit = _amount(data.usd)
        new = people.NewBudget(
            scope_kind=data.scope_kind,
            scope=data.scope,
            limit_nanousd=limit,
            period=data.per,
            timezone=data.timezone,
            model=data.model,
            alerts=data.alerts,
        )
        return _view(await people.set_budget(parts.engine, new, actor=actor(request)))

    @delete("/budgets/{budget_id:int}", summary="Lift a limit", access=TEAM_EDIT)
    async def delete_budget(request: Asked, budget_id: FromPath[int]) -> None:
        await people.delete_budget(parts.engine, budget_id, actor=actor(request))

    @put("/budgets/{budget_id:int}/override", summary="Another limit for a while", access=TEAM_EDIT)
    async def override_budget(request: Asked, budget_id: FromPath[int], data: Annotated[Override, Body()]) -> BudgetView:
        return _view(await people.override_budget(parts.engine, budget_id, _amount(data.usd), data.until, actor=actor(request)))

    @delete("/budgets/{budget_id:int}/override", summary="The budget's own limit again", access=TEAM_EDIT)
    async def end_override(request: Asked, budget_id: FromPath[int]) -> None:
        await people.end_override(parts.engine, budget_id, actor=actor(request))

    return [list_budgets, set_budget, delete_budget, override_budget, end_override]


def _limits(parts: Peopled) -> list[BaseRouteHandler]:
    @get("/limits", summary="The rate limits that the caller may see", access=EVERYONE)
    async def list_limits(request: Asked) -> LimitList:
        known(request, ())
        return LimitList(await rates.list_limits(parts.engine, actor(request).scope))

    @put("/limits", summary="Set or change the rate limits of a scope", access=TEAM_EDIT)
    async def set_limit(request: Asked, data: Annotated[rates.NewLimit, Body()]) -> rates.Limit:
        return await rates.set_limit(parts.engine, data, actor=actor(request))

    @delete("/limits/{limit_id:int}", summary="Lift a rate limit", access=TEAM_EDIT)
    async def delete_limit(request: Asked, limit_id: FromPath[int]) -> None:
        await rates.delete_limit(parts.engine, limit_id, actor=actor(request))

    return [list_limits, set_limit, delete_limit]


def _amount(text: str) -> int:
    try:
        return nanousd(text, "usd")
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param="usd") from error


def _view(budget: people.Budget) -> BudgetView:
    return BudgetView(
        id=budget.id,
        scope_kind=budget.scope_kind,
        scope=budget.scope,
        model=budget.model,
        per=budget.period,
        timezone=budget.timezone,
        limit_usd=usd(budget.limit_nanousd),
        override_usd=None if budget.override_nanousd is None else usd(budget.override_nanousd),
        override_until_us=budget.override_until_us,
        spent_usd=usd(budget.spent_nanousd),
        held_usd=usd(budget.leased_nanousd),
        resets_at_us=budget.resets_at_us,
        alerts=budget.alerts,
    )
