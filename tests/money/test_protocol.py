"""The protocol through random histories: lost answers, payloads that commit late, crashes, adopters that break off, other limits.

Real leases, journals and transactions; only when something is sent, and whether its answer arrives, is drawn. After every step the
books must be sound and nothing may be promised past the cap; at the end every request stands in the ledger once, at what it cost.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import text

import migrations
from gateway.db.engine import make_engine
from gateway.db.session import Transaction, open_session
from gateway.money import sync
from gateway.money.adoption import Adopter
from gateway.money.audit import audit
from gateway.money.budgets import BudgetRow, Hold, Scope, Window
from gateway.money.syncer import Syncer
from gateway.settings import Money, Storage
from tests.fixtures.money import add_budget, books, intent_of, record_of

LIMIT, MOST = 6, 4
MONEY = Money(segment_bytes=32 * 1024, batch_rows=3)
SCOPE = Scope(1, 1, 1, "assistant")
FATES = ("answered", "answered", "answered", "unsent", "unanswered", "late")  # of a payload and its answer
MOVED = (sync.Moved, sync.Closed, sync.Forgotten)
RUNS = settings(
    max_examples=10,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,  # the same histories every time; `make chaos` draws others
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)


@cache
def template() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tollway-protocol-")) / "template.db"
    migrations.upgrade(f"sqlite+aiosqlite:///{path}")
    return path


class Breaks(Exception):
    """An adopter is killed."""


class Process:
    """One gateway process: its syncer without the task, what it has open, and the payload of which no answer came."""

    def __init__(self, syncer: Syncer) -> None:
        self.syncer = syncer
        self.open: dict[UUID, tuple[Hold, int, int]] = {}
        self.doubt: sync.Payload | None = None

    @property
    def directory(self) -> Path:
        return self.syncer.journal.directory


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="tollway-protocol-"))
        shutil.copy(template(), self.folder / "tollway.db")
        self.engine = make_engine(Storage(state_dir=str(self.folder), database_url=f"sqlite+aiosqlite:///{self.folder}/tollway.db"))
        self.living: list[Process] = []
        self.dead: list[Process] = []
        self.late: list[tuple[Process, sync.Payload]] = []
        self.true: dict[UUID, int] = {}  # request -> its cost, or its worst case while nobody knows better
        self.settled: set[UUID] = set()
        self.highest = LIMIT
        self.rows: list[BudgetRow] = []

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        whole = self.run(add_budget(self.engine, limit=LIMIT, scope_kind="organisation", period="total"))
        self.rows = [whole, self.run(add_budget(self.engine, limit=LIMIT * 2, scope_kind="team", period="total"))]
        for _ in range(2):
            self.start()

    @precondition(lambda self: len(self.living) < 3)
    @rule()
    def start(self) -> None:
        async def made() -> Process:
            syncer = Syncer(open_session(self.engine), MONEY, self.folder / "journal", lambda: time.time_ns() // 1000)
            syncer.budgets.set_rows(self.rows)
            await syncer._register()
            return Process(syncer)

        self.living.append(self.run(made()))

    def one(self, number: int) -> Process:
        return self.living[number % len(self.living)]

    # ---- requests
    @precondition(lambda self: self.living)
    @rule(number=st.integers(0, 5), worst=st.integers(1, MOST))
    def admit(self, number: int, worst: int) -> None:
        process = self.one(number)
        syncer, now = process.syncer, process.syncer.now_us()
        hold = syncer.budgets.take(syncer.budgets.lane(SCOPE, now), worst, now)
        if hold is None:
            return
        request_id = uuid4()
        syncer.journal.intent(intent_of(request_id, now, hold, worst))
        process.open[request_id] = hold, worst, now
        self.true[request_id] = worst

    @precondition(lambda self: self.living)
    @rule(number=st.integers(0, 5), worst=st.integers(1, MOST))
    def obtain(self, number: int, worst: int) -> None:
        """The slow path: ask for what is lacking, then try again."""
        process = self.one(number)
        self.run(self._send(process, [worst], "answered"))
        self.run(self._send(process, [worst], "answered"))
        self.admit(number, worst)

    @precondition(lambda self: any(process.open for process in self.living))
    @rule(number=st.integers(0, 5), cost=st.sampled_from((0, 0, 0, 0, 1, MOST)))
    def settle(self, number: int, cost: int) -> None:
        busy = [process for process in self.living if process.open]
        process = busy[number % len(busy)]
        request_id = next(iter(process.open))
        self.run(self._settle(process, request_id, min(cost, process.open[request_id][1])))

    async def _settle(self, process: Process, request_id: UUID, cost: int) -> None:
        hold, _, at_us = process.open.pop(request_id)
        record = record_of(request_id, at_us, hold, cost)
        place = process.syncer.journal.settlement(record)
        process.syncer.budgets.settle(hold, cost)
        process.syncer.queue.put(record, place, at_us)
        self.true[request_id] = cost
        self.settled.add(request_id)

    # ---- SQL
    @precondition(lambda self: self.living)
    @rule(number=st.integers(0, 5), needs=st.lists(st.integers(1, MOST), max_size=3), fate=st.sampled_from(FATES))
    def send(self, number: int, needs: list[int], fate: str) -> None:
        """The next payload, or the one in doubt again."""
        self.run(self._send(self.one(number), list(itertools.accumulate(needs)), fate))

    async def _send(self, process: Process, needs: list[int], fate: str) -> None:
        syncer = process.syncer
        if process.doubt is None:
            now = syncer.now_us()
            windows: dict[Window, list[int]] = dict.fromkeys(syncer.budgets.lane(SCOPE, now).windows, needs)
            syncer.waiters.needs = lambda: windows  # type: ignore[method-assign]
            await syncer._make_windows()
            process.doubt = syncer._payload(now)
        payload = process.doubt
        if fate == "late":
            self.late.append((process, payload))
        if fate in ("unsent", "late"):
            return
        answer = await syncer.session.run(sync.sync(syncer.session.dialect, payload), reads=not payload.writes)
        if fate == "answered":
            process.doubt = None
            syncer._learn(payload, answer)

    @precondition(lambda self: self.late)
    @rule()
    def commit_late(self) -> None:
        """A transaction that hung somewhere reaches the server at last, also when its owner is dead by now."""
        process, payload = self.late.pop(0)

        async def commit() -> None:
            session = open_session(self.engine)
            try:
                await session.run(sync.sync(session.dialect, payload))
            except MOVED:
                pass
            finally:
                await session.close()

        del process
        self.run(commit())

    @rule(limit=st.integers(LIMIT - 2, LIMIT + 1))
    def change_limit(self, limit: int) -> None:
        async def change() -> None:
            async with self.engine.begin() as connection:
                await connection.execute(
                    text("UPDATE budgets SET limit_nanousd = :limit WHERE scope_kind = 'organisation'"), {"limit": limit}
                )

        self.run(change())
        self.highest = max(self.highest, limit)

    # ---- death
    @precondition(lambda self: self.living)
    @rule(number=st.integers(0, 5))
    def crash(self, number: int) -> None:
        process = self.one(number)
        self.living.remove(process)
        self.dead.append(process)
        process.syncer.journal.close(remove=False)

    @precondition(lambda self: self.dead)
    @rule(breaks_after=st.integers(0, 6))
    def adopt(self, breaks_after: int) -> None:
        self.run(self._adopt(self.dead[0], breaks_after))

    async def _adopt(self, process: Process, breaks_after: int) -> None:
        """Somebody adopts it and may be killed after some of his transactions (6: he lives)."""
        session, left = open_session(self.engine), breaks_after
        real = session.run

        async def run(transaction: Transaction[Any], *, reads: bool = False) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and breaks_after < 6:
                transaction.close()
                raise Breaks
            return await real(transaction, reads=reads)

        session.run = run  # type: ignore[method-assign, assignment]
        try:
            if await Adopter(session, MONEY, self.folder / "journal", lambda: time.time_ns() // 1000).adopt(process.directory):
                self.dead.remove(process)
                await process.syncer.session.close()
        except Breaks:
            pass
        finally:
            await session.close()

    # ---- what must be true
    @invariant()
    def nothing_is_promised_past_the_cap(self) -> None:
        assert sum(self.true.values()) <= self.highest

    @invariant()
    def the_books_are_sound(self) -> None:
        if self.rows:
            self.run(books(self.engine)).assert_sound()

    def teardown(self) -> None:
        try:
            self.run(self._to_rest())
        finally:
            self.run(self.engine.dispose())
            self.loop.close()
            shutil.rmtree(self.folder)

    async def _to_rest(self) -> None:
        """Everything open is settled, answered, adopted and closed: one row per request, at its cost."""
        for process in self.living:
            for request_id in list(process.open):
                await self._settle(process, request_id, 1)
            syncer = process.syncer
            syncer.closing = True
            for _ in range(1000):
                if process.doubt is None and syncer._nothing_left() and not any(w.amount for w in syncer.budgets.windows.values()):
                    break
                await self._send(process, 0, "answered")
            assert await syncer.finish()
            syncer.journal.close(remove=True)
            await syncer.session.close()
        for process in list(self.dead):
            await self._adopt(process, 6)
        found = await books(self.engine)
        assert found.rows == len(self.true)
        assert (found.leased, found.states) == (0, {"closed"} if self.rows else set())
        assert found.cost == sum(self.true.values())
        assert found.outcomes.get("completed", 0) == len(self.settled)
        assert (await audit(self.engine)).broken == []
        assert os.listdir(self.folder / "journal") == []  # noqa: PTH208


TestProtocol = Protocol.TestCase
TestProtocol.settings = RUNS
