"""`/admin/…` over HTTP, for keys with a role: the router of all its calls, and those on prices and backends. Checks, decodes, calls.

Every handler stands inside one guarded router and says whom it is open to; one that does not is closed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

from litestar import Request, Response, Router, delete, get, put
from litestar.exceptions import ValidationException
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromQuery
from litestar.types import ControllerRouterHandler
from msgspec import Struct

from gateway import access, prices
from gateway.api import audit, budgets, ledger, operations, overview, people, reports, requests
from gateway.api.endpoint import error_headers
from gateway.api.parameters import Asked, known, no_parameters
from gateway.auth import Keyring
from gateway.errors import GatewayError, InvalidRequest
from gateway.money import break_even
from gateway.money.accounts import Accounts
from gateway.money.pricing import usd
from gateway.views.attention import Attention
from providers.dialects import DIALECTS


class Admins(operations.Operated, requests.Explored, Protocol):
    """What these calls need of a worker's parts."""

    keyring: Keyring
    accounts: Accounts
    attention: Attention


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


def handlers(parts: Admins) -> list[ControllerRouterHandler]:
    """The router over one worker's parts."""

    async def by_key(connection: access.Connection) -> access.Actor:
        headers = dict(connection.scope["headers"])
        return access.of_key(parts.keyring.find(headers) or await parts.keyring.find_slow(headers))

    router = Router(
        path="/admin",
        guards=[access.guard(by_key), no_parameters],
        request_class=Asked,
        route_handlers=[
            *people.handlers(parts),
            *budgets.handlers(parts),
            audit.handler(parts),
            *_prices(parts),
            *overview.handlers(parts),
            *reports.handlers(parts),
            *ledger.handlers(parts),
            *requests.handlers(parts),
            *operations.handlers(parts),
            _owned(parts),
        ],
        exception_handlers={ValidationException: _invalid},
        tags=["admin"],
    )
    return [router]


def _prices(parts: Admins) -> list[BaseRouteHandler]:
    @get("/prices", summary="The price book: what is in force and to come; everything=true with what was superseded", access=access.MONEY)
    async def list_prices(request: Request[Any, Any, Any], everything: FromQuery[bool] = False) -> PriceList:
        known(request, ("everything",))
        return PriceList(await prices.list_prices(parts.engine, everything))

    @put("/prices", summary="Set a model's price, from now or from another instant", access=access.ADMINS)
    async def set_price(request: Request[Any, Any, Any], data: Annotated[prices.NewPrice, Body()]) -> prices.Entry:
        return await prices.set_price(parts.engine, data, actor=access.actor(request))

    @delete(
        "/prices",
        status_code=200,
        summary="Withdraw a price that was set; the one before it holds again",
        access=access.ADMINS,
        parameters=("id",),
    )
    async def delete_price(request: Request[Any, Any, Any], id: FromQuery[str]) -> prices.Entry:  # noqa: A002 - its name outside
        return await prices.delete_price(parts.engine, id, actor=access.actor(request))

    @get("/prices/check", summary="What each backend is billed at; a price of null is unknown, which is not zero", access=access.MONEY)
    async def check_prices(request: Request[Any, Any, Any]) -> PricedList:
        known(request, ())
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
        known(request, ("since", "until"))
        asked = break_even.Asked(since=since, until=until)
        return break_even.document(await break_even.owned(parts.engine, await prices.backends(parts.engine, parts.file), asked))

    return owned


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
