"""The one task through which a process speaks to SQL about money: builds payloads, sends each until it is answered, learns.

Knows the parts (budgets, journal, queue, waiters) and no request. A payload in doubt is sent again as it is, with the same number;
nothing else is sent meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from gateway.db.session import Away, Busy, Refused, Session
from gateway.money import sync
from gateway.money.budgets import Budgets, Window
from gateway.money.journal import Journal, boot_id
from gateway.money.journal_reading import Reading
from gateway.money.leases import NEXT_WINDOW_US, Ask, ask, learn, slice_of
from gateway.money.ledger import charged
from gateway.money.quarantine import Quarantine, unstorable, without
from gateway.money.queue import SettledQueue
from gateway.money.waiting import Waiters
from gateway.settings import Money

BACKOFF_S = 0.05
BACKOFF_MOST_S = 5.0
BUSY_MOST_S = 0.3  # a database that is busy for so many tries in a row counts as away
IN_USE_US = 60_000_000  # a window reserved from this recently has its next period leased early
FORGET_US = 600_000_000  # a window at rest this long leaves memory
SKEW_ALARM_US = 1_000_000
SLOW_ANSWER_US = 500_000  # an answer that took longer says little about the database's clock

log = logging.getLogger("tollway.money")


class Syncer:
    """Owner of the process row. `run` is the task; `wake` makes it act now, `wake_soon` after the coalescing time of the near cap."""

    def __init__(self, session: Session, settings: Money, journal_root: Path, clock: Callable[[], int]) -> None:
        self.session = session
        self.settings = settings
        self.journal_root = journal_root
        self.clock = clock
        self.offset_us = 0
        self.process_id = uuid4()
        self.seq = 0
        self.processes = 1
        self.registered = False
        self.ready = asyncio.Event()  # set at the first registration
        self.closing = False
        self.closed = False
        self.recovering = False
        self.failing = False  # the last try to reach SQL failed
        self.faults = 0  # our own errors in a round, each logged
        self.syncs = 0
        self.budgets = Budgets(self._touched)
        self.queue = SettledQueue(settings.queue_rows)
        self.waiters = Waiters(self.budgets, settings.recall_wait_s, settings.refusal_memory_s)
        self.journal = Journal(journal_root, self.process_id, settings)
        self.quarantine = Quarantine(journal_root)
        self._wake = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._beat_at = 0.0

    # ---- clock
    def now_us(self) -> int:
        return self.clock() + self.offset_us

    def _learn_clock(self, database_us: int, before_us: int, after_us: int) -> None:
        first = not self.registered
        if after_us - before_us > SLOW_ANSWER_US and not first:
            return  # when in that time the database read its clock is not known
        offset = database_us - (before_us + after_us) // 2
        if abs(offset) > SKEW_ALARM_US and abs(self.offset_us) <= SKEW_ALARM_US:
            log.warning("this machine's clock is %.1f s away from the database's; the database's is used", offset / 1_000_000)
        self.offset_us = offset if first else self.offset_us + (offset - self.offset_us) // 8

    # ---- waking
    def wake(self) -> None:
        self._wake.set()

    def wake_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(self.settings.near_coalesce_s, self._now)

    def _now(self) -> None:
        self._soon = None
        self._wake.set()

    def wake_by_tick(self) -> None:
        """A row waits: it is written within a tick, also when this process was at rest."""
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(self.settings.tick_s, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        self._wake.set()

    def _touched(self, window: Window) -> None:
        """Money came back: near the cap somebody, here or elsewhere, may be waiting for it."""
        if window.near and self._soon is None:
            self.wake_soon()

    def _interval_s(self) -> float:
        if self.waiters:
            return self.settings.tick_s / 4
        held = len(self.queue) or any(not window.at_rest() for window in self.budgets.windows.values())
        return self.settings.tick_s if held else self.settings.heartbeat_s

    # ---- the task
    async def run(self) -> None:
        """Until closed. Every round's error is logged and counted, and the round tried again: money must not stop for a bug in it."""
        while not self.closed:
            try:
                if not self.registered:
                    await self._register()
                await self._round()
                self.failing = False
            except Away as error:
                await self._away(error, BACKOFF_S)
                continue
            except Exception:  # money must not stop for a fault in one round
                log.exception("sync: a round failed")
                self.faults += 1
                await self._away(None, BACKOFF_S)
                continue
            if self.closing and self._nothing_left():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.settings.tick_s if self.closing else self._interval_s())
            self._wake.clear()

    async def _away(self, error: Away | None, wait_s: float) -> None:
        if error is not None and not self.failing:
            log.warning("money: the database does not answer (%s); running on what is leased", error)
        self.failing = True
        self.waiters.fail_all()
        await asyncio.sleep(wait_s)

    async def _give_way(self, error: Busy, wait_s: float) -> None:
        """A deadlock or two is no outage: who waits for money still gets it."""
        if wait_s < BUSY_MOST_S:
            await asyncio.sleep(wait_s)
        else:
            await self._away(error, wait_s)

    def _nothing_left(self) -> bool:
        return not self.queue and not any(window.unsynced or window.reserved for window in self.budgets.windows.values())

    async def _register(self) -> None:
        before = self.clock()
        now = await self.session.run(
            sync.register(self.session.dialect, self.process_id, socket.gethostname(), boot_id(), str(self.journal.directory))
        )
        self._learn_clock(now, before, self.clock())
        self.registered = True
        self.ready.set()
        self._beat_at = 0.0

    async def _round(self) -> None:
        now = self.now_us()
        self._housekeeping(now)
        await self._make_windows()
        payload = self._payload(now)
        if not payload.writes and not payload.asks:
            return
        await self._deliver(payload)

    async def _deliver(self, payload: sync.Payload) -> None:
        """Send until answered. Closed and Forgotten end the payload: its rows stay queued and go out under what comes next."""
        wait_s = BACKOFF_S
        while True:
            before = self.clock()
            try:
                answer = await self.session.run(sync.sync(self.session.dialect, payload), reads=not payload.writes)
            except sync.Closed:
                self._fenced()
                return
            except sync.Forgotten as forgot:
                await self._forgotten(forgot.seq)
                return
            except Refused as error:
                payload = await self._set_aside(payload, error)
                continue
            except Busy as error:
                await self._give_way(error, wait_s)
                wait_s = min(BACKOFF_MOST_S, wait_s * 2)
                continue
            except Away as error:
                await self._away(error, wait_s)
                wait_s = min(BACKOFF_MOST_S, wait_s * 2)
                continue
            except Exception:  # a fault of ours is a doubt too: what was sent may have been done
                log.exception("sync: a payload failed and is sent again")
                self.faults += 1
                await self._away(None, wait_s)
                wait_s = min(BACKOFF_MOST_S, wait_s * 2)
                continue
            self.syncs += 1
            if self.failing:
                log.warning("money: the database answers again; %d rows wait", len(self.queue))
            self.failing = False
            self._learn_clock(answer.now_us, before, self.clock())
            self._learn(payload, answer)
            return

    async def _set_aside(self, payload: sync.Payload, refusal: Refused) -> sync.Payload:
        """The payload without the rows that the database will never take; they are in the quarantine when this returns."""
        bad = await unstorable(self.session, payload, self.now_us())
        try:
            if not bad:
                raise OSError("none of its rows alone is to blame")
            self.quarantine.add(bad)
        except OSError as error:
            log.error("money: the database refuses a payload (%s), and nothing can be set aside: %s", refusal, error)
            self.faults += 1
            await self._away(None, BACKOFF_MOST_S)
            return payload
        for one in bad:
            log.error("row %s is set aside, the database does not take it: %s. See `tollway ledger quarantine`.", one.record.id, one.why)
        return without(payload, bad)

    def _learn(self, payload: sync.Payload, answer: sync.Answer) -> None:
        self.seq = answer.seq
        self.processes = answer.processes
        sent = (*payload.rows, *payload.aside)
        for record in sent:
            cost = charged(record)
            for window_id in record.charges:
                window = self.budgets.by_id.get(window_id)
                if window is not None:
                    window.unsynced -= cost
        self.queue.confirm(sent, self.journal)
        now = self.now_us()
        for line in answer.lines:
            window = self.budgets.by_id.get(line.window_id)
            if window is not None:
                first = window.room is None
                learn(window, line)
                if first and slice_of(window, self.processes, now):  # far from the cap: fill up before the next request has to ask
                    self.wake_soon()
                if line.wanted and window.free > 0 and not window.waiting:  # somebody starves: do not wait for the next tick
                    self.wake()
        self.waiters.serve(now, answered=True)
        if len(self.queue) >= self.settings.batch_rows or any(window.free < 0 for window in self.budgets.windows.values()):
            self.wake()
        if self.recovering and not self.queue:
            self.recovering = False

    # ---- payloads
    def _payload(self, now_us: int) -> sync.Payload:
        needs = self.waiters.needs()
        idle_us = int(self.settings.idle_return_s * 1_000_000)
        asks: list[Ask] = []
        for window in self.budgets.windows.values():
            sums = needs.get(window, [])
            if window.id == 0 or (not sums and self._resting(window, now_us)):
                continue
            if self.closing:
                sums = []
            asks.append(ask(window, self.processes, now_us, sums, 0 if self.closing else idle_us))
        asks.sort(key=lambda one: one.window_id)
        rows = self.queue.batch(self.settings.batch_rows, self.journal)
        loop_now = asyncio.get_running_loop().time()
        beat = loop_now - self._beat_at >= self.settings.heartbeat_s
        payload = sync.Payload(process=self.process_id, seq=self.seq, rows=rows, asks=tuple(asks), beat=beat)
        if payload.writes:
            self._beat_at = loop_now
        return payload

    def _resting(self, window: Window, now_us: int) -> bool:
        """Nothing to say about it: no money here, and no reservation lately that would call for a slice."""
        if not window.at_rest():
            return False
        fresh = window.room is None or now_us - max(window.used_us, window.starts_us) < int(self.settings.idle_return_s * 1_000_000)
        return not fresh or window.gone or window.ended(now_us)

    async def _make_windows(self) -> None:
        for window in [window for window in self.budgets.windows.values() if window.id == 0]:
            made = await self.session.run(
                sync.make_window(self.session.dialect, window.budget.id, window.starts_us, window.ends_us),
            )
            if made is not None:
                self.budgets.found(window, made)

    def _housekeeping(self, now_us: int) -> None:
        self.journal.repair()
        resting: list[Window] = []
        for window in list(self.budgets.windows.values()):
            window.tick(now_us)
            if window.at_rest() and (window.ended(now_us) or window.gone or now_us - max(window.used_us, window.starts_us) > FORGET_US):
                resting.append(window)
            elif window.ends_us is not None and 0 < window.ends_us - now_us < NEXT_WINDOW_US and now_us - window.used_us < IN_USE_US:
                self.budgets.following(window)
        if resting:
            self.budgets.forget(resting)

    # ---- when the world has changed under us
    def _fenced(self) -> None:
        """Somebody closed this process while it lives: go on as a new one. Leases are gone; what runs is leased anew by force."""
        log.error("process %s was closed by somebody else; going on under a new identity", self.process_id)
        old = self.journal
        self.process_id = uuid4()
        self.registered = False
        self.journal = Journal(self.journal_root, self.process_id, self.settings)
        self.queue.move(old, self.journal)
        old.close(remove=not self.journal.broken)  # what a full disk did not let us copy is left to an adopter
        self.seq = 0
        for window in self.budgets.windows.values():
            window.amount = 0
            window.room = None

    async def _forgotten(self, seq: int | None) -> None:
        """The database lost commits that it had confirmed: bring back the rows of the retained journal, lease anew what runs."""
        log.error("the database is at %s, confirmed was %d: it forgot commits; writing retained rows again", seq, self.seq)
        self.recovering = True
        for record in await asyncio.to_thread(lambda: list(Reading(self.journal.directory))):
            if record.id in self.queue:
                continue
            self.queue.put(record, None, self.now_us())
            for window_id in record.charges:
                window = self.budgets.by_id.get(window_id)
                if window is not None:
                    window.unsynced += charged(record)
        for window in self.budgets.windows.values():  # what SQL says we hold comes with the next answer
            window.amount = 0
            window.room = None
        if seq is None:
            await self._register()
        for window in list(self.budgets.by_id.values()):
            await self._restore_window(window)
        await self.session.run(
            sync.restore_process(self.session.dialect, self.process_id, self.seq)
        )  # last: before it all of this is done again

    async def _restore_window(self, window: Window) -> None:
        """A window that the database forgot is made again under its old number, by which rows and journals know it."""
        made = await self.session.run(
            sync.make_window(self.session.dialect, window.budget.id, window.starts_us, window.ends_us, known=window.id)
        )
        if made is not None and made != window.id:
            log.error("budget window %d is %d in the restored database: what was charged to it is not counted there", window.id, made)

    async def finish(self) -> bool:
        """After `run` has ended: give back every lease and close the row. False when it must be left to an adopter."""
        if not self.registered:
            return self.journal.open_requests == 0 and not self.queue
        if self.journal.open_requests or not self._nothing_left():
            return False
        try:
            await self.session.run(sync.close_process(self.session.dialect, self.process_id, self.seq))
        except (Away, sync.Moved) as error:
            log.warning("process %s could not be closed: %s; an adopter will", self.process_id, error)
            return False
        return True

    def age_us(self) -> int:
        """How long the oldest row has waited for SQL."""
        oldest = self.queue.oldest_us()
        return 0 if oldest is None else max(0, self.now_us() - oldest)
