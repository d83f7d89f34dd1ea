"""`/admin/backends`, `/admin/routes`, `/admin/reload` and `/admin/config`: what operators watch and change while the gateway runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from litestar import Request, delete, get, post, put
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath
from msgspec import Struct

from gateway import access, operations, trial
from gateway.errors import InvalidRequest, NotFound
from gateway.snapshot import Snapshot
from gateway.views import backends, configuration, routes
from providers.types import Provider


class Operated(backends.Watched, Protocol):
    """What these calls need of a worker's parts."""

    snapshot: Snapshot
    providers: Mapping[str, Provider]


Req = Request[Any, Any, Any]


class BackendList(Struct, frozen=True, kw_only=True):
    """Over the workers of the gateway that answers; `engine`, `left` and the predictions are the answering worker's own."""

    data: list[backends.BackendRow]


class BriefList(Struct, frozen=True, kw_only=True):
    """For people of teams."""

    data: list[backends.BackendBrief]


class RouteList(Struct, frozen=True, kw_only=True):
    data: list[routes.RouteRow]


class Drain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """note: why, for colleagues. empty_routes: also where a route is left without a backend."""

    note: str = ""
    empty_routes: bool = False


class Drained(Struct, frozen=True, kw_only=True):
    """in_flight: calls that still run, on this gateway; routes_without_backend: whose requests are refused from now on."""

    backend: str
    drained: bool
    in_flight: int
    routes_without_backend: tuple[str, ...] = ()


class Probed(Struct, frozen=True, kw_only=True):
    """answers: of its address, asked just now. problem: why not. The next request that it gets decides whether it is asked again."""

    backend: str
    answers: bool
    problem: str | None


def handlers(parts: Operated) -> list[BaseRouteHandler]:
    """Under /admin."""
    return [*_backends(parts), *_orders(parts), *_routes(parts), *_settings(parts)]


def _backends(parts: Operated) -> list[BaseRouteHandler]:
    hardware = backends.OwnedHardware()

    @get("/backends", summary="Each backend: state, load, what is predicted and seen of it, errors, cost, engine", access=access.WATCH)
    async def list_backends(request: Req) -> BackendList | BriefList:
        _no_parameters(request)
        full = access.actor(request).role == access.ADMIN
        owned = await hardware.get(parts) if full else {}
        rows = await backends.rows(parts, parts.standing.made.orders, await backends.hours(parts), time.time(), owned)
        if not full:
            return BriefList(data=[backends.brief(row) for row in rows])
        return BackendList(data=rows)

    @put("/backends/{name:str}", summary="Make or change a backend: a [[backends]] table as JSON, without its name", access=access.ADMINS)
    async def put_backend(request: Req, name: FromPath[str], data: Annotated[dict[str, Any], Body()]) -> operations.Changed:
        made = await operations.put_backend(parts.engine, access.actor(request), parts.file, name, data)
        await parts.snapshot.load()
        return made

    @delete("/backends/{name:str}", summary="Delete a backend that was made over the API", access=access.ADMINS)
    async def delete_backend(request: Req, name: FromPath[str]) -> None:
        await operations.delete_backend(parts.engine, access.actor(request), parts.file, name)
        await parts.snapshot.load()

    return [list_backends, put_backend, delete_backend]


def _orders(parts: Operated) -> list[BaseRouteHandler]:
    @post("/backends/{name:str}/drain", status_code=200, summary="No new requests for a backend; running ones end", access=access.ADMINS)
    async def drain(request: Req, name: FromPath[str], data: Annotated[Drain, Body()]) -> Drained:
        who = access.actor(request)
        emptied = await operations.drain(parts.engine, who, parts.file, name, data.note, data.empty_routes)
        return await _drained(parts, name, tuple(emptied))

    @post("/backends/{name:str}/undrain", status_code=200, summary="A drained backend takes requests again", access=access.ADMINS)
    async def undrain(request: Req, name: FromPath[str]) -> Drained:
        await operations.undrain(parts.engine, access.actor(request), parts.file, name)
        return await _drained(parts, name, ())

    @post(
        "/backends/{name:str}/probe",
        status_code=200,
        summary="End a backend's ejection on every worker, and say whether its address answers",
        access=access.ADMINS,
    )
    async def probe(request: Req, name: FromPath[str]) -> Probed:
        return await probe_now(parts, access.actor(request), name)

    return [drain, undrain, probe]


async def probe_now(parts: Operated, actor: access.Actor, name: str) -> Probed:
    """For the call and the page."""
    await operations.probe(parts.engine, actor, parts.file, name)
    await parts.snapshot.load()
    provider = parts.providers.get(name)
    problem = "it is not in force here, see its problem" if provider is None else await provider.check()
    return Probed(backend=name, answers=problem is None, problem=problem)


async def _drained(parts: Operated, name: str, emptied: tuple[str, ...]) -> Drained:
    await parts.snapshot.load()
    told = await backends.workers(parts)
    running = sum(view.in_flight for one in told for view in one.views if view.backend == name)
    return Drained(backend=name, drained=name in parts.standing.made.drained, in_flight=running, routes_without_backend=emptied)


def _routes(parts: Operated) -> list[BaseRouteHandler]:
    @get("/routes", summary="Each route: whose it is, its backends and objectives, and what keeps it from working", access=access.WATCH)
    async def list_routes(request: Req) -> RouteList:
        _no_parameters(request)
        return RouteList(data=routes.rows(parts))

    @get("/routes/{name:path}", summary="One route", access=access.WATCH)
    async def one_route(request: Req, name: FromPath[str]) -> routes.RouteRow:
        _no_parameters(request)
        found = next((one for one in routes.rows(parts) if one.name == name.removeprefix("/")), None)
        if found is None:
            raise NotFound(f"There is no route '{name[:80]}': GET /admin/routes shows them.")
        return found

    @put("/routes/{name:path}", summary="Make or change a route: a [[routes]] table as JSON, without its name", access=access.ADMINS)
    async def put_route(request: Req, name: FromPath[str], data: Annotated[dict[str, Any], Body()]) -> operations.Changed:
        made = await operations.put_route(parts.engine, access.actor(request), parts.file, name.removeprefix("/"), data)
        await parts.snapshot.load()
        return made

    @delete("/routes/{name:path}", summary="Delete a route that was made over the API", access=access.ADMINS)
    async def delete_route(request: Req, name: FromPath[str]) -> None:
        await operations.delete_route(parts.engine, access.actor(request), parts.file, name.removeprefix("/"))
        await parts.snapshot.load()

    @post(
        "/route",
        status_code=200,
        summary="Where a request would go and why, as the worker that answers believes; nobody is called",
        access=access.WATCH,
    )
    async def route(data: Annotated[trial.Asked, Body()]) -> trial.Told:
        return trial.tell(data, parts.catalog, parts.router, time.monotonic())

    return [list_routes, one_route, put_route, delete_route, route]


def _settings(parts: Operated) -> list[BaseRouteHandler]:
    @post("/reload", status_code=200, summary="Read the settings file again; answers when every worker goes by it", access=access.ADMINS)
    async def reload(request: Req) -> configuration.Reloaded:
        return await configuration.reload(parts, access.actor(request), parts.engine)

    @get("/config", summary="Which settings are in force on each worker, since when, and why newer ones are not", access=access.ADMINS)
    async def config(request: Req) -> configuration.ConfigView:
        _no_parameters(request)
        return await configuration.config(parts)

    return [reload, config]


def _no_parameters(request: Req) -> None:
    """A query parameter that is not understood may be a filter that was meant: never ignored."""
    for name in request.query_params:
        raise InvalidRequest(f"There is no parameter '{name}' here.", param=name)
