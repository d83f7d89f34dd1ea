"""Transactions as generators: committed whole, rolled back whole, and a connection that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from gateway.db.engine import make_engine
from gateway.db.session import Away, Do, Insert, Many, Session, Transaction, open_session
from gateway.settings import Storage
from tests.conftest import Database

COLUMNS, TYPES = ("id", "delta", "reason", "created_at_us"), ("uuid", "bigint", "text", "bigint")


@pytest.fixture
async def session(database: Database) -> AsyncIterator[Session]:
    made = open_session(database.engine)
    yield made
    await made.close()


def add(session: Session, *deltas: int, fail: bool = False) -> Transaction[int]:
    yield Insert("adjustments", COLUMNS, TYPES, [(session.dialect.uid(uuid4()), delta, "r", 1) for delta in deltas])
    yield Many("UPDATE adjustments SET reason = $2 WHERE delta = $1", [(delta, f"reason {delta}") for delta in deltas])
    yield Insert("adjustments", COLUMNS, TYPES, [])
    if fail:
        raise ValueError("half-way")
    rows = yield Do("SELECT count(*) FROM adjustments")
    return int(rows[0][0])


def total(session: Session, ids: tuple[int, ...]) -> Transaction[tuple[int, list[str]]]:
    rows = yield Do(
        f"SELECT delta, reason FROM adjustments WHERE {session.dialect.among('delta', 1)} ORDER BY delta", (session.dialect.several(ids),)
    )
    return sum(int(row[0]) for row in rows), [str(row[1]) for row in rows]


async def test_a_transaction_returns_what_it_saw_and_is_committed(session: Session) -> None:
    assert await session.run(add(session, 1, 2, 4)) == 3
    assert await session.run(total(session, (1, 4, 9)), reads=True) == (5, ["reason 1", "reason 4"])


async def test_an_error_half_way_leaves_nothing(session: Session) -> None:
    with pytest.raises(ValueError, match="half-way"):
        await session.run(add(session, 1, fail=True))
    assert await session.run(add(session, 2)) == 1


async def test_a_statement_that_fails_is_away_and_the_next_one_works(session: Session) -> None:
    def broken() -> Transaction[None]:
        yield Do("SELECT * FROM no_such_table")

    with pytest.raises(Away, match="no_such_table"):
        await session.run(broken())
    assert await session.run(add(session, 2)) == 1


async def test_a_cancelled_caller_leaves_a_usable_session(session: Session) -> None:
    task = asyncio.create_task(session.run(add(session, *range(2000))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.run(add(session, 5000)) in (1, 2001), "all of it or nothing"


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
async def test_a_database_that_lets_nobody_in_is_away(storage: Storage) -> None:
    """As while it starts: the driver's error comes wrapped."""
    storage = Storage(state_dir=storage.state_dir, database_url=storage.database_url + "_not_there")
    engine = make_engine(storage)
    session = open_session(engine)
    with pytest.raises(Away, match="does not exist"):
        await session.run(add(session, 1))
    await session.close()
    await engine.dispose()


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
async def test_a_connection_that_the_server_ends_is_opened_anew(session: Session) -> None:
    def suicide() -> Transaction[None]:
        yield Do("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Away):
        await session.run(suicide())
    assert await session.run(add(session, 1)) == 1


async def test_uuids_pass_both_ways(session: Session) -> None:
    uid = uuid4()

    def there_and_back() -> Transaction[object]:
        yield Insert("adjustments", COLUMNS, TYPES, [(session.dialect.uid(uid), 1, "r", 1)])
        rows = yield Do("SELECT id FROM adjustments WHERE id = $1", (session.dialect.uid(uid),))
        return rows[0][0]

    assert session.dialect.uuid(await session.run(there_and_back())) == uid
