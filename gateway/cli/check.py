"""`tollway check`: what would not work, and why, before it is started. Changes nothing; reaches each backend without cost."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from gateway import made
from gateway.catalog_build import vendor_of
from gateway.cli import settings
from gateway.db import schema
from gateway.db.engine import database_url, make_engine, reading, redacted
from gateway.db.tables import price_book
from gateway.fit import check as check_settings
from gateway.money.pricing import seed_price
from gateway.routing.quality import DEFAULT, QualityError, load
from gateway.settings import BackendSettings, ConfigError, Settings, has_local_libraries
from providers.errors import ProviderError
from providers.http import Upstream
from providers.local import LocalProvider
from providers.remote import RemoteProvider
from providers.scripted import parse
from providers.signers import resolve
from providers.vendors import VENDORS

REDIS_TIMEOUT_S = 2.0
BACKENDS_AT_ONCE = 16
FIGURES_S = 5.0  # for a page of figures
ENABLING = "SGLang publishes it with --enable-metrics, llama.cpp with --metrics"
VOLATILE = {"tmpfs", "ramfs", "overlay"}  # gone with the machine's or the container's end
NAMES = "made over the API"
REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}


class Finding(Struct, frozen=True):
    """level: ok | warning | problem. A problem makes the command fail."""

    level: str
    subject: str
    text: str


NOT_LOOKED_AT = Finding("warning", NAMES, "not looked at: whether a backend or route of the file was made there too is in the database")


def check() -> None:
    """Configuration, state folder, database, Redis, every backend, every price. Exit status 1 when something would not work."""
    chosen = settings()
    check_settings(chosen)
    findings = [Finding("ok", "settings", f"{len(chosen.backends)} backends, {len(chosen.routes)} routes"), state_folder(chosen.state)]
    findings += asyncio.run(outside(chosen))
    for finding in findings:
        print(f"{finding.level:8} {finding.subject:24} {finding.text}")
    sys.exit(int(any(finding.level == "problem" for finding in findings)))


async def outside(chosen: Settings) -> list[Finding]:
    """What has to be asked over sockets."""
    found, priced = await the_database(chosen)
    if chosen.storage.redis_url:
        found.append(await the_redis(chosen.storage.redis_url))
    upstream = Upstream(chosen.upstream)
    gate = asyncio.Semaphore(BACKENDS_AT_ONCE)

    async def one(backend: BackendSettings) -> Finding:
        async with gate:
            return await the_backend(backend, chosen, upstream)

    try:
        found += await asyncio.gather(*(one(backend) for backend in chosen.backends))
    finally:
        await upstream.close()
    return found + [the_price(backend, priced) for backend in chosen.backends] + the_vectors(chosen) + the_quality(chosen)


def state_folder(state: Path) -> Finding:
    """The journal lies here: it must be ours to write, private, and on a disk of this machine."""
    subject = "state folder"
    place = state.resolve()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("problem", subject, f"{place} cannot be written to")
    kind = file_system(place)
    if kind in REMOTE:
        return Finding("problem", subject, f"{state} is on {kind}: the journal needs a disk of this machine")
    if kind in VOLATILE:
        return Finding("warning", subject, f"{state} is on {kind}: the ledger's journal is lost with it; use a disk or a volume")
    if state.exists() and state.stat().st_mode & 0o077:
        return Finding("warning", subject, f"others can look into {state}: chmod 700 {state}")
    return Finding("ok", subject, f"{state} on {kind or 'an unknown file system'}")


def file_system(path: Path) -> str:
    """The type of the file system that holds a path, as the kernel names it; empty where it does not say."""
    table = Path("/proc/self/mounts")
    if not table.exists():
        return ""
    found, longest = "", -1
    for line in table.read_text().splitlines():
        _, mount, kind, *_ = line.split(" ")
        mount = mount.encode().decode("unicode_escape")
        if path.is_relative_to(mount) and len(mount) > longest:
            found, longest = kind, len(mount)
    return found


async def the_database(chosen: Settings) -> tuple[list[Finding], set[tuple[str, str]]]:
    """The findings, and what the price book knows."""
    subject, address = "database", redacted(database_url(chosen.storage))
    if not chosen.storage.database_url and not (chosen.state / "tollway.db").exists():
        return [Finding("ok", subject, f"{address} will be made by the first start")], set()
    engine = make_engine(chosen.storage)
    try:
        state = await schema.state(engine)
        if state == "current":
            async with reading(engine).connect() as connection:
                rows = await connection.execute(select(price_book.c.vendor, price_book.c.model))
                priced = {(row.vendor, row.model) for row in rows}
                return [Finding("ok", subject, address), the_names(chosen, await made.read(connection))], priced
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        told = Finding("problem", subject, f"{address}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return [told, NOT_LOOKED_AT], set()
    finally:
        await engine.dispose()
    if state == "older" and engine.dialect.name == "sqlite":
        return [Finding("ok", subject, f"{address} will be upgraded by the next start"), NOT_LOOKED_AT], set()
    return [Finding("problem", subject, f"{address}: {schema.problem(state)}"), NOT_LOOKED_AT], set()


def the_names(chosen: Settings, ours: made.Made) -> Finding:
    """Whether the file goes with what the API made: a start or a reload is refused where one name stands in both."""
    try:
        made.check(chosen, ours)
    except ConfigError as error:
        return Finding("problem", NAMES, str(error))
    return Finding("ok", NAMES, f"{len(ours.backends)} backends and {len(ours.routes)} routes made there go with the file")


async def the_redis(url: str) -> Finding:
    """Lost, it costs no request: the cache is then each process's own."""
    client = Redis.from_url(url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S)
    try:
        await client.ping()
    except (RedisError, OSError) as error:
        return Finding("problem", "redis", str(error))
    finally:
        await client.aclose()
    return Finding("ok", "redis", "answers")


async def the_backend(backend: BackendSettings, chosen: Settings, upstream: Upstream) -> Finding:
    subject = f"backend {backend.name}"
    if backend.vendor == "local":
        return await the_engine(backend, chosen, subject)
    if backend.vendor == "scripted":
        try:
            parse(backend.script)
        except ValueError as error:
            return Finding("problem", subject, str(error))
        return Finding("ok", subject, "plays its script")
    vendor = vendor_of(backend)
    credential = resolve(backend.api_key, backend.name) if backend.api_key else ""
    provider = RemoteProvider(vendor, vendor.base_url, credential, upstream, backend.metrics_url)
    wrong = await provider.check()
    if wrong is not None:
        return Finding("problem", subject, wrong)
    if vendor.page is not None:
        try:
            await provider.figures(FIGURES_S, chosen.figures.max_bytes)
        except ProviderError as error:
            return Finding("warning", subject, f"{vendor.base_url} answers, but its load cannot be read: {error.message}. {ENABLING}")
    return Finding("ok", subject, f"{vendor.base_url} answers")


async def the_engine(backend: BackendSettings, chosen: Settings, subject: str) -> Finding:
    """Libraries, model folder and, where the gateway runs, the engine itself."""
    folder = chosen.storage.models_path / backend.model
    if not has_local_libraries():
        return Finding("problem", subject, "needs the libraries of its extra: pip install 'tollway[local]'")
    if not (folder / "config.json").exists():
        return Finding("warning", subject, f"no model in {folder}: tollway models get {backend.model}, unless the start fetches it")
    if not chosen.socket(backend.name).exists():
        return Finding("ok", subject, f"model in {folder}; its engine starts with the gateway")
    provider = LocalProvider(chosen.socket(backend.name), folder, backend.model)
    try:
        wrong = await provider.check()
    finally:
        await provider.close()
    return Finding("ok" if wrong is None else "problem", subject, wrong or "its engine answers")


def the_vectors(chosen: Settings) -> list[Finding]:
    """Routes whose backends make embeddings by different models: vectors that cannot be compared."""
    made = {one.name: one.known_as or one.model for one in chosen.backends if vendor_of(one).dialect == "openai_embeddings"}
    found = []
    for route in chosen.routes:
        models = sorted({made[name] for name in route.backends if name in made})
        if len(models) > 1:
            text = f"its vectors are of different models ({', '.join(models)}), which cannot be compared: give each a route of its own"
            found.append(Finding("warning", f"route {route.name}", text))
    return found


def the_quality(chosen: Settings) -> list[Finding]:
    """Models that say where weak backends will do."""
    found = []
    for route in chosen.routes:
        if route.quality is None:
            continue
        subject = f"quality of route {route.name}"
        try:
            model = load(Path(route.quality.model) if route.quality.model else DEFAULT)
            found.append(Finding("ok", subject, f"model {model.version}, from {model.about.get('origin', 'unknown labels')}"))
        except QualityError as error:
            found.append(Finding("problem", subject, str(error)))
    return found


def the_price(backend: BackendSettings, priced: set[tuple[str, str]]) -> Finding:
    subject = f"price of {backend.name}"
    if backend.hourly_usd is not None:
        return Finding("ok", subject, f"{backend.hourly_usd} USD per hour, shared by those who use it")
    if backend.price is not None:
        return Finding("ok", subject, f"{backend.price.input} in, {backend.price.output} out, USD per million tokens")
    if (backend.vendor, backend.model) in priced:
        return Finding("ok", subject, "from the price book")
    listed = VENDORS[backend.vendor].prices
    if listed and seed_price(listed, backend.known_as or backend.model, datetime.now(UTC)) is not None:
        return Finding("ok", subject, "from the published list, at the next start")
    return Finding("warning", subject, f"unknown: its requests are unpriced until backends.{backend.name}.price is set")
