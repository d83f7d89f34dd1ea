"""A database that went back in time: restored from an older backup, or failed over to a standby that lagged."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.rollup_tables import latency_rollups, rollups
from gateway.db.session import Away, Transaction, open_session
from gateway.db.tables import adjustments, attempts, budget_leases, budget_windows, gateway_processes, usage
from gateway.errors import NotReady
from gateway.money.accounts import Accounts, BudgetRow, Hold, Refusal, Scope
from gateway.money.audit import audit
from gateway.money.sync import close_process, process_state
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, books, intent_of, patiently, record_of

MONEY = Money(tick_s=0.05, segment_bytes=1 << 18, heartbeat_s=0.5)
SCOPE = Scope(1, 1, 1, "assistant")
ROLLUPS = (rollups, latency_rollups)
TABLES = (usage, attempts, adjustments, *ROLLUPS, budget_windows, budget_leases, gateway_processes)
Open = Callable[..., Awaitable[Accounts]]


class Backup:
    """What the money tables held at one moment."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.rows: dict[str, list[dict[str, Any]]] = {}

    async def take(self) -> None:
        async with self.engine.connect() as connection:
            for table in TABLES:
                self.rows[table.name] = [dict(row) for row in (await connection.execute(table.select())).mappings()]

    async def restore(self) -> None:
        async with self.engine.begin() as connection:
            for table in reversed(TABLES):
                await connection.execute(table.delete())
            for table in TABLES:
                if self.rows[table.name]:
                    await connection.execute(table.insert(), self.rows[table.name])
            if self.engine.dialect.name == "postgresql":  # a restored sequence goes on from where it was
                await connection.execute(
                    text("SELECT setval(pg_get_serial_sequence('budget_windows', 'id'), coalesce((SELECT max(id) FROM budget_windows), 1))")
                )


@pytest.fixture
async def opened(database: Database, tmp_path: Path) -> AsyncIterator[Open]:
    every: list[Accounts] = []

    async def make(*budgets: BudgetRow) -> Accounts:
        accounts = await Accounts.open(database.engine, MONEY, tmp_path / "journal")
        every.append(accounts)
        accounts.set_budgets(budgets)
        return accounts

    yield make
    for accounts in every:
        await accounts.close(wait_s=5.0)


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not in time: {what}")


async def spend(accounts: Accounts, cost: int) -> UUID | Refusal:
    now, request_id = accounts.now_us(), accounts.new_request_id()
    got = await patiently(accounts, SCOPE, cost, now)
    if isinstance(got, Refusal):
        return got
    accounts.intent(intent_of(request_id, now, got, cost))
    accounts.settle(got, record_of(request_id, now, got, cost))
    return request_id


async def recovered(*processes: Accounts) -> None:
    for accounts in processes:
        accounts._syncer._beat_at = 0.0
        accounts._syncer.wake()
    for accounts in processes:
        seq = accounts._syncer.seq
        await until(lambda a=accounts, s=seq: a._syncer.seq > s and not a.stats().recovering and not a.stats().queued, "recovered")  # type: ignore[misc]


async def test_an_older_backup_loses_no_row_and_no_window(database: Database, opened: Open) -> None:
    """Two processes, a budget whose window is younger than the backup, a request that runs across it: whole books, and the cap."""
    first = await add_budget(database.engine, limit=100 * CENT, scope_kind="organisation")
    later = await add_budget(database.engine, limit=200 * CENT, scope_kind="team", period="day")
    one, two = await opened(first), await opened(first)
    backup = Backup(database.engine)
    for accounts in (one, two):
        assert isinstance(await spend(accounts, 10 * CENT), UUID)
    await until(lambda: not one.stats().queued and not two.stats().queued, "written")
    await backup.take()
    for accounts in (one, two):
        accounts.set_budgets([first, later])
        for _ in range(3):
            assert isinstance(await spend(accounts, 5 * CENT), UUID)
    now, running = one.now_us(), one.new_request_id()
    hold = await patiently(one, SCOPE, 7 * CENT, now)
    assert isinstance(hold, Hold)
    one.intent(intent_of(running, now, hold, 7 * CENT))
    await until(lambda: not one.stats().queued and not two.stats().queued, "written")
    before = await books(database.engine)
    assert len(before.spent) == 2

    await backup.restore()
    assert len((await books(database.engine)).spent) == 1
    await recovered(one, two)

    one.settle(hold, record_of(running, now, hold, 7 * CENT))
    spent = 0
    for _ in range(100):
        got = await spend((one, two)[spent % 2], 2 * CENT)
        if isinstance(got, Refusal) and got.kind == "budget":
            break
        spent += isinstance(got, UUID)
    await one.close()
    await two.close()
    found = await books(database.engine)
    assert (await audit(database.engine)).broken == []
    assert found.rows == 2 + 6 + 1 + spent
    assert found.spent[1] == (20 + 30 + 7 + 2 * spent) * CENT
    assert 98 * CENT < found.spent[1] <= 100 * CENT
    assert found.spent.keys() == before.spent.keys(), "the window came back under its number"
    assert found.spent[2] == before.spent[2] + (7 + 2 * spent) * CENT
    assert (found.leased, found.states) == (0, {"closed"})


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
async def test_a_recovery_that_is_cut_short_is_begun_anew(database: Database, opened: Open, cut: int) -> None:
    """The answer to any of its transactions is lost: rows of the retained journal still come back."""
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    backup = Backup(database.engine)
    await backup.take()
    if cut % 2:
        backup.rows[gateway_processes.name] = []  # older than the process itself
    for _ in range(4):
        assert isinstance(await spend(accounts, CENT), UUID)
    await until(lambda: not accounts.stats().queued, "written")
    session = accounts._syncer.session
    real, count, lost = session.run, 0, False

    async def run(transaction: Transaction[object], *, reads: bool = False) -> object:
        nonlocal count, lost
        result = await real(transaction, reads=reads)
        if accounts.stats().recovering and not lost:
            lost = count >= cut
            count += 1
            if lost:
                raise Away("connection lost at COMMIT")
        return result

    session.run = run  # type: ignore[method-assign, assignment]
    await backup.restore()
    await recovered(accounts)
    session.run = real  # type: ignore[method-assign]
    assert lost
    await accounts.close()
    found = await books(database.engine)
    assert (await audit(database.engine)).broken == []
    assert (found.rows, found.spent[1], found.leased) == (4, 4 * CENT, 0)


async def test_a_process_that_is_closed_while_its_disk_is_full_loses_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fenced, and there is no space for the journal of its new identity: the old one stays, and is adopted."""
    accounts = await Accounts.open(database.engine, structs.replace(MONEY, adopt_scan_s=0.05), tmp_path / "journal")
    accounts.set_budgets([await add_budget(database.engine, limit=100 * CENT)])
    now, running = accounts.now_us(), accounts.new_request_id()
    hold = await patiently(accounts, SCOPE, 30 * CENT, now)
    assert isinstance(hold, Hold)
    accounts.intent(intent_of(running, now, hold, 30 * CENT))
    first = accounts.process_id

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", full)
        session = open_session(database.engine)
        state = await session.run(process_state(session.dialect, first))
        assert state is not None
        await session.run(close_process(session.dialect, first, state[0]))
        await session.close()
        accounts._syncer.wake()
        await until(lambda: accounts.process_id != first and accounts._syncer.registered, "a new identity")
        with pytest.raises(NotReady, match="journal"):
            accounts.check_open()
        await until(lambda: accounts.stats().adopted == 1, "the old journal is adopted")
    assert (await books(database.engine)).outcomes == {"unknown": 1}
    accounts.settle(hold, record_of(running, now, hold, 20 * CENT))
    await until(lambda: not accounts.stats().queued and not accounts.stats().journal_broken, "written")
    accounts.check_open()
    assert isinstance(await spend(accounts, CENT), UUID)
    await accounts.close()
    found = await books(database.engine)
    assert (await audit(database.engine)).broken == []
    assert (found.rows, found.spent[1], found.leased) == (2, 21 * CENT, 0)
