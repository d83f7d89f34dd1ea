# ruff: noqa: S608  (only names and words of our own are put into statements; values are always bound)
"""One serial connection for transactions written as generators: the same steps run on asyncpg and, in one thread hop, on sqlite3.

A transaction yields steps and is sent their rows. Knows no table. SQL is written with $1, $2, …; UUIDs pass through `uid`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import BUSY_TIMEOUT_MS, COMMAND_TIMEOUT_S, clock_sql, pragmas

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]


INSERTED_AT_ONCE = (100, 25, 5, 1)  # rows of one SQLite statement; at most 32,766 values


class Do(Struct, frozen=True):
    """One statement; its rows come back (none for a statement without RETURNING)."""

    sql: str
    args: tuple[Any, ...] = ()


class Many(Struct, frozen=True):
    """One statement for each tuple of arguments. Nothing comes back."""

    sql: str
    rows: list[tuple[Any, ...]]


class Insert(Struct, frozen=True):
    """Many rows into one table. Rows come back only where `then` returns some, and only on Postgres."""

    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # of Postgres, one per column
    rows: list[tuple[Any, ...]]
    then: str = ""  # ON CONFLICT …


Step = Do | Many | Insert
Transaction = Generator[Step, Rows, T]


class Away(Exception):
    """The database did not answer, or what it did is not known. The same transaction may be sent again."""


class Busy(Away):
    """The database chose this transaction to give way to others (a deadlock). Nothing was done; trying again at once helps."""


class Refused(Exception):
    """The database will not store what was sent, for its content. Nothing was done, and sending it again is of no use."""


class Dialect(Struct, frozen=True):
    """The few words in which the two databases differ."""

    name: str
    clock: str
    for_update: str  # appended to a SELECT whose rows are about to change

    def uid(self, value: UUID) -> Any:
        return value if self.name == "postgresql" else value.bytes

    def uuid(self, value: Any) -> UUID:
        return UUID(bytes=value) if isinstance(value, bytes) else UUID(int=value.int)

    def among(self, column: str, number: int, kind: str = "bigint") -> str:
        """`column` is one of the list that `several` made argument number `number`."""
        if self.name == "postgresql":
            return f"{column} = ANY(${number}::{kind}[])"
        return f"{column} IN (SELECT value FROM json_each(${number}))"

    def those(self, column: str, number: int, ids: Sequence[UUID]) -> tuple[str, tuple[Any, ...]]:
        """`column` is one of these UUIDs, as arguments from number `number` on: (condition, arguments)."""
        if self.name == "postgresql":
            return f"{column} = ANY(${number}::uuid[])", (list(ids),)
        marks = ", ".join(f"${place}" for place in range(number, number + len(ids)))
        return f"{column} IN ({marks})", tuple(one.bytes for one in ids)

    def several(self, ids: Iterable[int]) -> Any:
        return list(ids) if self.name == "postgresql" else f"[{','.join(map(str, ids))}]"


POSTGRES = Dialect("postgresql", clock_sql("postgresql"), "FOR UPDATE OF")
SQLITE = Dialect("sqlite", "tollway_now_us()", "")


class Session(Protocol):
    """A connection of its own, opened on first use and opened anew after a failure. One transaction at a time."""

    dialect: Dialect

    async def run(self, transaction: Transaction[T], *, reads: bool = False) -> T:
        """Run to the end and commit. Away: nothing is known of what was done. Busy, Refused: nothing was done.

        Any error rolls back and drops the connection.
        """
        ...

    async def close(self) -> None: ...


def open_session(engine: AsyncEngine, *, power: bool = False) -> Session:
    if engine.dialect.name == "postgresql":
        return PostgresSession(engine)
    return SqliteSession(str(engine.url.database), power)


@lru_cache(maxsize=512)
def _sqlite_text(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", sql)


@lru_cache(maxsize=512)
def _insert_text(table: str, columns: tuple[str, ...], types: tuple[str, ...], then: str) -> str:
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types, 1))
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) {then}"


@lru_cache(maxsize=512)
def _sqlite_insert_text(table: str, columns: tuple[str, ...], then: str, count: int) -> str:
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * count)} {then}"


class PostgresSession:
    def __init__(self, engine: AsyncEngine) -> None:
        self.dialect = POSTGRES
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: Any = None

    async def run(self, transaction: Transaction[T], *, reads: bool = False) -> T:
        import asyncpg

        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                driver = await self._connect()
                await driver.execute("BEGIN READ ONLY" if reads else "BEGIN")
                result = await self._steps(driver, transaction)
                await driver.execute("COMMIT")
                return result
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError) as error:
            await self._drop()
            raise Refused(f"{type(error).__name__}: {error}") from error
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
            await self._drop()
            raise Busy(f"{type(error).__name__}: {error}") from error
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, SQLAlchemyError) as error:  # the last: its connect
            await self._drop()
            raise Away(f"{type(error).__name__}: {error}") from error
        except BaseException:
            await self._drop()
            raise

    async def _connect(self) -> Any:
        if self._connection is None:
            try:
                self._connection = await self._engine.connect()
                self._driver = (await self._connection.get_raw_connection()).driver_connection
            except BaseException:
                await self._drop()
                raise
        return self._driver

    async def _steps(self, driver: Any, transaction: Transaction[T]) -> T:
        rows: Rows = ()
        step = next(transaction)
        while True:
            if isinstance(step, Do):
                rows = await driver.fetch(step.sql, *step.args)
            elif isinstance(step, Many):
                await driver.executemany(step.sql, step.rows)
                rows = ()
            elif step.rows:
                text = _insert_text(step.table, step.columns, step.types, step.then)
                rows = await driver.fetch(text, *[list(column) for column in zip(*step.rows, strict=True)])
            else:
                rows = ()
            try:
                step = transaction.send(rows)
            except StopIteration as end:
                result: T = end.value
                return result

    async def _drop(self) -> None:
        connection, self._connection, driver, self._driver = self._connection, None, self._driver, None
        if driver is not None:
            driver.terminate()  # a frozen server answers no polite goodbye
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError, TimeoutError):
                await connection.invalidate()
                await connection.close()

    async def close(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            await connection.close()


class SqliteSession:
    def __init__(self, path: str, power: bool = False) -> None:
        self.dialect = SQLITE
        self._path = path
        self._power = power
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tollway-sqlite")
        self._connection: sqlite3.Connection | None = None

    async def run(self, transaction: Transaction[T], *, reads: bool = False) -> T:
        job = asyncio.get_running_loop().run_in_executor(self._thread, self._run, transaction, reads)
        try:
            return await asyncio.shield(job)
        except (sqlite3.DataError, sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        except sqlite3.Error as error:
            raise Away(f"{type(error).__name__}: {error}") from error

    def _run(self, transaction: Transaction[T], reads: bool) -> T:
        connection = self._connect()
        try:
            connection.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
            result = self._steps(connection, transaction)
            connection.execute("COMMIT")
            return result
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            connection.create_function("tollway_now_us", 0, lambda: time.time_ns() // 1000)  # SQLite itself has milliseconds only
            for statement in pragmas(self._power):
                connection.execute(statement)
            self._connection = connection
        return self._connection

    def _steps(self, connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
        rows: Rows
        step = next(transaction)
        while True:
            rows = ()
            if isinstance(step, Do):
                rows = connection.execute(_sqlite_text(step.sql), step.args).fetchall()
            elif isinstance(step, Many):
                connection.executemany(_sqlite_text(step.sql), step.rows)
            elif step.rows:
                self._insert(connection, step)
            try:
                step = transaction.send(rows)
            except StopIteration as end:
                result: T = end.value
                return result

    def _insert(self, connection: sqlite3.Connection, step: Insert) -> None:
        """Many rows a statement: between two of them another thread is let in, and changing threads costs more than a row."""
        at = 0
        while at < len(step.rows):
            count = next(size for size in INSERTED_AT_ONCE if size <= len(step.rows) - at)
            values = [value for row in step.rows[at : at + count] for value in row]
            connection.execute(_sqlite_insert_text(step.table, step.columns, step.then, count), values)
            at += count

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)
