"""Which settings are in force, where, since when, and why newer ones are not; asking for a reload and waiting for every worker.

Secrets never leave: references stay references, passwords in addresses are starred. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit, reloads
from gateway.access import Actor
from gateway.board import Told
from gateway.errors import InvalidRequest, NotReady
from gateway.log import redact
from gateway.settings import Settings
from gateway.views.backends import Watched, workers

ANSWER_S = 90.0  # for the supervisor to check and prepare
TAKE_S = 30.0  # for the workers then
POLL_S = 0.05
STARS = "***"


class FileView(Struct, frozen=True, kw_only=True):
    """The settings file as it was last read with success. path "": there was none. changed: it reads otherwise now, and a reload is due."""

    path: str
    sha256: str
    changed: bool


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """What one worker goes by. in_force: that is what the file last said. refused: why it could not take that over; problems: of what
    the API made."""

    worker: str
    in_force: bool
    settings: str
    since_us: int
    catalog: str
    refused: str
    problems: dict[str, str]


class ReloadView(Struct, frozen=True, kw_only=True):
    """The last reload. at_us null: none since the start. refused "": it was taken over. kept: what holds only after a restart."""

    at_us: int | None
    refused: str
    kept: tuple[str, ...]


class ConfigView(Struct, frozen=True, kw_only=True):
    """settings: hash of the file's settings, environment included. tables: what is in force, of file and API, without secrets.

    workers: of this gateway that live; expected: how many there should be.
    """

    settings: str
    file: FileView
    reload: ReloadView
    workers: tuple[WorkerConfig, ...]
    expected: int
    tables: dict[str, Any]


class Reloaded(Struct, frozen=True, kw_only=True):
    """complete: every worker of this gateway goes by it; else `workers` says which does not, and why."""

    complete: bool
    settings: str
    kept: tuple[str, ...]
    workers: tuple[WorkerConfig, ...]


async def config(parts: Watched) -> ConfigView:
    """All of it, over the workers of this gateway."""
    outcome = await asyncio.to_thread(reloads.read, parts.file.state)
    hash_ = parts.standing.settings if outcome is None else outcome.settings
    source = reloads.Source() if outcome is None else outcome.source
    changed = False
    if source.path:
        changed = (await asyncio.to_thread(reloads.source_of, source.path)).sha256 != source.sha256
    tried = outcome is not None and outcome.tried > 0
    return ConfigView(
        settings=hash_,
        file=FileView(path=source.path, sha256=source.sha256, changed=changed),
        reload=ReloadView(
            at_us=int(outcome.tried * 1e6) if outcome is not None and tried else None,
            refused="" if outcome is None else redact(outcome.refused),
            kept=() if outcome is None else outcome.kept,
        ),
        workers=_workers(await workers(parts), hash_),
        expected=parts.settings.server.workers,
        tables=tables(parts.settings),
    )


def _workers(told: Sequence[Told], settings: str) -> tuple[WorkerConfig, ...]:
    return tuple(_worker(one, settings) for one in sorted(told, key=lambda one: (len(one.worker), one.worker)))


def _worker(told: Told, settings: str) -> WorkerConfig:
    return WorkerConfig(
        worker=told.worker,
        in_force=told.settings == settings,
        settings=told.settings,
        since_us=int(told.since * 1e6),
        catalog=told.catalog,
        refused=redact(told.refused),
        problems={what: redact(why) for what, why in told.problems.items()},
    )


async def reload(parts: Watched, actor: Actor, engine: AsyncEngine) -> Reloaded:
    """Ask the supervisor, wait for it and for every worker. InvalidRequest says why the file is refused; then the old one holds."""
    ask = parts.standing.ask_reload
    if ask is None:
        raise NotReady("This process was not started by `tollway serve`, which reads the settings.", code="no_supervisor")
    asked, request, before = time.time(), secrets.token_hex(8), parts.standing.settings
    ask(request)
    outcome = await _answer(parts, request)
    after = {"settings": outcome.settings} | ({"refused": redact(outcome.refused)} if outcome.refused else {})
    async with engine.begin() as connection:
        await audit.write(
            connection, actor, action="config.reload", kind="config", ident="settings", before={"settings": before}, after=after
        )
    if outcome.refused:
        raise InvalidRequest(f"{redact(outcome.refused)} The settings before it stay in force.", code="reload_refused", status=422)
    found = await _taken(parts, outcome.settings, asked)
    told = _workers(found, outcome.settings)
    complete = len(told) >= parts.settings.server.workers and all(one.in_force for one in told)
    return Reloaded(complete=complete, settings=outcome.settings, kept=outcome.kept, workers=told)


async def _answer(parts: Watched, request: str) -> reloads.Outcome:
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        outcome = await asyncio.to_thread(reloads.read, parts.file.state)
        if outcome is not None and request in outcome.ids:
            return outcome
        await asyncio.sleep(POLL_S)
    raise NotReady(f"The supervisor did not answer within {ANSWER_S:g} s; its log says what it does.", code="reload_unanswered")


async def _taken(parts: Watched, settings: str, asked: float) -> list[Told]:
    """Every worker's word once each has taken the settings over or said why not; after TAKE_S as it is."""
    end = time.monotonic() + TAKE_S
    while True:
        found = await workers(parts)
        answered = [one for one in found if one.settings == settings or one.refused_at >= asked]
        if len(answered) >= parts.settings.server.workers or time.monotonic() >= end:
            return found
        await asyncio.sleep(POLL_S)


def tables(settings: Settings) -> dict[str, Any]:
    """The settings as tables, without secrets."""
    told: dict[str, Any] = msgspec.to_builtins(settings)
    storage, alerts = told["storage"], told["alerts"]
    storage["database_url"] = address(storage["database_url"])
    storage["redis_url"] = address(storage["redis_url"])
    if alerts["webhook_url"] and not alerts["webhook_url"].startswith(("env:", "file:")):
        alerts["webhook_url"] = f"{urlsplit(alerts['webhook_url']).scheme}://{urlsplit(alerts['webhook_url']).hostname}/{STARS}"
    for backend in told["backends"]:
        backend["base_url"], backend["metrics_url"] = address(backend["base_url"]), address(backend["metrics_url"])
        backend["script"] = f"{len(backend['script'])} characters" if backend["script"] else ""
    cleaned: dict[str, Any] = msgspec.json.decode(redact(msgspec.json.encode(told).decode()))
    return cleaned


def address(url: str) -> str:
    """A URL without what may be a secret in it: user, password, query."""
    if not url:
        return ""
    parts = urlsplit(url)
    user = f"{STARS}@" if parts.username or parts.password else ""
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{user}{host}{parts.path}" + (f"?{STARS}" if parts.query else "")
