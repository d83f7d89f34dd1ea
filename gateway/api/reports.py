"""`/admin/reports/…`: spend, statement, forecasts over HTTP. Decodes what was asked, calls, encodes off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Annotated, Any, Protocol

from litestar import Request, Response, get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery, QueryParameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access import MONEY, TEAM_EDIT, actor
from gateway.errors import InvalidRequest
from gateway.money import forecast, reports, statement

LINES_MAX = 10_000  # of one answer: it is made in a worker's memory, beside the requests of its clients
CSV = "text/csv"  # the framework adds the charset
_ALONE = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'", "x-content-type-options": "nosniff"}
_BY = f"Separated by commas: {', '.join(reports.GROUPS)}"


class Reporting(Protocol):
    """What these calls need of a worker's parts."""

    engine: AsyncEngine


def handlers(parts: Reporting) -> list[BaseRouteHandler]:
    """For a guarded router."""
    return [_spend(parts), _statement(parts), _forecast(parts), _budgets(parts)]


def _spend(parts: Reporting) -> BaseRouteHandler:
    @get("/reports/spend", summary="What was spent, from the roll-ups; format=csv for the lines alone", access=MONEY | TEAM_EDIT)
    async def spend(
        request: Request[Any, Any, Any],
        by: Annotated[str, QueryParameter(description=_BY)] = "team",
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        timezone: FromQuery[str] = "UTC",
        team: FromQuery[str | None] = None,
    ) -> Response[Any]:
        shape = _shape(request, ("by", "since", "until", "timezone", "team"), ("json", "csv"))
        asked = reports.Asked(by=_words(by), since=since, until=until, timezone=timezone, team=team)
        found = await reports.spend(parts.engine, asked, LINES_MAX, actor(request).whole)
        if shape == "json":
            return Response(await asyncio.to_thread(reports.document, found))
        return Response(await asyncio.to_thread(reports.as_csv, found), media_type=CSV)

    return spend


def _statement(parts: Reporting) -> BaseRouteHandler:
    @get("/reports/statement", summary="A team's month by route and model; format=csv, or format=html to print", access=MONEY | TEAM_EDIT)
    async def month_statement(
        request: Request[Any, Any, Any], team: FromQuery[str] = "", month: FromQuery[str] = "", timezone: FromQuery[str] = "UTC"
    ) -> Response[Any]:
        shape = _shape(request, ("team", "month", "timezone"), ("json", "csv", "html"))
        for name, value, example in (("team", team, "search"), ("month", month, "2026-11")):
            if not value:
                raise InvalidRequest(f"{name} is missing: {name}={example}.", param=name)
        made = await statement.statement(parts.engine, team, month, timezone, actor(request).whole)
        if shape == "json":
            return Response(await asyncio.to_thread(statement.document, made))
        if shape == "csv":
            return Response(await asyncio.to_thread(statement.as_csv, made), media_type=CSV)
        page = await asyncio.to_thread(statement.as_html, made)
        return Response(page, media_type="text/html", headers=_ALONE)

    return month_statement


def _forecast(parts: Reporting) -> BaseRouteHandler:
    @get(
        "/reports/forecast",
        summary="What the present day, week or month will have cost, with an interval that holds it four times of five",
        access=MONEY | TEAM_EDIT,
    )
    async def ahead(
        request: Request[Any, Any, Any],
        by: Annotated[str, QueryParameter(description=f"Separated by commas: {', '.join(reports.PLACES)}")] = "team",
        per: Annotated[str, QueryParameter(description=", ".join(forecast.PERIODS))] = "month",
        timezone: FromQuery[str] = "UTC",
        team: FromQuery[str | None] = None,
    ) -> Response[Any]:
        shape = _shape(request, ("by", "per", "timezone", "team"), ("json", "csv"))
        found = await forecast.forecast(
            parts.engine, forecast.Asked(by=_words(by), per=per, timezone=timezone, team=team), actor(request).whole
        )
        if shape == "json":
            return Response(await asyncio.to_thread(forecast.document, found))
        return Response(await asyncio.to_thread(forecast.as_csv, found), media_type=CSV)

    return ahead


def _budgets(parts: Reporting) -> BaseRouteHandler:
    @get(
        "/reports/budgets",
        summary="What each budget's period will have cost at its end, and whether that passes its limit",
        access=MONEY | TEAM_EDIT,
    )
    async def budgets_ahead(request: Request[Any, Any, Any]) -> dict[str, Any]:
        _shape(request, (), ("json",))
        return {"data": [forecast.of_budget_document(one) for one in await forecast.of_budgets(parts.engine, actor(request).whole)]}

    return budgets_ahead


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _shape(request: Request[Any, Any, Any], names: Collection[str], shapes: tuple[str, ...]) -> str:
    """The format that was asked for. A parameter that is not understood may be a filter that was meant: never ignored."""
    for name in request.query_params:
        if name not in (*names, "format"):
            raise InvalidRequest(f"There is no parameter '{name[:80]}' here.", param=name[:80])
    shape = str(request.query_params.get("format", shapes[0]))
    if shape not in shapes:
        raise InvalidRequest(f"format: use {' or '.join(shapes)}.", param="format")
    return shape
