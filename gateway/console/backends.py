"""Backends live: state, load, predicted against seen, availability, engines and what owned hardware costs; drain, undrain, probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from litestar import Request, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath
from msgspec import Struct

from gateway import access, operations
from gateway.api.operations import probe_now
from gateway.catalog import Backend
from gateway.console import backend_drawing as drawing
from gateway.console import shell
from gateway.errors import InvalidRequest, NotFound
from gateway.made import routes_of
from gateway.money.pricing import nanousd
from gateway.operations import brief
from gateway.views import backends as views
from gateway.views import figures
from gateway.views.backends import BackendRow

Req = Request[Any, Any, Any]
Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]
SPANS = {"60": 60, "15": 15}  # minutes of the charts
EVENT_WORDS = {"ejected": "Ejected", "waits": "Waited", "drained": "Drained"}


class Shown(Struct, frozen=True, kw_only=True):
    """One backend as its row shows it."""

    row: BackendRow
    slot: int
    place: str
    state: drawing.State
    bell: drawing.Dumbbell
    price: int | None
    strip: tuple[drawing.Piece, ...]
    up: float | None
    emptied: tuple[str, ...]
    engine: drawing.Engine | None
    worth: str


def handlers(parts: Any) -> list[BaseRouteHandler]:
    hardware = views.OwnedHardware()

    @get("/backends", access=access.WATCH)
    async def backends(request: Req) -> Response[str]:
        return await _page(request, parts, hardware)

    @get("/backends/-/{part:str}", access=access.WATCH)
    async def live(request: Req, part: FromPath[str]) -> Response[str]:
        if part not in ("live", "engines"):
            raise NotFound("There is no such part of this page.")
        return await shell.fragment(request, "backends.html", part, **await _values(request, parts, hardware))

    @get("/backends/{name:str}", access=access.WATCH)
    async def backend(request: Req, name: FromPath[str]) -> Response[str]:
        return await _one(request, parts, hardware, name)

    @post("/backends/{name:str}/{order:str}", status_code=200, access=access.ADMINS)
    async def order(request: Req, name: FromPath[str], order: FromPath[str], data: Form) -> Response[str]:
        return await _ordered(request, parts, hardware, (name, order), data)

    return [backends, live, backend, order]


async def _page(request: Req, parts: Any, hardware: views.OwnedHardware, **more: Any) -> Response[str]:
    values = await _values(request, parts, hardware) | more
    bad = sum(one.state.kind == "bad" for one in values["shown"])
    return await shell.page(
        request, access.actor(request), "backends.html", title="Backends", tick=3000, attention={"backends": bad}, **values
    )


async def _one(request: Req, parts: Any, hardware: views.OwnedHardware, name: str, **more: Any) -> Response[str]:
    values = await _values(request, parts, hardware, name) | more
    one = next((one for one in values["shown"] if one.row.backend == name), None)
    if one is None:
        raise NotFound(f"There is no backend '{name[:80]}'.")
    settings = next((other for other in parts.settings.backends if other.name == name), None)
    told = {} if settings is None else {key: _said(value) for key, value in brief(settings).items() if key not in ("name", "script")}
    return await shell.page(
        request,
        access.actor(request),
        "backend.html",
        title=name,
        tick=3000,
        one=one,
        settings=told,
        event_words=EVENT_WORDS,
        **values,
    )


async def _ordered(
    request: Req, parts: Any, hardware: views.OwnedHardware, what: tuple[str, str], data: Mapping[str, str]
) -> Response[str]:
    """Drain, undrain or probe; a refusal and a probe's answer are told on the page, the others are seen on it."""
    (name, order), who = what, access.actor(request)
    try:
        if order == "drain":
            await operations.drain(parts.engine, who, parts.file, name, data.get("note", ""), data.get("empty_routes") == "yes")
        elif order == "undrain":
            await operations.undrain(parts.engine, who, parts.file, name)
        elif order == "probe":
            return await _page(request, parts, hardware, probed=await probe_now(parts, who, name))
        else:
            raise NotFound("There is no such order.")
    except InvalidRequest as error:
        return await _page(request, parts, hardware, refused=error.message, status=error.status)
    await parts.snapshot.load()
    return shell.redirect("/console/backends", request)


async def _values(request: Req, parts: Any, hardware: views.OwnedHardware, name: str = "") -> dict[str, Any]:
    """What both templates and their live parts need."""
    actor = access.actor(request)
    full = actor.role == access.ADMIN
    query = shell.query(request, more={"span": tuple(SPANS), "show": ()}, default="1h")
    now = time.time()
    hour = await views.hours(parts)
    rows = await views.rows(parts, parts.standing.made.orders, hour, now, await hardware.get(parts) if full else {})
    minutes = SPANS[query.more["span"]]
    slots = {row.backend: views.slots(hour, row.backend, now, minutes) for row in rows}
    scale = drawing.scale_ms([(row.first_token, row.objective_ms) for row in rows])
    colours = figures.slots([row.backend for row in rows], {one: at for at, one in enumerate(parts.catalog.backends)})
    emptied = _emptied(parts)
    shown = [_shown(parts, row, (colours[row.backend], scale), slots[row.backend], emptied(row.backend)) for row in rows]
    chosen = name or query.more["show"] or next((row.backend for row in rows if row.first_token.samples), rows[0].backend if rows else "")
    if chosen not in slots and chosen and not name:
        raise NotFound(f"There is no backend '{chosen[:80]}'.")
    return {
        "query": query,
        "full": full,
        "shown": shown,
        "counts": drawing.counts([one.state for one in shown], rows),
        "scale": drawing.scale_words(scale),
        "span": minutes,
        "chosen": chosen,
        "chart": _chart(slots.get(chosen, []), next((row for row in rows if row.backend == chosen), None), query.tz),
        "inside": next((row.first_token.inside for row in rows if row.backend == chosen), None),
        "workers": max((len(row.workers) for row in rows), default=1),
        "edges": (int(now - minutes * 60) * 1_000_000, int(now) * 1_000_000),
        "refused": "",
        "probed": None,
    }


def _shown(parts: Any, row: BackendRow, drawn: tuple[int, float], slots: Sequence[views.Slot], emptied: tuple[str, ...]) -> Shown:
    """drawn: its colour, and the scale of all."""
    return Shown(
        row=row,
        slot=drawn[0],
        place=_place(parts.catalog.backends[row.backend]),
        state=drawing.state(row, shell.now_us()),
        bell=drawing.dumbbell(row.first_token, row.objective_ms, drawn[1]),
        price=None if row.usd_per_million is None else nanousd(row.usd_per_million, "usd"),
        strip=drawing.strip(slots),
        up=drawing.up(slots),
        emptied=emptied,
        engine=None if row.engine is None or row.engine.figures is None else drawing.engine(row.vendor, row.engine),
        worth="" if row.owned is None else drawing.break_even(row.owned),
    )


def _emptied(parts: Any) -> Callable[[str], tuple[str, ...]]:
    """Which routes would be left without a backend, were one more drained."""
    drained = parts.standing.made.drained
    last: dict[str, list[str]] = {}
    for route in (*routes_of(parts.file), *parts.standing.made.routes):
        left = set(route.backends) - drained
        if len(left) <= 1:
            for name in left or route.backends:
                last.setdefault(name, []).append(route.name)
    return lambda name: tuple(sorted(last.get(name, ())))


def _said(value: Any) -> Any:
    """A table without what it leaves out."""
    return {key: one for key, one in value.items() if one not in (None, [], ())} if isinstance(value, dict) else value


def _place(backend: Backend) -> str:
    """gpt-4o-mini, openai, residency=eu."""
    labels = [f"{name}={value}" for name, value in sorted(backend.labels.items())]
    return ", ".join([backend.model, "local engine" if backend.vendor == "local" else backend.vendor, *labels])


def _chart(slots: Sequence[views.Slot], row: BackendRow | None, tz: str) -> dict[str, Any]:
    """The spec of charts.js: predicted and seen p95 of each minute."""
    goal = None if row is None else row.objective_ms
    lines = [] if goal is None else [{"y": goal, "label": f"objective {figures.duration(goal)}"}]
    predicted = {"label": "predicted p95", "color": "c8", "dash": [5, 3], "data": [slot.predicted_ms for slot in slots]}
    seen = {"label": "seen p95", "color": "c1", "width": 2, "data": [slot.seen_ms for slot in slots]}
    return {"x": [slot.at for slot in slots], "zone": tz, "step": 60, "unit": "ms", "lines": lines, "series": [predicted, seen]}
