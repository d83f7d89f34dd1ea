"""Opening the database: limits of a session, writers that queue instead of failing, and addresses without their secrets."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from gateway.db.engine import clock_us, database_url, make_engine, reading, redacted, snapshot, twice
from gateway.settings import Storage
from tests.conftest import Database


def test_no_address_is_sqlite_in_the_state_folder() -> None:
    assert database_url(Storage(state_dir="/x")).render_as_string() == "sqlite+aiosqlite:////x/tollway.db"


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgresql://u:p@h/d", "postgresql+asyncpg"),
        ("postgresql+asyncpg://h/d", "postgresql+asyncpg"),
        ("sqlite:///f.db", "sqlite+aiosqlite"),
    ],
)
def test_an_address_without_driver_gets_ours(given: str, driver: str) -> None:
    assert database_url(Storage(database_url=given)).drivername == driver


@pytest.mark.parametrize(
    ("given", "why"),
    [("mysql://h/d", "no driver"), ("nonsense", "no URL"), ("sqlite://", "in-memory"), ("sqlite:///:memory:", "in-memory")],
)
def test_what_cannot_be_used_is_refused_with_a_reason(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make_engine(Storage(database_url=given))


def test_secrets_are_not_shown() -> None:
    shown = redacted("postgresql+asyncpg://user:hunter2@host:5432/db?sslpassword=hunter3&ssl=require")
    assert "hunter" not in shown
    assert "user" in shown
    assert "ssl=require" in shown


async def test_the_databases_clock_is_in_microseconds(database: Database) -> None:
    async with database.engine.connect() as connection:
        now = (await connection.execute(select(clock_us(database.engine.dialect.name)))).scalar_one()
    assert isinstance(now, int)
    assert abs(now - time.time_ns() // 1000) < 5_000_000


async def test_writers_that_read_first_queue_for_their_turn(database: Database) -> None:
    """Ten at once read, wait, and write what they read plus one."""
    async with database.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO adjustments (id, delta, reason, created_at_us) VALUES (:id, 0, '', 0)"), {"id": _uid(database)}
        )

    async def count_up() -> None:
        async with database.engine.begin() as connection:
            seen = (await connection.execute(text(f"SELECT delta FROM adjustments {_lock(database)}"))).scalar_one()
            await asyncio.sleep(0.002)
            await connection.execute(text("UPDATE adjustments SET delta = :next"), {"next": seen + 1})

    await asyncio.gather(*(count_up() for _ in range(10)))
    async with reading(database.engine).connect() as connection:
        assert (await connection.execute(text("SELECT delta FROM adjustments"))).scalar_one() == 10


def _uid(database: Database) -> object:
    from uuid import UUID

    return UUID(int=1) if database.name == "postgresql" else UUID(int=1).bytes


def _lock(database: Database) -> str:
    return "FOR UPDATE" if database.name == "postgresql" else ""


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    async with database.engine.begin() as writer:
        await writer.execute(text("INSERT INTO adjustments (id, delta, reason, created_at_us) VALUES (X'00', 0, '', 0)"))
        async with asyncio.timeout(4), reading(database.engine).connect() as connection:
            assert (await connection.execute(text("SELECT count(*) FROM adjustments"))).scalar_one() == 0


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("power", "level"), [(False, 1), (True, 2)])
async def test_sqlite_is_set_up_for_several_processes(storage: Storage, power: bool, level: int) -> None:
    engine = make_engine(storage, power=power)
    async with engine.connect() as connection:
        found = {
            name: (await connection.execute(text(f"PRAGMA {name}"))).scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    await engine.dispose()
    assert found == {"journal_mode": "wal", "synchronous": level, "busy_timeout": 5000}


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
async def test_postgres_ends_a_session_that_would_hold_others_up(database: Database) -> None:
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    async with database.engine.connect() as connection:
        found = [(await connection.execute(text(f"SHOW {name}"))).scalar_one() for name in names]
    assert found == ["2s", "5s", "5s"]


ENDLESS = {
    "sqlite": "SELECT begun(), (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n)",
    "postgresql": "SELECT pg_sleep(3600)",
}
ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active' AND datname = current_database()"


async def test_a_statement_that_nobody_waits_for_any_more_ends(database: Database) -> None:
    begun = threading.Event()

    async def work() -> None:
        async with snapshot(database.engine) as connection:
            if database.name == "sqlite":
                raw = await connection.get_raw_connection()
                await raw.driver_connection.create_function("begun", 0, begun.set)  # type: ignore[union-attr]
            else:
                await connection.execute(text("SET LOCAL statement_timeout = 0"))
            await connection.execute(text(ENDLESS[database.name]))

    async def asleep() -> bool:
        if database.name == "sqlite":
            return begun.is_set()
        async with reading(database.engine).connect() as connection:
            return bool((await connection.execute(text(ASLEEP))).scalar_one())

    task = asyncio.create_task(work())
    async with asyncio.timeout(60):
        while not await asleep():  # noqa: ASYNC110 - the database knows, and tells nobody
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while database.name == "postgresql" and await asleep():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_read_whose_connection_was_lost_is_asked_once_more(database: Database) -> None:
    if database.name != "postgresql":
        pytest.skip("SQLite has no connection to lose")
    tries = []

    async def read() -> int:
        async with reading(database.engine).connect() as connection:
            tries.append((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
            if len(tries) == 1:
                async with database.engine.connect() as other:
                    await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": tries[0]})
            return int((await connection.execute(text("SELECT 7"))).scalar_one())

    assert await twice(read) == 7
    assert len(tries) == 2
    with pytest.raises(DBAPIError):
        await twice(lambda: _wrong(database))


async def _wrong(database: Database) -> None:
    async with reading(database.engine).connect() as connection:
        await connection.execute(text("SELECT nothing FROM nowhere"))
