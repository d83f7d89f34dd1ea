"""The ordinary routes: models, settled requests, health, metrics. Each asks a part and encodes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, Response, get, route
from litestar.enums import MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.handlers.base import BaseRouteHandler
from litestar.params import FromPath
from sqlalchemy import func, select

from gateway.auth import Principal
from gateway.db.columns import CLASSES
from gateway.db.engine import reading
from gateway.db.tables import adjustments, attempts, usage
from gateway.errors import NotFound
from gateway.money.pricing import usd
from gateway.parts import Parts
from gateway.pipeline import may_use


async def principal_of(request: Request[Any, Any, Any], parts: Parts) -> Principal:
    """The key of an ordinary request; InvalidKey or NotReady otherwise."""
    headers = dict(request.scope["headers"])
    return parts.keyring.find(headers) or await parts.keyring.find_slow(headers)


def model_card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tollway"}


def handlers(parts: Parts) -> list[BaseRouteHandler | HTTPRouteHandler]:
    """The route handlers over one worker's parts."""

    @get("/v1/models", summary="Models this key may use")
    async def models(request: Request[Any, Any, Any]) -> dict[str, Any]:
        who = await principal_of(request, parts)
        catalog = parts.catalog
        return {"object": "list", "data": [model_card(r.name) for r in catalog.routes.values() if may_use(who, r, catalog)]}

    @get("/v1/models/{model:path}", summary="One model")
    async def model(request: Request[Any, Any, Any], model: FromPath[str]) -> dict[str, Any]:
        who = await principal_of(request, parts)
        name = model.lstrip("/")
        found = parts.catalog.routes.get(name)
        if found is None or not may_use(who, found, parts.catalog):
            raise NotFound(
                f"The model '{name}' does not exist here. GET /v1/models lists what your key may use.",
                code="model_not_found",
                param="model",
            )
        return model_card(name)

    @get("/v1/requests/{request_id:str}", summary="The settled row of a request of your team, with every attempt")
    async def settled(request: Request[Any, Any, Any], request_id: FromPath[str]) -> dict[str, Any]:
        who = await principal_of(request, parts)
        return await settled_row(parts, who, request_id)

    @route("/health/live", http_method=["GET", "HEAD"], summary="This process runs")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @route("/health/ready", http_method=["GET", "HEAD"], summary="This gateway takes requests")
    async def ready() -> Response[dict[str, Any]]:
        state = await parts.readiness()
        return Response(state, status_code=200 if state["ready"] else 503)

    @get("/metrics", media_type=MediaType.TEXT, summary="Prometheus metrics of all workers")
    async def metrics() -> Response[bytes]:
        await parts.figures.refresh()
        return Response(await parts.telemetry.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [models, model, settled, live, ready, metrics]


async def settled_row(parts: Parts, who: Principal, request_id: str) -> dict[str, Any]:
    """The ledger row of one request as JSON values. NotFound also for another team's request."""
    missing = NotFound(
        f"No settled request '{request_id}' of your team (rows appear at the latest one second after the answer).",
        param="id",
        retry_after_s=1,
    )
    try:
        wanted = UUID(request_id)
    except ValueError as error:
        raise NotFound(f"'{request_id}' is not a request id; it is the x-tollway-request-id of an answer.", param="id") from error
    async with reading(parts.engine).connect() as connection:
        row = (await connection.execute(select(usage).where(usage.c.id == wanted, usage.c.team_id == who.team_id))).mappings().one_or_none()
        if row is None:
            raise missing
        beside = select(func.coalesce(func.sum(adjustments.c.delta), 0)).where(adjustments.c.usage_id == wanted)
        adjusted = int((await connection.execute(beside)).scalar_one())
        tried = (await connection.execute(select(attempts).where(attempts.c.request_id == wanted).order_by(attempts.c.n))).mappings().all()
    names = (
        "route",
        "backend",
        "vendor",
        "model",
        "price_id",
        "outcome",
        "status",
        "error",
        "tag",
        "streamed",
        "estimated",
        "started_at_us",
        "ended_at_us",
        "ttft_ms",
        "duration_ms",
        "provider_id",
    )
    return {
        "id": request_id,
        **{name: row[name] for name in names},
        "cost_usd": usd(row["cost"]),
        "cost_nanousd": row["cost"],
        "adjusted_usd": usd(adjusted),
        "usage": {name: row[name] for name in CLASSES},
        "attempts": [
            {
                **{
                    name: a[name]
                    for name in ("n", "backend", "vendor", "model", "outcome", "status", "error", "estimated", "ttft_ms", "duration_ms")
                },
                "cost_usd": usd(a["cost"]),
                "worst_usd": usd(a["worst"]),
                "usage": {name: a[name] for name in CLASSES},
            }
            for a in tried
        ],
    }
