"""A row that the database will not store: the others go on, it is kept and shown, and its budgets stay charged."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from sqlalchemy import text

from gateway.db.session import Away, Refused, Transaction, open_session
from gateway.money.accounts import Accounts, Hold, Scope
from gateway.money.audit import audit
from gateway.money.quarantine import Quarantine, SetAside, retry
from gateway.settings import Money
from providers.types import Usage
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, books, intent_of, patiently, record_of
from tests.money.test_adoption import Dead

MONEY = Money(tick_s=0.05, segment_bytes=1 << 18)
TOO_MANY = Usage(input=2**63)  # a number that the journal takes and no BIGINT holds


@pytest.fixture
async def accounts(database: Database, tmp_path: Path) -> AsyncIterator[Accounts]:
    opened = await Accounts.open(database.engine, MONEY, tmp_path / "journal")
    yield opened
    await opened.close(wait_s=1.0)


async def settle(accounts: Accounts, cost: int, tag: str = "", usage: Usage | None = None) -> UUID:
    now, request_id = accounts.now_us(), accounts.new_request_id()
    hold = await patiently(accounts, Scope(1, 1, 1, "assistant"), cost, now)
    assert isinstance(hold, Hold)
    accounts.intent(intent_of(request_id, now, hold, cost))
    record = structs.replace(record_of(request_id, now, hold, cost), tag=tag)
    accounts.settle(hold, record if usage is None else structs.replace(record, usage=usage))
    return request_id


async def written(accounts: Accounts) -> None:
    for _ in range(1500):
        if accounts.stats().queued == 0:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the rows never arrived")


async def sound(database: Database) -> None:
    assert (await audit(database.engine)).broken == []
    (await books(database.engine)).assert_sound()


async def test_one_bad_row_holds_up_nobody_and_stays_charged(accounts: Accounts, database: Database, tmp_path: Path) -> None:
    accounts.set_budgets([await add_budget(database.engine, limit=100 * CENT), await add_budget(database.engine, limit=50 * CENT)])
    bad = set()
    for number in range(20):
        request_id = await settle(accounts, CENT, usage=TOO_MANY if number in (0, 7, 19) else None)
        bad |= {request_id} if number in (0, 7, 19) else set()
    await written(accounts)
    stats = accounts.stats()
    assert (stats.quarantined, stats.faults, stats.unsynced_nanousd) == (3, 0, 0)
    rows = Quarantine(tmp_path / "journal").read()
    assert {row.record.id for row in rows} == bad
    assert all(row.why and row.record.usage == TOO_MANY for row in rows)
    assert (tmp_path / "quarantine.jsonl").stat().st_mode & 0o777 == 0o600
    await settle(accounts, CENT)
    await accounts.close()
    found = await books(database.engine)
    assert (found.rows, found.spent, found.leased) == (18, {1: 21 * CENT, 2: 21 * CENT}, 0)
    await sound(database)
    assert os.listdir(tmp_path / "journal") == []  # noqa: PTH208


async def test_a_lost_answer_sets_nothing_aside_twice(accounts: Accounts, database: Database, tmp_path: Path) -> None:
    accounts.set_budgets([await add_budget(database.engine, limit=100 * CENT)])
    await settle(accounts, CENT)
    await written(accounts)
    session = accounts._syncer.session
    real, lost = session.run, [True, True]

    async def run(transaction: Transaction[object], *, reads: bool = False) -> object:
        result = await real(transaction, reads=reads)
        if lost and not reads:  # only what was committed comes here: a trial ends in an error
            lost.pop()
            raise Away("connection lost at COMMIT")
        return result

    session.run = run  # type: ignore[method-assign, assignment]
    await settle(accounts, 2 * CENT, usage=TOO_MANY)
    await settle(accounts, 4 * CENT)
    await written(accounts)
    assert not lost
    session.run = real  # type: ignore[method-assign]
    await accounts.close()
    assert len(Quarantine(tmp_path / "journal").read()) == 1
    found = await books(database.engine)
    assert (found.rows, found.spent, found.leased) == (2, {1: 7 * CENT}, 0)
    await sound(database)


async def test_what_the_database_takes_later_is_brought_back(accounts: Accounts, database: Database, tmp_path: Path) -> None:
    """Refused for a rule that somebody made and then lifted."""
    accounts.set_budgets([await add_budget(database.engine, limit=100 * CENT)])
    async with database.engine.begin() as connection:
        for statement in RULE[database.name]:
            await connection.execute(text(statement))
    await settle(accounts, CENT, "good")
    aside = await settle(accounts, 2 * CENT, "bad")
    await written(accounts)
    await accounts.close()
    before = await books(database.engine)
    assert (before.rows, before.spent) == (1, {1: 3 * CENT})
    session, quarantine = open_session(database.engine), Quarantine(tmp_path / "journal")
    assert await retry(session, quarantine) == (0, 1), "the rule still stands"
    async with database.engine.begin() as connection:
        await connection.execute(text(LIFTED[database.name]))
    assert await retry(session, quarantine) == (1, 0)
    assert await retry(session, quarantine) == (0, 0)
    await session.close()
    assert not quarantine.path.exists()
    assert quarantine.count() == 0
    found = await books(database.engine)
    assert (found.rows, found.spent) == (2, {1: 3 * CENT})
    await sound(database)
    async with database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM usage WHERE tag = 'bad'"))).scalar_one() == 1
    assert aside not in {row.record.id for row in quarantine.read()}


RULE = {
    "sqlite": ["CREATE TRIGGER rule BEFORE INSERT ON usage WHEN NEW.tag = 'bad' BEGIN SELECT RAISE(ABORT, 'not here'); END"],
    "postgresql": ["ALTER TABLE usage ADD CONSTRAINT rule CHECK (tag <> 'bad')"],
}
LIFTED = {"sqlite": "DROP TRIGGER rule", "postgresql": "ALTER TABLE usage DROP CONSTRAINT rule"}


async def test_an_adopter_sets_aside_too(database: Database, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    dead = Dead(database, tmp_path / "journal")
    await dead.live_and_die(24, 2, spoil=lambda n, record: structs.replace(record, usage=TOO_MANY) if n in (3, 11) else record)
    assert await dead.adopter().adopt(dead.directory)
    await dead.session.close()
    assert len(Quarantine(tmp_path / "journal").read()) == 2
    found = await books(database.engine)
    assert (found.rows, found.spent[dead.window], found.leased) == (24, 24 * 7 + 60 + 50, 0)
    await sound(database)


async def test_a_refusal_that_no_row_explains_is_tried_again(
    accounts: Accounts, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.money.syncer.BACKOFF_MOST_S", 0.05)
    accounts.set_budgets([await add_budget(database.engine, limit=100 * CENT)])
    session = accounts._syncer.session
    real, refuse = session.run, [True, True, True, True]

    async def run(transaction: Transaction[object], *, reads: bool = False) -> object:
        if refuse and "sync" in getattr(transaction, "__name__", ""):
            refuse.pop()
            transaction.close()
            raise Refused("nobody knows why")
        return await real(transaction, reads=reads)

    await settle(accounts, CENT)
    await written(accounts)
    session.run = run  # type: ignore[method-assign, assignment]
    record = record_of(accounts.new_request_id(), accounts.now_us(), None, 0, "refused")
    accounts.settle(None, record)
    await written(accounts)
    session.run = real  # type: ignore[method-assign]
    assert accounts.stats().quarantined == 0
    assert accounts.stats().faults > 0


def test_the_file_is_read_as_it_stands(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "journal")
    assert (quarantine.read(), quarantine.count()) == ([], 0)
    rows = [SetAside(at_us=n, process=uuid4(), why="no", record=record_of(uuid4(), 5, None, n)) for n in range(3)]
    quarantine.add(rows[:2])
    quarantine.add(rows[1:])  # the second one again, as after a crash
    assert quarantine.count() == 3
    assert Quarantine(tmp_path / "journal").read() == rows
    quarantine.remove({rows[0].record.id})
    assert quarantine.count() == 2
    assert quarantine.read() == rows[1:]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "journal")
    quarantine.path.mkdir()
    with pytest.raises(OSError, match="directory"):
        quarantine.add([])
