"""`/admin/…`: teams, keys, budgets, limits, prices and reports over HTTP, for keys with a role. Checks, decodes, calls.

Every handler stands inside one guarded router and says whom it is open to; one that does not is closed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, Protocol

from litestar import Request, Response, Router, delete, get, post, put
from litestar.exceptions import ValidationException
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath, FromQuery
from litestar.types import ControllerRouterHandler
from msgspec import Struct

from gateway import access, people, prices, rates
from gateway.api import operations, reports, requests
from gateway.api.endpoint import error_headers
from gateway.auth import Keyring, load_secrets
from gateway.errors import GatewayError, InvalidRequest
from gateway.money import break_even
from gateway.money.pricing import nanousd, usd
from providers.dialects import DIALECTS


class NewTeam(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """labels: what the backend of each of its requests must carry, such as {"residency": "eu"}."""

    name: str
    org: str = people.DEFAULT_ORG
    labels: dict[str, str] = {}


class TeamLabels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    labels: dict[str, str]


class MadeKey(Struct, frozen=True, kw_only=True):
    """`secret` is the whole key; it is shown this once."""

    secret: str
    key: people.Key


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


class Admins(operations.Operated, Protocol):
    """What these calls need of a worker's parts."""

    keyring: Keyring


class Teams(Struct, frozen=True):
    data: list[people.Team]


class Keys(Struct, frozen=True):
    data: list[people.Key]


class PriceList(Struct, frozen=True):
    data: list[prices.Entry]


class PricedView(Struct, frozen=True, kw_only=True):
    """What a backend is billed at: the price's id and its rates in USD per million tokens; both null where it has none.

    hourly_usd: of owned hardware, which is billed by the hour; the rates are then what one token more costs.
    """

    backend: str
    vendor: str
    model: str
    price: str | None
    usd: dict[str, str] | None
    hourly_usd: str | None


class PricedList(Struct, frozen=True):
    data: list[PricedView]


class LimitList(Struct, frozen=True):
    data: list[rates.Limit]


class BudgetList(Struct, frozen=True):
    data: list[BudgetView]


def handlers(parts: Admins) -> list[ControllerRouterHandler]:
    """The router over one worker's parts."""

    async def by_key(connection: access.Connection) -> access.Actor:
        headers = dict(connection.scope["headers"])
        return access.of_key(parts.keyring.find(headers) or await parts.keyring.find_slow(headers))

    router = Router(
        path="/admin",
        guards=[access.guard(by_key)],
        route_handlers=[
            *_teams(parts),
            *_keys(parts),
            *_budgets(parts),
            *_limits(parts),
            *_prices(parts),
            *reports.handlers(parts),
            *requests.handlers(parts),
            *operations.handlers(parts),
            _owned(parts),
        ],
        exception_handlers={ValidationException: _invalid},
        tags=["admin"],
    )
    return [router]


def _teams(parts: Admins) -> list[BaseRouteHandler]:
    @get("/teams", summary="All teams", access=access.MONEY)
    async def list_teams(request: Request[Any, Any, Any]) -> Teams:
        _known(request, ())
        return Teams(await people.list_teams(parts.engine))

    @post("/teams", summary="Make a team", access=access.ADMINS)
    async def add_team(data: Annotated[NewTeam, Body()]) -> people.Team:
        return await people.add_team(parts.engine, data.name, data.org, data.labels)

    @delete("/teams/{name:str}", summary="End a team and its keys", access=access.ADMINS)
    async def delete_team(name: FromPath[str]) -> None:
        await people.delete_team(parts.engine, name)

    @put(
        "/teams/{name:str}/labels",
        summary="Set what the backend of each of a team's requests must carry; {} = nothing",
        access=access.ADMINS,
    )
    async def label_team(name: FromPath[str], data: Annotated[TeamLabels, Body()]) -> TeamLabels:
        return TeamLabels(labels=await people.label_team(parts.engine, name, data.labels))

    return [list_teams, add_team, delete_team, label_team]


def _keys(parts: Admins) -> list[BaseRouteHandler]:
    @get("/keys", summary="All keys or a team's, without their secrets", access=access.MONEY)
    async def list_keys(request: Request[Any, Any, Any], team: FromQuery[str | None] = None) -> Keys:
        _known(request, ("team",))
        return Keys(await people.list_keys(parts.engine, team))

    @post("/keys", summary="Make a key; its secret is in this answer alone", access=access.ADMINS)
    async def add_key(data: Annotated[people.NewKey, Body()]) -> MadeKey:
        text, key = await people.add_key(parts.engine, load_secrets(parts.settings)[0], data)
        return MadeKey(secret=text, key=key)

    @delete(
        "/keys/{public:str}",
        status_code=200,
        summary="Revoke a key: refused by every worker within about two seconds",
        access=access.ADMINS,
    )
    async def revoke_key(public: FromPath[str]) -> people.Key:
        return await people.revoke_key(parts.engine, public)

    return [list_keys, add_key, revoke_key]


def _budgets(parts: Admins) -> list[BaseRouteHandler]:
    @get("/budgets", summary="All budgets with their present period", access=access.MONEY)
    async def list_budgets(request: Request[Any, Any, Any]) -> BudgetList:
        _known(request, ())
        return BudgetList([_view(budget) for budget in await people.list_budgets(parts.engine)])

    @put("/budgets", summary="Set a limit; the same scope, model, period and zone again changes it", access=access.ADMINS)
    async def set_budget(data: Annotated[NewBudget, Body()]) -> BudgetView:
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
        return _view(await people.set_budget(parts.engine, new))

    @delete("/budgets/{budget_id:int}", summary="Lift a limit", access=access.ADMINS)
    async def delete_budget(budget_id: FromPath[int]) -> None:
        await people.delete_budget(parts.engine, budget_id)

    @put("/budgets/{budget_id:int}/override", summary="Another limit for a while", access=access.ADMINS)
    async def override_budget(budget_id: FromPath[int], data: Annotated[Override, Body()]) -> BudgetView:
        return _view(await people.override_budget(parts.engine, budget_id, _amount(data.usd), data.until))

    @delete("/budgets/{budget_id:int}/override", summary="The budget's own limit again", access=access.ADMINS)
    async def end_override(budget_id: FromPath[int]) -> None:
        await people.end_override(parts.engine, budget_id)

    return [list_budgets, set_budget, delete_budget, override_budget, end_override]


def _limits(parts: Admins) -> list[BaseRouteHandler]:
    @get("/limits", summary="All rate limits", access=access.MONEY)
    async def list_limits(request: Request[Any, Any, Any]) -> LimitList:
        _known(request, ())
        return LimitList(await rates.list_limits(parts.engine))

    @put("/limits", summary="Set or change the rate limits of a scope", access=access.ADMINS)
    async def set_limit(data: Annotated[rates.NewLimit, Body()]) -> rates.Limit:
        return await rates.set_limit(parts.engine, data)

    @delete("/limits/{limit_id:int}", summary="Lift a rate limit", access=access.ADMINS)
    async def delete_limit(limit_id: FromPath[int]) -> None:
        await rates.delete_limit(parts.engine, limit_id)

    return [list_limits, set_limit, delete_limit]


def _prices(parts: Admins) -> list[BaseRouteHandler]:
    @get("/prices", summary="The price book: what is in force and to come; everything=true with what was superseded", access=access.MONEY)
    async def list_prices(request: Request[Any, Any, Any], everything: FromQuery[bool] = False) -> PriceList:
        _known(request, ("everything",))
        return PriceList(await prices.list_prices(parts.engine, everything))

    @put("/prices", summary="Set a model's price, from now or from another instant", access=access.ADMINS)
    async def set_price(data: Annotated[prices.NewPrice, Body()]) -> prices.Entry:
        return await prices.set_price(parts.engine, data)

    @delete("/prices", status_code=200, summary="Withdraw a price that was set; the one before it holds again", access=access.ADMINS)
    async def delete_price(request: Request[Any, Any, Any], id: FromQuery[str]) -> prices.Entry:  # noqa: A002 - its name outside
        _known(request, ("id",))
        return await prices.delete_price(parts.engine, id)

    @get("/prices/check", summary="What each backend is billed at; a price of null is unknown, which is not zero", access=access.MONEY)
    async def check_prices(request: Request[Any, Any, Any]) -> PricedList:
        _known(request, ())
        return PricedList([_priced(one) for one in await prices.of_backends(parts.engine, parts.file)])

    return [list_prices, set_price, delete_price, check_prices]


def _owned(parts: Admins) -> BaseRouteHandler:
    @get(
        "/reports/owned",
        summary="Owned hardware: what it came to, how busy it was, and where a hosted backend would cost the same",
        access=access.MONEY,
    )
    async def owned(
        request: Request[Any, Any, Any], since: FromQuery[str | None] = None, until: FromQuery[str | None] = None
    ) -> dict[str, Any]:
        _known(request, ("since", "until"))
        asked = break_even.Asked(since=since, until=until)
        return break_even.document(await break_even.owned(parts.engine, await prices.backends(parts.engine, parts.file), asked))

    return owned


def _amount(text: str) -> int:
    try:
        return nanousd(text, "usd")
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param="usd") from error


def _priced(one: prices.Priced) -> PricedView:
    price = one.price
    return PricedView(
        backend=one.backend,
        vendor=one.vendor,
        model=one.model,
        price=None if price is None else price.id,
        usd=None if price is None else prices.rates_of(price),
        hourly_usd=None if one.hourly is None else usd(one.hourly),
    )


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


def _known(request: Request[Any, Any, Any], names: Collection[str]) -> None:
    """A query parameter that is not understood may be a filter that was meant: never ignored."""
    for name in request.query_params:
        if name not in names:
            raise InvalidRequest(f"There is no parameter '{name}' here.", param=name)


def _invalid(_request: Request[Any, Any, Any], error: ValidationException) -> Response[bytes]:
    """Litestar's word on a body or parameter of a wrong shape, in the shape of all our errors, naming the field."""
    told = _told(error)
    body = DIALECTS["openai_chat"].error_body(told.status, told.message, told.type, told.code, told.param)
    headers = {name.decode(): value.decode() for name, value in error_headers(told)}
    return Response(body, status_code=told.status, media_type="application/json", headers=headers)


def _told(error: ValidationException) -> GatewayError:
    """InvalidRequest from the first thing that Litestar found wrong: its `extra` is a list of {message, key, source}."""
    found = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    said, key = str(found.get("message", error.detail)), str(found.get("key", ""))
    if said == "'data'":
        return InvalidRequest("The body is missing: send a JSON object.")
    named = re.search(r"field `([^`]+)`", said)
    name = named[1] if named is not None else ("" if key == "data" else key)
    where = "" if named is not None or not name else f"{name}: "
    return InvalidRequest(f"{where}{said.replace('`', chr(39))}.", param=name or None)
