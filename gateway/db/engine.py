"""Opens the database: SQLite in the state folder or Postgres, each with the limits that the money protocol needs.

Knows no table. Every SQLite transaction begins IMMEDIATE (a deferred one that reads and then writes fails at once under contention);
`reading(engine)` gives a view of the engine whose transactions do not take the write lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, ColumnElement, Connection, event, literal_column, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.settings import Storage

T = TypeVar("T")
BUSY_TIMEOUT_MS = 5000
CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 6.0  # the client's own limit: a little more than the server's, so that the server speaks first
POSTGRES_SESSION = {
    "application_name": "tollway",
    "lock_timeout": "2000",
    "statement_timeout": "5000",
    "idle_in_transaction_session_timeout": "5000",  # else a paused process keeps a budget window locked for everybody
}

_CLOCK_US = {
    "postgresql": "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",  # milliseconds are all that SQLite has
}


def database_url(storage: Storage) -> URL:
    """The address of the settings: empty is SQLite in the state folder. ValueError says which drivers there are."""
    if not storage.database_url:
        return URL.create("sqlite+aiosqlite", database=str(Path(storage.state_dir) / "tollway.db"))
    try:
        url = make_url(storage.database_url)
    except ArgumentError as error:
        raise ValueError("storage.database_url is no URL: use postgresql+asyncpg://user:password@host/name or leave it empty") from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+asyncpg")
    elif url.drivername == "sqlite":
        url = url.set(drivername="sqlite+aiosqlite")
    if url.drivername not in ("postgresql+asyncpg", "sqlite+aiosqlite"):
        raise ValueError(f"storage.database_url: no driver {url.drivername!r}; use postgresql+asyncpg:// or sqlite+aiosqlite:///")
    if url.drivername.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise ValueError("storage.database_url: an in-memory SQLite cannot be shared by processes; give a file")
    return url


def redacted(url: URL | str) -> str:
    """The address for logs and messages: the password, also one in the query, is three stars."""
    url = make_url(url)
    secret = {name: "***" for name in url.query if "pass" in name.lower() or "secret" in name.lower()}
    return url.update_query_dict(secret).render_as_string(hide_password=True) if secret else url.render_as_string(hide_password=True)


def clock_us(dialect: str) -> ColumnElement[int]:
    """The database's clock as integer microseconds since 1970, for use in any statement."""
    return literal_column(_CLOCK_US[dialect])


def clock_sql(dialect: str) -> str:
    return _CLOCK_US[dialect]


def pragmas(power: bool) -> tuple[str, ...]:
    """What every SQLite connection of the program is set to. power: commits survive the loss of power, not only kill -9."""
    return (
        f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
        "PRAGMA journal_mode = WAL",
        f"PRAGMA synchronous = {'FULL' if power else 'NORMAL'}",
        "PRAGMA foreign_keys = ON",
    )


def make_engine(storage: Storage, *, power: bool = False) -> AsyncEngine:
    """An engine for the settings; the caller disposes of it. power: settings.money.fsync == "power". Opens no connection yet."""
    url = database_url(storage)
    if url.drivername.startswith("sqlite"):
        return _sqlite(url, power)
    options: dict[str, Any] = {"server_settings": POSTGRES_SESSION, "command_timeout": COMMAND_TIMEOUT_S, "timeout": CONNECT_TIMEOUT_S}
    return create_async_engine(
        url,
        pool_size=storage.pool_size,
        max_overflow=storage.pool_size,
        pool_timeout=COMMAND_TIMEOUT_S,
        pool_pre_ping=True,
        connect_args=options,
    )


def reading(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that only read: on SQLite they do not queue for the write lock."""
    return engine.execution_options(tollway_read_only=True)


@asynccontextmanager
async def snapshot(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection whose statements all see one instant's state, and only read."""
    view = reading(engine)
    if engine.dialect.name == "postgresql":  # a transaction of SQLite sees one instant by itself
        view = view.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    async with view.connect() as connection:
        yield connection


async def twice(read: Callable[[], Awaitable[T]]) -> T:
    """What `read` reads, asked once more where its connection was lost: Postgres was restarted, or ended a transaction of a machine that
    stood still for seconds."""
    try:
        return await read()
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
    return await read()


def _sqlite(url: URL, power: bool) -> AsyncEngine:
    engine = create_async_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin by itself: we say IMMEDIATE
        cursor = connection.cursor()
        for statement in pragmas(power):
            cursor.execute(statement)
        cursor.close()

    @event.listens_for(engine.sync_engine, "invalidate")
    def on_invalidate(connection: Any, _record: object, why: BaseException | None) -> None:
        """Whoever waited for a statement was cancelled: its thread is not to work on at it, and nobody is to wait for that."""
        if isinstance(why, asyncio.CancelledError):
            connection.run_async(lambda driver: driver.interrupt())

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get("tollway_read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine
