"""What the API made: backends and routes beside those of the settings file, and what operators asked of backends. Read and joined here.

The rule: what tollway.toml names is its own, and read-only over the API; what the API made lives in SQL; one name in both is an error. A
start or reload of the file is then refused (`check`); a worker that runs already lets the file win and says so (`joined`). Changed by
operations.py. Knows no worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway import fit, settings
from gateway.db.tables import backend_orders, made_entries
from gateway.settings import BackendSettings, ConfigError, RouteSettings, Settings

BACKEND, ROUTE = "backend", "route"
TWICE = "stands in tollway.toml as well, which wins: delete one of the two, or rename it"
FILE = "tollway.toml"  # as people call the settings file, whatever its name is


class Order(Struct, frozen=True, kw_only=True):
    """What an operator asked of a backend. drained_at_us: None = it takes requests."""

    drained_at_us: int | None = None
    drained_by: str = ""
    note: str = ""
    probe_at_us: int | None = None


class Made(Struct, frozen=True, kw_only=True):
    """unreadable: entries of another version of this program, and why; by what they are, `backend x`."""

    backends: tuple[BackendSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    orders: Mapping[str, Order] = {}
    unreadable: Mapping[str, str] = {}

    @property
    def drained(self) -> frozenset[str]:
        return frozenset(name for name, order in self.orders.items() if order.drained_at_us is not None)


NOTHING = Made()


async def read(connection: AsyncConnection) -> Made:
    """All of it, in the order in which it was made."""
    entry = made_entries.c
    rows = (await connection.execute(select(made_entries).order_by(entry.made_at_us, entry.name))).all()
    found: dict[str, list[BackendSettings | RouteSettings]] = {BACKEND: [], ROUTE: []}
    unreadable = {}
    for row in rows:
        try:
            found[row.kind].append(msgspec.json.decode(row.record, type=BackendSettings if row.kind == BACKEND else RouteSettings))
        except (msgspec.DecodeError, KeyError) as error:
            unreadable[f"{row.kind} {row.name}"] = f"is not understood by this version: {error}"
    order = backend_orders.c
    orders = await connection.execute(select(order.backend, order.drained_at_us, order.drained_by, order.note, order.probe_at_us))
    return Made(
        backends=tuple(found[BACKEND]),  # type: ignore[arg-type]
        routes=tuple(found[ROUTE]),  # type: ignore[arg-type]
        orders={
            row.backend: Order(drained_at_us=row.drained_at_us, drained_by=row.drained_by, note=row.note, probe_at_us=row.probe_at_us)
            for row in orders
        },
        unreadable=unreadable,
    )


def routes_of(file: Settings) -> tuple[RouteSettings, ...]:
    """The file's routes; one that names none has a route for each of its backends, by the backend's name."""
    return file.routes or tuple(RouteSettings(name=one.name, backends=(one.name,)) for one in file.backends)


def check(file: Settings, made: Made) -> None:
    """Raises ConfigError where the file and what the API made do not go together; the message names both."""
    for table, theirs, ours in (
        ("backends", {one.name for one in file.backends}, {one.name for one in made.backends}),
        ("routes", {one.name for one in routes_of(file)}, {one.name for one in made.routes}),
    ):
        for name in sorted(theirs & ours):
            raise ConfigError(
                f"{table}.{name}: stands in {FILE}, and another of that name was made over the API: rename the one in the file, "
                f"or delete the other with DELETE /admin/{table}/{name}."
            )
    known = {one.name for one in (*file.backends, *made.backends)}
    for route in made.routes:
        for name in route.backends:
            if name not in known:
                raise ConfigError(
                    f'backends.{name}: the route "{route.name}", made over the API, names this backend, which {FILE} does not have any '
                    f"more: put it back, or change the route with PUT /admin/routes/{route.name}."
                )


def joined(file: Settings, made: Made, usable: Callable[[BackendSettings], None] = fit.check_form) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and why entries of the API are not: `backend x` -> words. The file's own always are.

    usable: raises ConfigError for a backend that cannot work here.
    """
    problems = dict(made.unreadable)
    if not made.backends and not made.routes:
        return file, problems
    backends, known = list(file.backends), {one.name for one in file.backends}
    for backend in made.backends:
        try:
            if backend.name in known:
                raise ConfigError(TWICE)
            settings.check_backend(backend, file.socket(backend.name))
            usable(backend)
        except ConfigError as error:
            problems[f"{BACKEND} {backend.name}"] = _words(error)
        else:
            backends.append(backend)
    known = {one.name for one in backends}
    routes = [*routes_of(file), *_made_routes(file, made, known, problems)]
    return replace(file, backends=tuple(backends), routes=tuple(routes)), problems


def _made_routes(file: Settings, made: Made, known: set[str], problems: dict[str, str]) -> list[RouteSettings]:
    """Each over those of its backends that can be asked; `problems` is told of those that cannot."""
    named, routes = {one.name for one in routes_of(file)}, []
    for route in made.routes:
        try:
            if route.name in named:
                raise ConfigError(TWICE)
            there = tuple(name for name in route.backends if name in known)
            left = replace(route, backends=there) if there else route
            settings.check_route(left, known)  # with fewer backends it may say what no route can
        except ConfigError as error:
            problems[f"{ROUTE} {route.name}"] = _words(error)
            continue
        routes.append(left)
        if left.backends != route.backends:
            missing = [name for name in route.backends if name not in known]
            problems[f"{ROUTE} {route.name}"] = f"names {', '.join(missing)}, which cannot be asked"
    return routes


def _words(error: ConfigError) -> str:
    return str(error).rstrip(".")
