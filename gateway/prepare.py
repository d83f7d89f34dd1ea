"""Run as a child before the workers: checks what the settings ask for, schema, secret, first admin key, prices.

Exit status 0: go on. 75: not yet (the database is away, or waits for `tollway migrate`); start, be not ready, ask again. 78: don't start.
Serves nothing; what it imports ends with it. Harmless when run again, and by several gateways at once.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog
from sqlalchemy import insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import auth, people
from gateway.catalog_build import build as build_catalog
from gateway.child import environment, python
from gateway.db import schema
from gateway.db.engine import database_url, make_engine
from gateway.db.tables import price_book
from gateway.log import setup_logging, sink
from gateway.money.pricing import seed_price
from gateway.published import load_published
from gateway.routing.judges import Judges
from gateway.settings import EXIT_CONFIG, EXIT_NOT_YET, BackendSettings, ConfigError, Settings, check_vendors
from providers.signers import resolve
from providers.vendors import VENDORS

MIGRATE_TIMEOUT_S = 600.0
DEFAULT_TEAM = "default"

log = structlog.get_logger("tollway.prepare")


class NotYet(Exception):
    """The database cannot be used now; later it may. The message says what to do."""


def check(settings: Settings) -> None:
    """What the settings ask of vendors and credentials. Raises ConfigError naming the backend."""
    check_vendors(settings, VENDORS)
    for backend in settings.backends:
        vendor = VENDORS[backend.vendor]
        if vendor.address_required and not backend.base_url:
            raise ConfigError(f"backends.{backend.name}.base_url: the vendor {vendor.name} has no address of its own; set one.")
        if vendor.account and not (backend.base_url or backend.account):
            raise ConfigError(f"backends.{backend.name}.account: the vendor {vendor.name} needs {vendor.account}, or a base_url.")
        if backend.account and not vendor.account:
            raise ConfigError(f"backends.{backend.name}.account: the vendor {vendor.name} has no accounts in its address; leave it out.")
        if backend.api_version and not vendor.api_version:
            raise ConfigError(f"backends.{backend.name}.api_version: the vendor {vendor.name} has no versions by name; leave it out.")
        if vendor.dialect and vendor.key_required and not backend.api_key:
            raise ConfigError(f"backends.{backend.name}.api_key: the vendor {vendor.name} needs a key: env:NAME or file:PATH.")
    try:
        _secrets(settings)
        Judges().load(build_catalog(settings, {}).routes)
        database_url(settings.storage)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _secrets(settings: Settings) -> None:
    """Every reference has a value. Raises ValueError."""
    for backend in settings.backends:
        if backend.api_key:
            resolve(backend.api_key, backend.name)
    for name in ("webhook_url", "webhook_secret"):
        value = getattr(settings.alerts, name)
        if value.startswith(("env:", "file:")):
            resolve(value, what=f"alerts.{name}")


async def prepare(settings: Settings) -> str | None:
    """All steps, in order; the first admin key's text when one was made. Raises ConfigError or NotYet."""
    check(settings)
    engine = make_engine(settings.storage, power=settings.money.fsync == "power")
    try:
        await _schema(settings, engine)
        accepted = await auth.ensure_secret(settings, engine)
        key = await first_admin_key(engine, accepted[0])
        await seed_prices(engine, settings.backends)
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        raise NotYet(f"The database cannot be used: {str(error).splitlines()[0]}") from error
    finally:
        await engine.dispose()
    return key


async def _schema(settings: Settings, engine: AsyncEngine) -> None:
    """SQLite is ours: made and upgraded here. On Postgres other gateways may still run the old schema: a person says when."""
    found = await schema.state(engine)
    if found == "newer":
        raise ConfigError(schema.problem(found))
    if found == "current":
        return
    if engine.dialect.name != "sqlite":
        raise NotYet(schema.problem(found))
    await engine.dispose()
    url = database_url(settings.storage).render_as_string(hide_password=False)
    done = subprocess.run(  # noqa: ASYNC221 - this process has nothing else to do
        python("migrations"),
        env=environment() | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=MIGRATE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ConfigError(f"The database's schema could not be made: {done.stderr.strip()[-500:]}")
    log.info("schema ready", revision=done.stdout.strip(), was=found)


async def first_admin_key(engine: AsyncEngine, secret: bytes) -> str | None:
    """A new admin key's text where the database holds no live one, else None. Its team is there for the first keys of a try-out too."""
    if any("admin" in key.scopes and key.revoked_at_us is None for key in await people.list_keys(engine)):
        return None
    if DEFAULT_TEAM not in {team.name for team in await people.list_teams(engine)}:
        await people.add_team(engine, DEFAULT_TEAM)
    text, _ = await people.add_key(engine, secret, people.NewKey(team=DEFAULT_TEAM, name="first admin key", scopes=("admin",)))
    return text


async def seed_prices(engine: AsyncEngine, backends: tuple[BackendSettings, ...]) -> None:
    """Published prices into the price book, for backends that configure none; once per version of the price data."""
    version = importlib.metadata.version("genai-prices")
    now = datetime.now(UTC)
    unpriced = [one for one in backends if one.price is None and one.hourly_usd is None and one.vendor not in ("local", "scripted")]
    wanted = {(one.vendor, one.model): one for one in unpriced}
    async with engine.begin() as connection:
        known = set((await connection.execute(select(price_book.c.id))).scalars())
        for (vendor, model), backend in wanted.items():
            row_id = f"genai-prices:{version}:{vendor}/{model}"
            if row_id in known:
                continue
            listed = VENDORS[vendor].prices
            found = seed_price(listed, backend.known_as or model, now) if listed else None
            if found is None:
                message = "no published price: requests to this backend are unpriced until you set backends.price"
                log.warning(message, backend=backend.name, model=model)
                continue
            record = msgspec.json.encode(msgspec.structs.replace(found, id=row_id)).decode()
            at = int(now.timestamp() * 1e6)
            row = {"id": row_id, "vendor": vendor, "model": model, "source": "seed", "record": record, "from_us": at, "created_at_us": at}
            await connection.execute(insert(price_book).values(**row))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gateway.prepare")
    parser.add_argument("--settings", type=Path, required=True)
    path = parser.parse_args().settings
    status = 0
    try:
        settings = load_published(path)
        setup_logging(settings.logging.level, settings.logging.format)
        key = asyncio.run(prepare(settings))
        if key is not None:
            tell(key)
    except ConfigError as error:
        log.error("cannot start", error=str(error))
        status = EXIT_CONFIG
    except NotYet as error:
        log.warning("not ready", error=str(error))
        status = EXIT_NOT_YET
    sink.flush()
    sys.exit(status)


def tell(key: str) -> None:
    """The one time that the first admin key is seen: on stdout, not in the log."""
    sys.stdout.write(f"First admin key, shown this once: {key}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
