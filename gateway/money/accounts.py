"""One worker's money: what the request path calls. Reserve, write the intent, settle; everything slower happens behind it.

Knows no request and no backend. `settle` is synchronous, harmless when called again, and never loses a row to an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from msgspec import Struct, structs
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import settings
from gateway.db.session import open_session
from gateway.errors import NotReady
from gateway.money import journal_search
from gateway.money.adoption import Adopter
from gateway.money.budgets import BudgetRow, Hold, Lane, Refusal, Scope
from gateway.money.journal import journal_fs
from gateway.money.ledger import charged
from gateway.money.records import AttemptEnd, Intent, UsageRecord
from gateway.money.syncer import Syncer
from gateway.money.waiting import WAITERS

REFUSED_MAX = 1000  # windows with refused requests, between two looks of who tells of them
REGISTER_WAIT_S = 3.0  # a start waits this long for SQL; after it the process goes on, not ready
SEARCHED_S = 3600.0  # a request that began longer ago is not looked for in journals
CLOSE_WAIT_S = 5.0  # for the last rows; what a database that is away does not take stays in the journal

log = logging.getLogger("tollway.money")

__all__ = ["Accounts", "AccountsStats", "BudgetRow", "Hold", "Refusal", "Scope"]


class AccountsStats(Struct, frozen=True, kw_only=True):
    """Gauges of one process. lag_s: age of the oldest row that SQL has not confirmed; journal_age_s: running requests included."""

    journal_bytes: int
    journal_age_s: float
    journal_open: int
    journal_broken: str
    queued: int
    unwritten: int
    lag_s: float
    windows: int
    leased_nanousd: int
    reserved_nanousd: int
    unsynced_nanousd: int
    waiting: int
    database_away: bool
    recovering: bool
    clock_offset_s: float
    processes: int
    syncs: int
    faults: int
    adopted: int
    corrupt_journals: int
    quarantined: int


def wall_us() -> int:
    return time.time_ns() // 1000


class Accounts:
    """One per worker process; made by `open`, ended by `close`."""

    def __init__(self, syncer: Syncer, adopter: Adopter) -> None:
        self._syncer = syncer
        self._adopter = adopter
        self._budgets = syncer.budgets
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._refused: set[int] = set()

    @classmethod
    async def open(cls, engine: AsyncEngine, money: settings.Money, journal_root: Path, *, clock: Callable[[], int] = wall_us) -> Accounts:
        """Take a journal of one's own, register in SQL, adopt dead siblings in the background. ValueError on a network file system."""
        kind = journal_fs(journal_root)
        if kind.startswith("network"):
            raise ValueError(f"the journal cannot lie on {journal_root} ({kind}): its lock is not to be trusted there; use a local disk")
        power = money.fsync == "power"
        syncer = Syncer(open_session(engine, power=power), money, journal_root, clock)
        adopter = Adopter(open_session(engine, power=power), money, journal_root, syncer.now_us)
        accounts = cls(syncer, adopter)
        accounts._tasks = [asyncio.create_task(syncer.run(), name="money sync"), asyncio.create_task(adopter.run(), name="money adopt")]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(syncer.ready.wait(), REGISTER_WAIT_S)
        return accounts

    @property
    def process_id(self) -> UUID:
        return self._syncer.process_id

    @property
    def processes(self) -> int:
        """Gateway processes that live, this one included, as the last sync saw them."""
        return self._syncer.processes

    def now_us(self) -> int:
        """Microseconds since 1970 by the database's clock."""
        return self._syncer.clock() + self._syncer.offset_us

    def new_request_id(self) -> UUID:
        """UUIDv7 from that clock: 48 bits of milliseconds, 12 of their fraction, 62 random."""
        ms, us = divmod(self.now_us(), 1000)
        tail = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
        return UUID(int=(ms & 0xFFFF_FFFF_FFFF) << 80 | 0x7000 << 64 | (us * 4096 // 1000) << 64 | 0x8000 << 48 | tail)

    # ---- budgets
    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None:
        """The live budgets as the poller sees them."""
        self._budgets.set_rows(budgets)
        self._syncer.wake()

    def budgeted(self, org_id: int, team_id: int, key_id: int, route: str) -> bool:
        """Whether any budget applies: then an unpriced backend must be refused before it is called."""
        return self._budgets.budgeted(Scope(org_id, team_id, key_id, route))

    def check_open(self) -> None:
        """NotReady when no request may be accepted: closing, not registered, recovering, journal unwritable."""
        syncer = self._syncer
        if syncer.journal.broken or self._closing or syncer.recovering or not syncer.registered:
            raise self._not_ready()

    def _not_ready(self) -> NotReady:
        if self._closing:
            return NotReady("This gateway is shutting down.", code="draining", retry_after_s=1.0)
        if self._syncer.journal.broken:
            why = self._syncer.journal.broken
            return NotReady(f"The journal takes no more requests: {why}.", code="journal_full", retry_after_s=1.0)
        return NotReady("The database of the ledger does not answer yet.", code="database_unavailable", retry_after_s=1.0)

    def reserve(self, scope: Scope, worst_nanousd: int, at_us: int) -> Hold | Refusal:
        """Hold a worst case in every window of the scope, or in none. A worst case of 0 takes no window."""
        lane = self._budgets.lane(scope, at_us)
        if worst_nanousd == 0 or not lane.windows:
            return Hold(_FREE, worst_nanousd)
        return self._budgets.take(lane, worst_nanousd, at_us) or self.refusal(lane, worst_nanousd)

    def refusal(self, drawn: Hold | Lane, worst_nanousd: int) -> Refusal:
        """What a request hears now whose hold could not grow, or that got none."""
        return self._budgets.refusal(drawn.windows, worst_nanousd, available=not self._syncer.failing)

    def refused(self, refusal: Refusal) -> None:
        """A request was refused for want of money. One that no limit would fit says nothing of what was spent."""
        if refusal.kind == "budget" and refusal.worst_nanousd <= refusal.cap_nanousd and len(self._refused) < REFUSED_MAX:
            self._refused.add(refusal.window_id)

    def take_refused(self) -> set[int]:
        """Ids of the windows in which requests were refused since this was last asked."""
        taken, self._refused = self._refused, set()
        return taken

    def obtainable(self, scope: Scope, at_us: int) -> int:
        """About what one request could get now, in nano-USD: for one that may be made smaller."""
        return self._budgets.obtainable(self._budgets.lane(scope, at_us))

    async def obtain(self, scope: Scope, worst_nanousd: int, at_us: int) -> Hold | Refusal:
        """Reserve; where it does not fit, ask SQL and, near the cap, the other processes' idle money before refusing."""
        got = self.reserve(scope, worst_nanousd, at_us)
        if isinstance(got, Hold):
            return got
        lane = self._budgets.lane(scope, at_us)
        waiters = self._syncer.waiters
        now = self.now_us()
        if any(window.refused_until_us > now and worst_nanousd >= (window.refused_need or 0) for window in lane.windows):
            return self._budgets.refusal(lane.windows, worst_nanousd, available=True)
        if self._syncer.failing or self._closing or len(waiters) >= WAITERS:
            return self._budgets.refusal(lane.windows, worst_nanousd, available=False)
        waiter = waiters.join(lane, worst_nanousd, at_us)
        self._syncer.wake()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and isinstance(served := waiter.future.result(), Hold):
                self._budgets.release(served)
            raise
        finally:
            waiters.give_up(waiter)

    async def grow(self, hold: Hold, delta_nanousd: int, scope: Scope, at_us: int) -> Hold | Refusal:
        """`obtain` for a request that holds money already: the same hold, of `delta` more, or why not."""
        if hold.grow(delta_nanousd):
            return hold
        got = await self.obtain(scope, delta_nanousd, at_us)
        if isinstance(got, Refusal):
            return got
        if hold.join(got):
            return hold
        self._budgets.release(got)  # the request has ended meanwhile, or its scope has other budgets now
        return self.refusal(hold, delta_nanousd)

    def release(self, hold: Hold) -> None:
        """Give back a hold for which no intent was written."""
        self._budgets.release(hold)

    # ---- journal
    def intent(self, intent: Intent) -> None:
        """Before dispatch. NotReady when it cannot be written. Not for fsync = "power": there use `intend`."""
        self._syncer.journal.intent(intent)

    async def intend(self, intent: Intent) -> None:
        """Before dispatch; under fsync = "power" it returns once the record is on the disk."""
        await self._syncer.journal.intent_durable(intent)

    def attempt_ended(self, end: AttemptEnd) -> None:
        """An attempt is over and its request goes on."""
        self._syncer.journal.ended(end)

    def settle(self, hold: Hold | None, record: UsageRecord) -> None:
        """The end of an accepted request: journal, budgets, queue."""
        syncer = self._syncer
        if (hold is not None and hold.done) or record.id in syncer.queue:
            return
        charges = hold.charges if hold is not None else ()
        if record.charges != charges:  # what memory was charged is what SQL is charged
            record = structs.replace(record, charges=charges)
        place = syncer.journal.settlement(record)
        if hold is not None:
            self._budgets.settle(hold, charged(record))
        syncer.queue.put(record, place, syncer.clock())
        if len(syncer.queue) >= syncer.settings.batch_rows:
            syncer.wake()
        else:
            syncer.wake_by_tick()

    async def recent(self, request_id: UUID) -> UsageRecord | None:
        """A settled row that SQL may not have yet."""
        return self._syncer.queue.get(request_id, self._syncer.journal)

    async def journalled(self, request_id: UUID) -> list[journal_search.Told]:
        """What the journals of this machine say of a request that SQL does not have; nothing of one that began long ago."""
        age_s = self.now_us() / 1_000_000 - (request_id.int >> 80) / 1000
        if request_id.version != 7 or age_s > SEARCHED_S:
            return []
        return await asyncio.to_thread(journal_search.told, self._syncer.journal_root, request_id)

    # ---- the end
    async def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """After the last request: write what is queued, give everything back, close the row, remove the journal.

        What cannot be done within wait_s is left for an adopter. Harmless when called again.
        """
        if self._closing:
            return
        self._closing = True
        syncer = self._syncer
        sync_task, adopt_task = self._tasks
        await _end(adopt_task)
        syncer.closing = True
        syncer.wake()
        done, _ = await asyncio.wait({sync_task}, timeout=wait_s)
        finished = False
        if done:
            finished = await syncer.finish()
        await _end(sync_task)
        if not finished:
            log.warning("money: %d rows and %d open requests are left to an adopter", len(syncer.queue), syncer.journal.open_requests)
        syncer.closed = True
        syncer.journal.close(remove=finished)
        await syncer.session.close()
        await self._adopter.session.close()

    def stats(self) -> AccountsStats:
        syncer = self._syncer
        windows = syncer.budgets.windows.values()
        return AccountsStats(
            journal_bytes=syncer.journal.size_bytes,
            journal_age_s=max(syncer.age_us(), syncer.journal.oldest_open_us(self.now_us())) / 1_000_000,
            journal_open=syncer.journal.open_requests,
            journal_broken=syncer.journal.broken,
            queued=len(syncer.queue),
            unwritten=syncer.queue.unwritten,
            lag_s=syncer.age_us() / 1_000_000,
            windows=len(windows),
            leased_nanousd=sum(window.amount for window in windows),
            reserved_nanousd=sum(window.reserved for window in windows),
            unsynced_nanousd=sum(window.unsynced for window in windows),
            waiting=len(syncer.waiters),
            database_away=syncer.failing,
            recovering=syncer.recovering,
            clock_offset_s=syncer.offset_us / 1_000_000,
            processes=syncer.processes,
            syncs=syncer.syncs,
            faults=syncer.faults,
            adopted=self._adopter.adopted,
            corrupt_journals=len(self._adopter.corrupt),
            quarantined=syncer.quarantine.count(),
        )


_FREE = Lane((), 0, 0)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
