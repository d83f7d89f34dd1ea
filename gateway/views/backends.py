"""How backends are, over all workers of this gateway: state, load, predicted against seen, errors, cost, engines, owned hardware.

Other gateways on the same database are not in it. Reads the board and, for owned hardware, closed hours in SQL; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct, structs
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.backend_watch import (
    DRAINED,
    EJECTED,
    HOUR,
    MINUTE_S,
    RECENT,
    UP,
    WAITS,
    BackendWatch,
    Event,
    Minute,
    added,
    by_minute,
    quantile_ms,
)
from gateway.board import Board, Told
from gateway.catalog import Backend, Catalog, Route
from gateway.made import Order
from gateway.money import break_even
from gateway.money.pricing import MILLION, round_half_even, usd
from gateway.parts import Standing
from gateway.routing.router import BackendView, Router
from gateway.settings import Settings

READY = "ready"
EVENTS_SHOWN = 32
OWNED_H = 24  # closed hours that owned hardware is judged by
OWNED_FRESH_S = 30.0  # hours close once an hour


class WorkerView(Struct, frozen=True, kw_only=True):
    """One worker's belief. ready_in_s: 0 = not known, or ready."""

    worker: str
    state: str
    ready_in_s: float
    in_flight: int
    ttft95_ms: float


class FirstToken(Struct, frozen=True, kw_only=True):
    """Time to first token of streams in the last five minutes, p95. inside: share of them that came within what was predicted of them."""

    predicted_ms: float | None
    seen_ms: float | None
    samples: int
    inside: float | None


class DrainView(Struct, frozen=True, kw_only=True):
    since_us: int
    by: str
    note: str


class EventView(Struct, frozen=True, kw_only=True):
    """A time when a worker did not ask it freely. kind: waits | ejected | drained. until_us null: still. why: the error before it."""

    worker: str
    kind: str
    since_us: int
    until_us: int | None
    why: str


class OwnedView(Struct, frozen=True, kw_only=True):
    """Owned hardware over the closed hours of the last 24. USD with nine decimals; utilisation and shares as decimals to 1.

    full: of all that was owed, a million tokens; last_hour: of the last closed hour alone. busy: at 100 % use. cheaper: the hosted backend
    that is cheaper while use is below `below`, null = always; both null: none is known to be.
    """

    hourly_usd: str
    hours: int
    utilisation: str | None
    full_usd_per_million: str | None
    last_hour_usd_per_million: str | None
    busy_usd_per_million: str | None
    idle_usd: str
    cheaper: str | None
    below: str | None


class BackendRow(BackendView, frozen=True, kw_only=True):
    """As BackendView of the worker that answers, with in_flight, waiting and samples over all workers of this gateway, and state the worst.

    Rates and errors are of the last five minutes, usd_per_million of the last hour. source: file | api. parallel: per worker.
    objective_ms: the tightest of its routes. unpriced: attempts of the last hour that are not in usd_per_million. owned: of hardware that
    is paid for by the hour, once an hour of it is closed.
    """

    source: str
    vendor: str
    model: str
    labels: Mapping[str, str]
    routes: tuple[str, ...]
    parallel: int | None
    objective_ms: float | None
    workers: tuple[WorkerView, ...]
    drain: DrainView | None
    requests_per_min: float
    output_tokens_per_s: float
    first_token: FirstToken
    attempts: int
    failed: int
    errors: Mapping[str, int]
    usd_per_million: str | None
    unpriced: int
    up: float | None
    events: tuple[EventView, ...]
    hourly_usd: str | None
    owned: OwnedView | None


class BackendBrief(Struct, frozen=True, kw_only=True):
    """What people of teams see of a backend."""

    backend: str
    model: str
    state: str
    ready_in_s: float
    first_token: FirstToken


class Slot(Struct, frozen=True, kw_only=True):
    """One minute of the last hour. Shares of the time that was watched; None where nobody was there."""

    at: int  # seconds since 1970
    predicted_ms: float | None
    seen_ms: float | None
    attempts: int
    waits: float | None
    ejected: float | None
    drained: float | None


class Watched(Protocol):
    """What is needed of a worker's parts."""

    settings: Settings
    file: Settings
    engine: AsyncEngine
    catalog: Catalog
    router: Router
    watch: BackendWatch
    board: Board
    standing: Standing


def told(parts: Watched, views: list[BackendView], now: float) -> Told:
    """The answering worker's word. now: seconds since 1970."""
    standing = parts.standing
    return Told(
        worker=parts.board.worker,
        at=now,
        settings=standing.settings,
        since=standing.since,
        catalog=parts.catalog.version,
        refused=standing.refused,
        refused_at=standing.refused_at,
        problems=dict(standing.problems),
        views=views,
        minutes=parts.watch.recent(),
        events=parts.watch.events(),
    )


async def workers(parts: Watched, now: float | None = None) -> list[Told]:
    """The word of every worker that lives, the one that answers first."""
    now = time.time() if now is None else now
    own = told(parts, parts.router.snapshot(time.monotonic()), now)
    return [own, *await asyncio.to_thread(parts.board.others, now)]


async def hours(parts: Watched) -> list[Mapping[str, Sequence[Minute]]]:
    """The last hour of every worker, by backend."""
    return [parts.watch.hour(), *(await asyncio.to_thread(parts.board.hours)).values()]


async def rows(
    parts: Watched, orders: Mapping[str, Order], hour: Sequence[Mapping[str, Sequence[Minute]]], now: float, owned: Mapping[str, OwnedView]
) -> list[BackendRow]:
    """One per backend of the catalog, in its order. hour: of `hours`; owned: of `OwnedHardware`."""
    seen = _seen(parts.catalog, await workers(parts, now), hour, now)
    known = _Known(frozenset(one.name for one in parts.file.backends), _routes(parts.catalog), orders, owned)
    return [_row(parts.catalog.backends[one.name], one, known, now) for one in seen if one.views]


class _Seen(Struct):
    """Of one backend, by worker: beliefs, the last minutes, events; and the last hour of all."""

    name: str
    views: list[tuple[str, BackendView]]
    recent: list[list[Minute]]
    events: list[tuple[str, Event]]
    hour: Minute


class _Known(Struct, frozen=True):
    """Of all backends: who stands in the file, the routes of each, orders of operators, what owned hardware came to."""

    filed: frozenset[str]
    routes: Mapping[str, list[Route]]
    orders: Mapping[str, Order]
    owned: Mapping[str, OwnedView]


def _seen(catalog: Catalog, words: Sequence[Told], hour: Sequence[Mapping[str, Sequence[Minute]]], now: float) -> list[_Seen]:
    views: dict[str, list[tuple[str, BackendView]]] = {name: [] for name in catalog.backends}
    for one in words:
        for view in one.views:
            views.setdefault(view.backend, []).append((one.worker, view))
    return [
        _Seen(
            name,
            views[name],
            [one.minutes.get(name, []) for one in words],
            sorted(((one.worker, event) for one in words for event in one.events.get(name, ())), key=lambda one: one[1].since),
            added(by_minute([one.get(name, ()) for one in hour], now, HOUR)),
        )
        for name in catalog.backends
    ]


def _routes(catalog: Catalog) -> dict[str, list[Route]]:
    """Of each backend, the routes that name it, in their order."""
    found: dict[str, list[Route]] = {name: [] for name in catalog.backends}
    for route in catalog.routes.values():
        for name in dict.fromkeys(route.backends):
            found[name].append(route)
    return found


def brief(row: BackendRow) -> BackendBrief:
    """Without what says how much others use it."""
    return BackendBrief(backend=row.backend, model=row.model, state=row.state, ready_in_s=row.ready_in_s, first_token=row.first_token)


def _row(backend: Backend, seen: _Seen, known: _Known, now: float) -> BackendRow:
    views, minute = seen.views, int(now) // MINUTE_S
    order, routes = known.orders.get(backend.name), known.routes[backend.name]
    state, ready_in_s = _worst([view for _, view in views])
    since = max(minute - RECENT, min((one.at for minutes in seen.recent for one in minutes), default=minute))
    passed_s = max(1.0, now - since * MINUTE_S)
    lately = added(one for minutes in seen.recent for one in minutes if one.at >= since)
    watched, last_hour = sum(seen.hour.states.values()), seen.hour
    own_fields = structs.asdict(views[0][1]) | {
        "state": state,
        "ready_in_s": ready_in_s,
        "in_flight": sum(view.in_flight for _, view in views),
        "waiting": sum(view.waiting for _, view in views),
        "samples": sum(view.samples for _, view in views),
    }
    return BackendRow(
        **own_fields,
        source="file" if backend.name in known.filed else "api",
        vendor=backend.vendor,
        model=backend.model,
        labels=backend.labels,
        routes=tuple(route.name for route in routes),
        parallel=backend.parallel,
        objective_ms=min((route.ttft_ms for route in routes if route.ttft_ms is not None), default=None),
        workers=tuple(_of_worker(worker, view) for worker, view in sorted(views, key=lambda one: (len(one[0]), one[0]))),
        drain=None
        if order is None or order.drained_at_us is None
        else DrainView(since_us=order.drained_at_us, by=order.drained_by, note=order.note),
        requests_per_min=round(lately.attempts * 60 / passed_s, 1),
        output_tokens_per_s=round(lately.output / passed_s, 1),
        first_token=_first_token(lately),
        attempts=lately.attempts,
        failed=lately.failed,
        errors=lately.errors,
        usd_per_million=usd(round_half_even(last_hour.cost * MILLION, last_hour.tokens)) if last_hour.tokens else None,
        unpriced=last_hour.unpriced,
        up=round(last_hour.states.get(UP, 0.0) / watched, 4) if watched else None,
        events=tuple(_event(worker, event) for worker, event in seen.events[-EVENTS_SHOWN:]),
        hourly_usd=None if backend.hourly_nanousd is None else usd(backend.hourly_nanousd),
        owned=known.owned.get(backend.name),
    )


def _worst(views: Sequence[BackendView]) -> tuple[str, float]:
    """The state that most of the workers say which have something against it, and the longest wait among them."""
    against = [view for view in views if view.state != READY]
    if not against:
        return READY, 0.0
    state = Counter(view.state for view in against).most_common(1)[0][0]
    return state, max(view.ready_in_s for view in against if view.state == state)


def _of_worker(worker: str, view: BackendView) -> WorkerView:
    return WorkerView(
        worker=worker, state=view.state, ready_in_s=view.ready_in_s, in_flight=view.in_flight, ttft95_ms=round(view.ttft95_ms, 3)
    )


def _first_token(minute: Minute) -> FirstToken:
    return FirstToken(
        predicted_ms=_rounded(quantile_ms(minute.predicted, 0.95)),
        seen_ms=_rounded(quantile_ms(minute.seen, 0.95)),
        samples=minute.judged,
        inside=round(minute.inside / minute.judged, 4) if minute.judged else None,
    )


def _event(worker: str, event: Event) -> EventView:
    until = None if event.until is None else int(event.until * 1e6)
    return EventView(worker=worker, kind=event.kind, since_us=int(event.since * 1e6), until_us=until, why=event.why)


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 1)


def slots(hour: Sequence[Mapping[str, Sequence[Minute]]], name: str, now: float, minutes: int = HOUR) -> list[Slot]:
    """The last minutes of one backend, the oldest first, over all workers."""
    return [_slot(one) for one in by_minute([worker.get(name, ()) for worker in hour], now, minutes)]


def _slot(minute: Minute) -> Slot:
    watched = sum(minute.states.values())
    shares = {kind: minute.states.get(kind, 0.0) / watched if watched else None for kind in (WAITS, EJECTED, DRAINED)}
    predicted, seen = _rounded(quantile_ms(minute.predicted, 0.95)), _rounded(quantile_ms(minute.seen, 0.95))
    return Slot(at=minute.at * MINUTE_S, predicted_ms=predicted, seen_ms=seen, attempts=minute.attempts, **shares)


class OwnedHardware:
    """What owned hardware came to, by backend, asked of SQL at most twice a minute."""

    def __init__(self) -> None:
        self._found: dict[str, OwnedView] = {}
        self._catalog = ""
        self._until = 0.0

    async def get(self, parts: Watched) -> dict[str, OwnedView]:
        """Empty without a backend that has an hourly rate; then nothing is asked."""
        owned = {name: one for name, one in parts.catalog.backends.items() if one.hourly_nanousd is not None}
        if not owned:
            return {}
        now = time.monotonic()
        if now >= self._until or self._catalog != parts.catalog.version:
            day, hour = await _lines(parts, OWNED_H), await _lines(parts, 1)
            self._found = {name: _owned(line, hour.get(name), owned[name]) for name, line in day.items() if name in owned}
            self._catalog, self._until = parts.catalog.version, now + OWNED_FRESH_S
        return self._found


async def _lines(parts: Watched, hours: int) -> dict[str, break_even.Line]:
    """Of the last closed hours, by backend."""
    since = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)
    lines = await break_even.owned(parts.engine, parts.catalog.backends, break_even.Asked(since=since.isoformat()))
    return {line.observed.backend: line for line in lines}


def _owned(line: break_even.Line, last: break_even.Line | None, backend: Backend) -> OwnedView:
    """Against whoever is the first to be cheaper as use falls; one that no use would meet is cheaper always."""
    always = [one for one in line.against if one.utilisation is None]
    met = [one for one in line.against if one.utilisation is not None]
    first = min(always, key=lambda one: one.per_million, default=None) or max(met, key=lambda one: one.utilisation or 0, default=None)
    return OwnedView(
        hourly_usd=usd(backend.hourly_nanousd or 0),
        hours=line.observed.hours,
        utilisation=None if line.utilisation is None else str(line.utilisation),
        full_usd_per_million=None if line.average is None else usd(line.average),
        last_hour_usd_per_million=None if last is None or last.average is None else usd(last.average),
        busy_usd_per_million=None if line.busy is None else usd(line.busy),
        idle_usd=usd(line.observed.idle),
        cheaper=None if first is None else first.backend,
        below=None if first is None or first.utilisation is None else str(first.utilisation),
    )
