"""Brings a database to this program's schema: alembic scripts that run on SQLite and Postgres. Knows the tables and nothing else.

`python -m migrations` reads the address from the environment variable DATABASE_URL; the gateway runs it as a child, so that no serving
process ever loads alembic.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

LOCK = 0x746F6C6C776179  # "tollway": the advisory lock that one migrator at a time holds on Postgres
LOCK_WAIT_MS = 120_000  # how long a second migrator waits for the first
BUSY_TIMEOUT_MS = 60_000
CONNECT_TIMEOUT_S = 10.0


def configuration() -> Config:
    """Alembic's configuration, without a file: the scripts lie beside this one."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def head() -> str:
    """The newest revision among the scripts."""
    found = ScriptDirectory.from_config(configuration()).get_current_head()
    if found is None:
        raise RuntimeError("there are no migration scripts")
    return found


def upgrade(url: URL | str) -> None:
    """Run what is missing, all or nothing; harmless when nothing is. For callers outside an event loop."""
    asyncio.run(upgrade_async(url))


async def upgrade_async(url: URL | str) -> None:
    """`upgrade` for callers inside an event loop. Raises SQLAlchemyError, OSError or alembic's CommandError and changes nothing then."""
    engine = _engine(make_url(url))
    try:
        async with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}"))
                await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _engine(url: URL) -> AsyncEngine:
    """An engine of our own: migrations may take longer than the sessions of a serving process are allowed to."""
    if not url.drivername.startswith("sqlite"):
        return create_async_engine(url, connect_args={"timeout": CONNECT_TIMEOUT_S})
    engine = create_async_engine(url)

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver would commit before each statement that changes the schema
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the lock: a second migrator waits here

    return engine


def main() -> int:
    """`python -m migrations`: exit status 0 and the version reached, or 1 and one line that says why not."""
    try:
        upgrade(os.environ["DATABASE_URL"])
    except KeyError:
        print("set DATABASE_URL, for example postgresql+asyncpg://user:password@host/name", file=sys.stderr)  # noqa: T201
        return 1
    except (SQLAlchemyError, OSError, CommandError) as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)  # noqa: T201
        return 1
    print(head())  # noqa: T201
    return 0
