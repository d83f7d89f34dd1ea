"""What operators change while the gateway runs: backends and routes beside the file's, draining and probing. Each change is audited.

The rule of names stands in made.py. Workers see a change within about two seconds. Knows no HTTP.
"""

from __future__ import annotations

import fnmatch
import os.path
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit, fit, made, settings
from gateway.access import Actor
from gateway.db.tables import backend_orders, made_entries
from gateway.errors import InvalidRequest, NotFound
from gateway.made import BACKEND, FILE, ROUTE, Made, Order
from gateway.people.common import changing, check_text
from gateway.price_seed import seed_prices
from gateway.settings import BackendSettings, ConfigError, RouteSettings, Settings
from gateway.settings_text import explain, refuse_unknown

MADE_MAX = 500  # of each kind
NOTE_MAX = 200
_ROUTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*(/[A-Za-z0-9][A-Za-z0-9._:@+-]*)*")  # what stands in a path as it is
OWN_NAMES = "env:TOLLWAY_*"  # settings of the gateway itself, with the database's password among them

Entry = TypeVar("Entry", BackendSettings, RouteSettings)


class Changed(Struct, frozen=True, kw_only=True):
    """name: of what was made or changed. new: whether it is."""

    name: str
    new: bool


async def put_backend(engine: AsyncEngine, actor: Actor, file: Settings, name: str, raw: Mapping[str, Any]) -> Changed:
    """Make or change a backend. raw: as a [[backends]] table of the file, without its name. InvalidRequest names the field."""
    one = _read(BackendSettings, "backends", name, raw)
    try:
        settings.check_backend(one, file.socket(name))
        _refuse_from_outside(one, file)
        fit.check_backend(one)
    except ConfigError as error:
        raise _refused(error) from error
    async with _editing(engine) as (connection, now_us, entries):
        if name in {other.name for other in file.backends}:
            raise _of_the_file("backends", name)
        new = await _store(connection, (BACKEND, one), now_us, entries.backends)
        await _audited(connection, actor, (BACKEND, name), _found(entries.backends, name), one)
    await seed_prices(engine, (one,))
    return Changed(name=name, new=new)


async def put_route(engine: AsyncEngine, actor: Actor, file: Settings, name: str, raw: Mapping[str, Any]) -> Changed:
    """Make or change a route over backends of the file and of the API. raw: as a [[routes]] table, without its name."""
    if _ROUTE.fullmatch(name) is None:
        told = "use letters, digits, dots, dashes, underscores, colons and slashes between them."
        raise InvalidRequest(f"routes.{name[:80]}.name: {told}", param="name")
    one = _read(RouteSettings, "routes", name, raw)
    if one.quality is not None and one.quality.model:
        raise InvalidRequest(f"routes.{name}.quality.model: a model of one's own is named in {FILE} alone.", param="quality.model")
    async with _editing(engine) as (connection, now_us, entries):
        if name in {other.name for other in made.routes_of(file)}:
            raise _of_the_file("routes", name)
        try:
            settings.check_route(one, {other.name for other in (*file.backends, *entries.backends)})
        except ConfigError as error:
            raise _refused(error) from error
        new = await _store(connection, (ROUTE, one), now_us, entries.routes)
        await _audited(connection, actor, (ROUTE, name), _found(entries.routes, name), one)
    return Changed(name=name, new=new)


async def delete_backend(engine: AsyncEngine, actor: Actor, file: Settings, name: str) -> None:
    """Requests that run end as they began. Refused while a route names it."""
    async with _editing(engine) as (connection, _, entries):
        gone = _deletable(entries.backends, "backends", name, {other.name for other in file.backends})
        users = sorted(route.name for route in entries.routes if name in route.backends)
        if users:
            raise InvalidRequest(
                f"The backend '{name}' is named by {_list('route', users)}, made over the API: change or delete it first.",
                code="in_use",
                status=409,
            )
        await connection.execute(delete(backend_orders).where(backend_orders.c.backend == name))
        await _erase(connection, actor, BACKEND, gone)


async def delete_route(engine: AsyncEngine, actor: Actor, file: Settings, name: str) -> None:
    """Requests that run end as they began; the next one for it is told that there is no such route."""
    async with _editing(engine) as (connection, _, entries):
        gone = _deletable(entries.routes, "routes", name, {other.name for other in made.routes_of(file)})
        await _erase(connection, actor, ROUTE, gone)


async def drain(engine: AsyncEngine, actor: Actor, file: Settings, name: str, note: str = "", empty_routes: bool = False) -> list[str]:
    """No new requests for this backend; running ones end. Routes that are left without a backend, whose requests are then refused: without
    `empty_routes` that is an error which names them."""
    check_text("note", note, NOTE_MAX)
    async with _editing(engine) as (connection, now_us, entries):
        _known(file, entries, name)
        before = entries.orders.get(name, Order())
        drained = entries.drained | {name}
        emptied = sorted(r.name for r in (*made.routes_of(file), *entries.routes) if name in r.backends and drained.issuperset(r.backends))
        if emptied and not empty_routes and before.drained_at_us is None:
            raise InvalidRequest(
                f"Without '{name}' {_list('route', emptied)} would have no backend, and every request for it would be refused. "
                "Say empty_routes: true to do it nevertheless.",
                param="empty_routes",
                code="routes_emptied",
                status=409,
            )
        at_us = now_us if before.drained_at_us is None else before.drained_at_us
        await _order(connection, name, {"drained_at_us": at_us, "drained_by": actor.name, "note": note})
        told = {"drained": True, "note": note} | ({"routes_without_backend": emptied} if emptied else {})
        await audit.write(
            connection,
            actor,
            action="backend.drain",
            kind=BACKEND,
            ident=name,
            before={"drained": before.drained_at_us is not None},
            after=told,
        )
    return emptied


async def undrain(engine: AsyncEngine, actor: Actor, file: Settings, name: str) -> None:
    """It takes requests again. Harmless where it was not drained."""
    async with _editing(engine) as (connection, _, entries):
        _known(file, entries, name)
        before = entries.orders.get(name, Order())
        if before.drained_at_us is None:
            return
        await _order(connection, name, {"drained_at_us": None, "drained_by": "", "note": ""})
        was = {"drained": True, "by": before.drained_by, "note": before.note}
        await audit.write(connection, actor, action="backend.undrain", kind=BACKEND, ident=name, before=was, after={"drained": False})


async def probe(engine: AsyncEngine, actor: Actor, file: Settings, name: str) -> None:
    """An ejection ends now, on every worker: the next request is its probe."""
    async with _editing(engine) as (connection, now_us, entries):
        _known(file, entries, name)
        last = entries.orders.get(name, Order()).probe_at_us or 0
        await _order(connection, name, {"probe_at_us": max(now_us, last + 1)})
        await audit.write(connection, actor, action="backend.probe", kind=BACKEND, ident=name, before=None, after=None)


@asynccontextmanager
async def _editing(engine: AsyncEngine) -> AsyncIterator[tuple[AsyncConnection, int, Made]]:
    """A transaction in which nobody else changes anything, the time in it, and what there is."""
    async with changing(engine) as (connection, now_us):
        yield connection, now_us, await made.read(connection)


def _read(kind: type[Entry], table: str, name: str, raw: Mapping[str, Any]) -> Entry:
    """The settings of one entry, decoded as the file's are. InvalidRequest names the field as the file would."""
    given = dict(raw)
    if given.pop("name", name) != name:
        raise InvalidRequest("name: the path says another name; leave it out of the body.", param="name")
    whole = {table: [{**given, "name": name}]}
    try:
        refuse_unknown(whole, Settings, "")
        return msgspec.convert(whole[table][0], kind)
    except ConfigError as error:
        raise _refused(error) from error
    except msgspec.ValidationError as error:
        message = str(error)
        at = f"$.{table}[...]" + (message.partition(" - at `$")[2].rstrip("`") if " - at `$" in message else "")
        raise _refused(ConfigError(explain(f"{message.partition(' - at ')[0]} - at `{at}`", whole, Settings))) from error


def _refuse_from_outside(one: BackendSettings, file: Settings) -> None:
    """What the file may say and a call from outside may not: it would read files or secrets of this machine, or needs a process."""
    if one.vendor == "local":
        raise ConfigError(f"backends.{one.name}.vendor: engines are started for backends of {FILE} alone; add it there and reload.")
    if one.script.startswith("file:"):
        raise ConfigError(f"backends.{one.name}.script: write the script itself; a file is named in {FILE} alone.")
    if not one.api_key:
        return
    kind, _, what = one.api_key.partition(":")
    reference = f"{kind}:{os.path.normpath(what)}" if kind == "file" else one.api_key
    allowed = file.server.api_references
    if fnmatch.fnmatchcase(reference, OWN_NAMES) or not any(fnmatch.fnmatchcase(reference, pattern) for pattern in allowed):
        told = ", ".join(allowed) or "none"
        raise ConfigError(
            f"backends.{one.name}.api_key: this reference may not be named over the API (server.api_references: {told}); "
            f"names that begin with TOLLWAY_ never."
        )


async def _store(
    connection: AsyncConnection,
    what: tuple[str, BackendSettings | RouteSettings],
    now_us: int,
    there: Collection[BackendSettings | RouteSettings],
) -> bool:
    kind, one = what
    record = msgspec.json.encode(one).decode()
    if _found(there, one.name) is not None:
        same = made_entries.c.kind == kind, made_entries.c.name == one.name
        await connection.execute(update(made_entries).where(*same).values(record=record, changed_at_us=now_us))
        return False
    if len(there) >= MADE_MAX:
        raise InvalidRequest(f"There are {MADE_MAX} of them already, which is the most that the API keeps; use {FILE}.", status=409)
    await connection.execute(insert(made_entries).values(kind=kind, name=one.name, record=record, made_at_us=now_us, changed_at_us=now_us))
    return True


async def _erase(connection: AsyncConnection, actor: Actor, kind: str, gone: BackendSettings | RouteSettings) -> None:
    await connection.execute(delete(made_entries).where(made_entries.c.kind == kind, made_entries.c.name == gone.name))
    await _audited(connection, actor, (kind, gone.name), gone, None)


async def _audited(
    connection: AsyncConnection,
    actor: Actor,
    what: tuple[str, str],
    before: BackendSettings | RouteSettings | None,
    after: BackendSettings | RouteSettings | None,
) -> None:
    """References are no secrets: they say where one lies."""
    verb = "delete" if after is None else ("change" if before is not None else "make")
    await audit.write(
        connection,
        actor,
        action=f"{what[0]}.{verb}",
        kind=what[0],
        ident=what[1],
        before=None if before is None else brief(before),
        after=None if after is None else brief(after),
    )


async def _order(connection: AsyncConnection, name: str, values: Mapping[str, Any]) -> None:
    there = (await connection.execute(select(backend_orders.c.backend).where(backend_orders.c.backend == name))).scalar_one_or_none()
    if there is None:
        await connection.execute(insert(backend_orders).values(backend=name, **values))
    else:
        await connection.execute(update(backend_orders).where(backend_orders.c.backend == name).values(**values))


def brief(one: BackendSettings | RouteSettings) -> dict[str, Any]:
    """What it says, without what it leaves as it is by itself."""
    plain = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in msgspec.structs.fields(type(one))}
    said = msgspec.to_builtins(one)
    return {name: value for name, value in said.items() if getattr(one, name) != plain[name]}


def _found(there: Collection[Any], name: str) -> Any:
    return next((one for one in there if one.name == name), None)


def _deletable(there: Collection[Any], table: str, name: str, theirs: set[str]) -> Any:
    found = _found(there, name)
    if found is not None:
        return found
    if name in theirs:
        raise _of_the_file(table, name)
    raise NotFound(f"There is no {table[:-1]} '{name[:80]}': GET /admin/{table} shows them.")


def _known(file: Settings, entries: Made, name: str) -> None:
    if name not in {one.name for one in (*file.backends, *entries.backends)}:
        raise NotFound(f"There is no backend '{name[:80]}': GET /admin/backends shows them.")


def _of_the_file(table: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{table}.{name} stands in {FILE}, which the API does not change: edit the file and reload, or choose another name.",
        code="in_the_file",
        param="name",
        status=409,
    )


def _refused(error: ConfigError) -> InvalidRequest:
    message = str(error)
    return InvalidRequest(message, param=message.partition(":")[0] or None)


def _list(what: str, names: list[str]) -> str:
    return f"the {what} {names[0]}" if len(names) == 1 else f"the {what}s {', '.join(names)}"
