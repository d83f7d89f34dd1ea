"""Run as a child before the workers: checks what the settings ask for, schema, secret, first admin key, prices.

Exit status 0: go on. 75: not yet (the database is away, or waits for `tollway migrate`); start, be not ready, ask again. 78: don't start.
Serves nothing; what it imports ends with it. Harmless when run again, and by several gateways at once.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import auth, made, people
from gateway.access import GATEWAY
from gateway.child import environment, python
from gateway.db import schema
from gateway.db.engine import database_url, make_engine, reading
from gateway.fit import check
from gateway.log import setup_logging, sink
from gateway.prepared import give_up
from gateway.price_seed import seed_prices
from gateway.published import load_published
from gateway.settings import EXIT_CONFIG, EXIT_NOT_YET, ConfigError, Settings

MIGRATE_TIMEOUT_S = 600.0
DEFAULT_TEAM = "default"

log = structlog.get_logger("tollway.prepare")


class NotYet(Exception):
    """The database cannot be used now; later it may. The message says what to do."""


async def prepare(settings: Settings) -> str | None:
    """All steps, in order; the first admin key's text when one was made. Raises ConfigError or NotYet."""
    check(settings)
    engine = make_engine(settings.storage, power=settings.money.fsync == "power")
    try:
        await _schema(settings, engine)
        accepted = await auth.ensure_secret(settings, engine)
        key = await first_admin_key(engine, accepted[0])
        async with reading(engine).connect() as connection:
            made.check(settings, await made.read(connection))
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
        await people.add_team(engine, DEFAULT_TEAM, actor=GATEWAY)
    new = people.NewKey(team=DEFAULT_TEAM, name="first admin key", scopes=("admin",))
    text, _ = await people.add_key(engine, secret, new, actor=GATEWAY)
    return text


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
        give_up(path.parent, str(error))
        status = EXIT_CONFIG
    except NotYet as error:
        log.warning("not ready", error=str(error))
        give_up(path.parent, str(error))
        status = EXIT_NOT_YET
    sink.flush()
    sys.exit(status)


def tell(key: str) -> None:
    """The one time that the first admin key is seen: on stdout, not in the log."""
    sys.stdout.write(f"First admin key, shown this once: {key}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
