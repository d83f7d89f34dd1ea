"""Adoption: rows first, money back last, safe to abort and to repeat; damage and reboots are not guessed away."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from sqlalchemy import text

from gateway.db.session import Away, Transaction, open_session
from gateway.money import sync
from gateway.money.adoption import Adopter
from gateway.money.journal import UNBORN, Journal, segment_path
from gateway.money.leases import Ask
from gateway.money.records import UsageRecord
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import add_budget, books, end_of, intent_of, record_of

MONEY = Money(segment_bytes=1 << 18, batch_rows=10)
STARTED = 1_790_000_000_000_000


class Dead:
    """A process that leased 1000 of a budget of 5000, settled some requests, left others open, and died."""

    def __init__(self, database: Database, root: Path) -> None:
        self.database = database
        self.root = root
        self.session = open_session(database.engine)
        self.process = uuid4()
        self.window = 0
        self.directory = root / str(self.process)

    async def live_and_die(
        self,
        settled: int,
        opened: int,
        *,
        register: bool = True,
        flush: int = 0,
        spoil: Callable[[int, UsageRecord], UsageRecord] = lambda _, record: record,
        money: Money = MONEY,
    ) -> None:
        sql = self.session.dialect
        row = await add_budget(self.database.engine, limit=5000, scope_kind="team")
        window = await self.session.run(sync.make_window(sql, row.id, 0, None))
        assert window is not None
        self.window = window
        journal = Journal(self.root, self.process, money)
        if register:
            await self.session.run(sync.register(sql, self.process, "host", "boot", str(journal.directory)))
            asks = (Ask(window_id=window, want=1000),)
            await self.session.run(sync.sync(sql, sync.Payload(process=self.process, seq=0, asks=asks)))
        records = []
        for number in range(settled):
            request_id = uuid4()
            journal.intent(intent_of(request_id, STARTED, None, 10))
            records.append(spoil(number, record_of(request_id, STARTED, None, 7, charges=(window,))))
            journal.settlement(records[-1])
        if flush:
            await self.session.run(sync.sync(sql, sync.Payload(process=self.process, seq=1, rows=tuple(records[:flush]))))
        for number in range(opened):
            request_id = uuid4()
            intent = intent_of(request_id, STARTED, None, 50)
            values = {name: getattr(intent, name) for name in intent.__struct_fields__} | {"charges": (window,)}
            journal.intent(type(intent)(**values))
            if number == 0:  # its first attempt failed for nothing, its second was running
                journal.ended(end_of(request_id, 0, 50, outcome="failed"))
                journal.intent(type(intent)(**values | {"n": 2, "worst": 60}))
        journal.close(remove=False)

    def adopter(self, boot: str | None = None) -> Adopter:
        return Adopter(self.session, MONEY, self.root, lambda: time.time_ns() // 1000, boot)


async def test_settled_rows_are_written_and_open_ones_booked_at_worst(dead: Dead, database: Database) -> None:
    await dead.live_and_die(25, 3, flush=8)
    assert await dead.adopter().adopt(dead.directory)
    found = await books(database.engine)
    found.assert_sound()
    assert found.outcomes == {"completed": 25, "unknown": 3}
    assert found.spent[dead.window] == 25 * 7 + 60 + 50 + 50
    assert (found.leased, found.leases, found.states) == (0, {}, {"closed"})
    assert not dead.directory.exists()


@pytest.fixture
async def dead(database: Database, tmp_path: Path) -> AsyncIterator[Dead]:
    made = Dead(database, tmp_path)
    real = made.session.close
    yield made
    await real()


class Dies(Exception):
    pass


async def test_an_adopter_killed_anywhere_is_followed_by_another(dead: Dead, database: Database) -> None:
    """Cut before, and after, each of its transactions: the next one brings the same books."""
    await dead.live_and_die(25, 2)
    real = dead.session.run
    cuts = 0
    for after in (False, True):
        for cut in range(20):
            count = 0

            async def run(transaction: Transaction[object], *, reads: bool = False, cut: int = cut, after: bool = after) -> object:
                nonlocal count
                count += 1
                if count > cut and not after:
                    transaction.close()
                    raise Dies
                result = await real(transaction, reads=reads)
                if count > cut:
                    raise Dies
                return result

            adopter = dead.adopter()
            adopter.session.run = run  # type: ignore[method-assign, assignment]
            try:
                done = await adopter.adopt(dead.directory)
            except Dies:
                cuts += 1
                assert dead.directory.exists()
            else:
                assert done or not dead.directory.exists()
                break
    adopter.session.run = real  # type: ignore[method-assign]
    await adopter.scan()
    assert cuts > 5
    found = await books(database.engine)
    found.assert_sound()
    assert found.outcomes == {"completed": 25, "unknown": 2}
    assert (found.spent[dead.window], found.leased, found.states) == (25 * 7 + 60 + 50, 0, {"closed"})


async def test_a_restored_journal_changes_nothing(dead: Dead, database: Database) -> None:
    await dead.live_and_die(5, 1)
    backup = {path.name: path.read_bytes() for path in dead.directory.iterdir()}
    assert await dead.adopter().adopt(dead.directory)
    before = await books(database.engine)
    dead.directory.mkdir()
    for name, data in backup.items():
        (dead.directory / name).write_bytes(data)
    assert await dead.adopter().adopt(dead.directory)
    after = await books(database.engine)
    after.assert_sound()
    assert after == before


async def test_after_a_reboot_the_rest_of_the_lease_is_booked_not_released(dead: Dead, database: Database) -> None:
    await dead.live_and_die(5, 1)
    assert await dead.adopter(boot="another boot").adopt(dead.directory)
    found = await books(database.engine)
    found.assert_sound()
    assert (found.spent[dead.window], found.leased) == (1000, 0)
    assert found.adjusted[dead.window] == 1000 - 5 * 7 - 60


async def test_after_a_reboot_a_journal_on_the_disk_explains_everything(dead: Dead, database: Database) -> None:
    """fsync = "power": what it does not tell was never sent, so the rest of the lease is free again."""
    await dead.live_and_die(5, 1, money=structs.replace(MONEY, fsync="power"))
    assert await dead.adopter(boot="another boot").adopt(dead.directory)
    found = await books(database.engine)
    found.assert_sound()
    assert (found.spent[dead.window], found.leased, found.adjustments) == (5 * 7 + 60, 0, 0)


async def test_a_damaged_journal_keeps_its_leases(dead: Dead, database: Database) -> None:
    await dead.live_and_die(1200, 1)
    first = segment_path(dead.directory, 1)
    assert segment_path(dead.directory, 2).exists()
    data = bytearray(first.read_bytes())
    data[5000] ^= 0xFF
    first.write_bytes(data)
    adopter = dead.adopter()
    await adopter.scan()
    await adopter.scan()
    assert adopter.corrupt == {dead.directory}
    found = await books(database.engine)
    assert (found.rows, found.leased, found.states) == (0, 1000, {"live"})


async def test_a_process_that_never_registered_held_nothing(dead: Dead, database: Database) -> None:
    await dead.live_and_die(0, 0, register=False)
    assert await dead.adopter().adopt(dead.directory)
    found = await books(database.engine)
    assert (found.rows, found.states) == (0, set())


async def test_rows_survive_a_database_that_does_not_know_their_process(dead: Dead, database: Database) -> None:
    await dead.live_and_die(5, 1, register=False)
    assert await dead.adopter().adopt(dead.directory)
    found = await books(database.engine)
    assert found.outcomes == {"completed": 5, "unknown": 1}
    assert found.states == {"closed"}
    found.assert_sound()


async def test_a_process_closed_by_an_operator_still_gets_its_rows(dead: Dead, database: Database) -> None:
    await dead.live_and_die(5, 1)
    await dead.session.run(sync.close_process(dead.session.dialect, dead.process, 1))
    assert await dead.adopter().adopt(dead.directory)
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[dead.window], found.leased) == (6, 5 * 7 + 60, 0)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_folders_that_are_no_journals_are_left(dead: Dead, database: Database, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    young, old = tmp_path / f"{UNBORN}{uuid4()}", tmp_path / f"{UNBORN}{uuid4()}"
    for path in (young, old):
        path.mkdir()
        (path / "lock").touch()
    os.utime(old, (1, 1))
    await dead.adopter().scan()
    assert sorted(os.listdir(tmp_path)) == sorted(["notes", "state", young.name])  # noqa: PTH208


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_database_that_is_away_puts_adoption_off(dead: Dead, database: Database) -> None:
    await dead.live_and_die(5, 0)
    real = dead.session.run

    async def away(transaction: Transaction[object], *, reads: bool = False) -> object:
        transaction.close()
        raise Away("frozen")

    dead.session.run = away  # type: ignore[method-assign, assignment]
    await dead.adopter().scan()
    assert dead.directory.exists()
    dead.session.run = real  # type: ignore[method-assign]
    await dead.adopter().scan()
    assert not dead.directory.exists()
    async with database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM usage"))).scalar_one() == 5
    assert UUID(dead.directory.name) == dead.process
