"""Routes in force, of the file and of the API, and those of the API that cannot be. Reads a worker's catalog; knows no SQL and no HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from gateway.catalog import Catalog
from gateway.made import ROUTE, routes_of
from gateway.operations import brief
from gateway.parts import Standing
from gateway.routing.router import Router
from gateway.settings import RouteSettings, Settings


class RouteBackend(Struct, frozen=True, kw_only=True):
    """state: as in GET /admin/backends, of the answering worker; "missing": the route names it and it cannot be asked."""

    backend: str
    state: str


class RouteRow(Struct, frozen=True, kw_only=True):
    """source: file | api. open: backends that are not drained; at 0 its requests are refused. problem: why it is not wholly in force.

    settings: as a [[routes]] table would say it, without what is as it is by itself.
    """

    name: str
    source: str
    backends: tuple[RouteBackend, ...]
    open: int
    ttft_ms: float | None
    tpot_ms: float | None
    deadline_ms: float | None
    settings: Mapping[str, Any]
    problem: str | None


class Routed(Protocol):
    """What is needed of a worker's parts."""

    file: Settings
    settings: Settings
    catalog: Catalog
    router: Router
    standing: Standing


def rows(parts: Routed) -> list[RouteRow]:
    """The file's first, each in its order."""
    states = {view.backend: view.state for view in parts.router.snapshot(time.monotonic())}
    made = parts.standing.made
    file = routes_of(parts.file)
    return [
        *(_row(parts, one, "file", states) for one in file),
        *(_row(parts, one, "api", states) for one in made.routes if one.name not in {other.name for other in file}),
    ]


def _row(parts: Routed, one: RouteSettings, source: str, states: Mapping[str, str]) -> RouteRow:
    drained = parts.standing.made.drained
    in_force = parts.catalog.routes.get(one.name)
    return RouteRow(
        name=one.name,
        source=source,
        backends=tuple(RouteBackend(backend=name, state=states.get(name, "missing")) for name in one.backends),
        open=0 if in_force is None else sum(name not in drained for name in in_force.backends),
        ttft_ms=one.ttft_ms,
        tpot_ms=one.tpot_ms,
        deadline_ms=one.deadline_ms,
        settings=brief(one),
        problem=parts.standing.problems.get(f"{ROUTE} {one.name}") if source == "api" else None,
    )
