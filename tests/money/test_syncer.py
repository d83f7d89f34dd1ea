"""The sync task: answers that are lost, faults of its own, and periods that are about to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.db.session import Away, Transaction, open_session
from gateway.money.budgets import Hold, Scope
from gateway.money.syncer import Syncer
from gateway.money.windows import bounds
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, books, record_of
from tests.fixtures.waiting import until

MONEY = Money(tick_s=0.03, segment_bytes=1 << 18)
SCOPE = Scope(1, 1, 1, "assistant")


class Desk:
    """A Syncer on a real database, with a session whose answers can be lost after they were given."""

    def __init__(self, database: Database, root: Path) -> None:
        self.session = open_session(database.engine)
        self.real = self.session.run
        self.lose: list[Exception] = []
        self.session.run = self.run  # type: ignore[method-assign, assignment]
        self.clock_us = 0
        self.syncer = Syncer(self.session, MONEY, root / "journal", lambda: time.time_ns() // 1000)
        self.task = asyncio.create_task(self.syncer.run())

    async def run(self, transaction: Transaction[object], *, reads: bool = False) -> object:
        result = await self.real(transaction, reads=reads)
        if self.lose and not reads:
            raise self.lose.pop()
        return result

    async def finish(self) -> None:
        self.lose = []
        self.syncer.closing = True
        self.syncer.wake()
        await asyncio.wait_for(self.task, 30)
        assert await self.syncer.finish()
        self.syncer.journal.close(remove=True)
        await self.session.close()


@pytest.fixture
async def desk(database: Database, tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(database, tmp_path)
    await until(lambda: made.syncer.registered)
    yield made
    if not made.task.done():
        made.task.cancel()
        await asyncio.wait({made.task})
        made.syncer.journal.close(remove=False)
        await made.session.close()


@pytest.mark.parametrize("lost", [Away("connection lost at COMMIT"), ValueError("a fault of our own")])
async def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(desk: Desk, database: Database, lost: Exception) -> None:
    syncer = desk.syncer
    syncer.budgets.set_rows([await add_budget(database.engine, limit=100 * CENT)])
    lane = syncer.budgets.lane(SCOPE, syncer.now_us())
    waiter = syncer.waiters.join(lane, 10 * CENT, syncer.now_us())
    syncer.wake()
    hold = await asyncio.wait_for(waiter.future, 30)
    assert isinstance(hold, Hold)
    desk.lose = [lost, lost, lost]
    record = record_of(syncer.process_id, syncer.now_us(), hold, 4 * CENT)
    place = syncer.journal.settlement(record)
    syncer.budgets.settle(hold, 4 * CENT)
    syncer.queue.put(record, place, syncer.now_us())
    syncer.wake()
    await until(lambda: syncer.failing)
    await until(lambda: not syncer.queue and not syncer.failing)
    assert syncer.faults == (3 if isinstance(lost, ValueError) else 0)
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1]) == (1, 4 * CENT)
    for _ in range(100):  # money on its way back is no longer ours, and in SQL a moment later: they agree between two rounds
        if sum(window.amount for window in syncer.budgets.windows.values()) == (await books(database.engine)).leased:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the process and SQL never agree on the lease")
    await desk.finish()
    assert (await books(database.engine)).leased == 0


async def test_the_next_period_is_leased_before_it_begins(desk: Desk, database: Database) -> None:
    syncer = desk.syncer
    row = await add_budget(database.engine, limit=10_000 * CENT, period="day")
    syncer.budgets.set_rows([row])
    _, ends = bounds("day", "UTC", syncer.now_us())
    assert ends is not None
    evening = ends - 30_000_000
    syncer.clock = lambda: evening  # half a minute to midnight; SQL's own clock plays no part in the choice of windows
    syncer.offset_us = 0
    syncer._learn_clock = lambda *times: None  # type: ignore[method-assign]
    waiter = syncer.waiters.join(syncer.budgets.lane(SCOPE, evening), CENT, evening)
    syncer.wake()
    hold = await asyncio.wait_for(waiter.future, 30)
    assert isinstance(hold, Hold)
    morning = syncer.budgets.lane(SCOPE, ends)
    await until(lambda: morning.windows[0].free >= CENT)
    first = syncer.budgets.take(morning, CENT, ends)
    assert first is not None, "an outage of the database at midnight would refuse nobody"
    assert first.charges != hold.charges
    syncer.budgets.release(first)
    syncer.budgets.release(hold)
    syncer.clock = lambda: ends + 1
    await until(lambda: hold.windows[0].amount == 0)
    assert morning.windows[0].amount > 0, "the ended period gives back at once, the new one is kept"
    await desk.finish()


async def test_an_idle_process_keeps_its_heartbeat(desk: Desk, database: Database) -> None:
    desk.syncer._beat_at = 0.0
    before = desk.syncer.seq
    desk.syncer.wake()
    await until(lambda: desk.syncer.seq > before)
    assert (await books(database.engine)).states == {"live"}
    await desk.finish()


async def test_an_answer_that_took_long_says_nothing_about_the_clock(desk: Desk) -> None:
    syncer = desk.syncer
    syncer.offset_us = 0
    now = syncer.clock()
    syncer._learn_clock(now + 8_000_000, now, now + 8_000_000)  # a database that was frozen in between
    assert syncer.offset_us == 0
    syncer._learn_clock(now + 8_000_000, now, now + 10_000)
    assert 900_000 < syncer.offset_us < 1_000_000


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_g11_a_flush_that_is_cancelled_neither_drops_nor_doubles(desk: Desk, database: Database, written: bool) -> None:
    """Cut off while its write is pending, or done and unanswered: the row stays queued and is there once."""
    syncer = desk.syncer
    syncer.budgets.set_rows([await add_budget(database.engine, limit=100 * CENT)])
    waiter = syncer.waiters.join(syncer.budgets.lane(SCOPE, syncer.now_us()), 10 * CENT, syncer.now_us())
    syncer.wake()
    hold = await asyncio.wait_for(waiter.future, 5)
    assert isinstance(hold, Hold)
    pending = asyncio.Event()

    async def hangs(transaction: Transaction[object], *, reads: bool = False) -> object:
        if reads:
            return await desk.real(transaction, reads=reads)
        if written:
            await desk.real(transaction)
        else:
            transaction.close()
        pending.set()
        await asyncio.Event().wait()
        return None

    desk.session.run = hangs  # type: ignore[method-assign, assignment]
    record = record_of(syncer.process_id, syncer.now_us(), hold, 4 * CENT)
    place = syncer.journal.settlement(record)
    syncer.budgets.settle(hold, 4 * CENT)
    syncer.queue.put(record, place, syncer.now_us())
    syncer.wake()
    await asyncio.wait_for(pending.wait(), 30)
    desk.task.cancel()
    await asyncio.wait({desk.task})
    assert len(syncer.queue) == 1
    desk.session.run = desk.run  # type: ignore[method-assign, assignment]
    desk.task = asyncio.create_task(syncer.run())
    await desk.finish()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1], found.leased) == (1, 4 * CENT, 0)
