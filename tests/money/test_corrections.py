"""An unknown request is resolved once, by a person or by its own late settlement, whichever comes first."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import text

from gateway.db.session import Dialect, Do, Transaction, open_session
from gateway.errors import InvalidRequest, NotFound
from gateway.money.audit import audit
from gateway.money.corrections import resolve, unknowns
from gateway.money.sync import Payload, sync
from tests.conftest import Database
from tests.fixtures.ledger import record, write
from tests.money.test_audit import PROCESS, START, filled


async def spent(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(text("SELECT spent FROM budget_windows WHERE id = 1"))).scalar_one())


async def test_what_a_person_says_counts_once(database: Database) -> None:
    rows = await filled(database.engine)
    listed = await unknowns(database.engine)
    assert {one.id for one in listed} == {one.id for one in rows if one.outcome == "unknown"}, "the one resolved late is not listed"
    lost = next(one for one in rows if one.outcome == "unknown" and one.team_id == 1)
    before = await spent(database)
    assert lost.cost is not None
    assert await resolve(database.engine, lost.id, 7) == 7 - lost.cost
    assert await spent(database) == before + 7 - lost.cost
    with pytest.raises(InvalidRequest, match="resolved already"):
        await resolve(database.engine, lost.id, 9)
    assert lost.id not in {one.id for one in await unknowns(database.engine)}
    assert (await audit(database.engine)).broken == []


async def test_a_late_settlement_after_a_persons_word_changes_nothing(database: Database) -> None:
    rows = await filled(database.engine)
    lost = next(one for one in rows if one.outcome == "unknown" and one.team_id == 1)
    await resolve(database.engine, lost.id, 7)
    before = await spent(database)
    truth = record(lost.started_at_us, [("b", "completed", 120)], id=lost.id, charges=lost.charges, team_id=1)
    session = open_session(database.engine)
    await session.run(sync(session.dialect, Payload(process=PROCESS, seq=2, rows=(truth,))))
    await session.close()
    assert await spent(database) == before
    assert (await audit(database.engine)).broken == []


async def test_what_is_not_unknown_is_left_alone(database: Database) -> None:
    rows = await filled(database.engine)
    done = next(one for one in rows if one.outcome == "completed")
    with pytest.raises(InvalidRequest, match="it is completed"):
        await resolve(database.engine, done.id, 1)
    with pytest.raises(NotFound):
        await resolve(database.engine, uuid4(), 1)
    assert START and (await audit(database.engine)).broken == []


async def test_what_is_done_with_it_is_done_in_the_same_transaction(database: Database) -> None:
    """And is told what had been booked; what fails there leaves the row as it was."""
    lost = record(START, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [lost])
    seen: list[int | None] = []

    def fails(_: Dialect, booked: int | None) -> Transaction[None]:
        seen.append(booked)
        yield Do("SELECT 1")
        raise RuntimeError("no audit row")

    with pytest.raises(RuntimeError, match="no audit row"):
        await resolve(database.engine, lost.id, 7, fails)
    assert seen == [500] and [one.id for one in await unknowns(database.engine)] == [lost.id]
    assert await resolve(database.engine, lost.id, 7) == -493
