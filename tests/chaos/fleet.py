"""Spender processes over one database and one journal root, and what must be true of the books when they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.db.session import open_session
from gateway.money.adoption import Adopter
from gateway.money.audit import audit
from gateway.money.budgets import BudgetRow
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import Books, books

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 180.0  # a machine may be ten times slower than ours


class Member:
    """One process of the fleet."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.paused = False
        self._numbers = iter(range(1 << 30))
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            told = json.loads(line)
            waiting = self._waiting.pop(told["number"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(told["answer"])
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ProcessLookupError("the process has ended"))

    def tell(self, do: str, **more: Any) -> asyncio.Future[dict[str, Any]]:
        """Send an order; its answer is the future's result."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._waiting[number].add_done_callback(lambda done: done.cancelled() or done.exception())
        self.process.stdin.write(json.dumps({"do": do, "number": number} | more).encode() + b"\n")
        return self._waiting[number]

    async def ask(self, do: str, **more: Any) -> dict[str, Any]:
        return await asyncio.wait_for(self.tell(do, **more), ANSWER_S)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    async def stopped(self) -> None:
        """Return when the process is stopped by a signal."""
        for _ in range(int(ANSWER_S / 0.02)):
            state = Path(f"/proc/{self.process.pid}/stat").read_text()  # noqa: ASYNC240
            if state.rpartition(")")[2].split()[0] == "T":
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the process did not stop")

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def end(self) -> int:
        """Let it write what it has and close."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = await asyncio.wait_for(self.process.wait(), ANSWER_S)
        await self._reading
        return status


class Fleet:
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.journal = folder / "journal"
        folder.mkdir(exist_ok=True)
        self.log = folder / "provider.log"
        self.log.touch()
        self.members: list[Member] = []

    async def start(self, **order: Any) -> Member:
        told = {
            "url": self.database.url,
            "state": str(self.folder),
            "journal": str(self.journal),
            "provider_log": str(self.log),
        } | order
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.chaos.spender", json.dumps(told)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        first = json.loads(await asyncio.wait_for(process.stdout.readline(), ANSWER_S))
        assert "ready" in first, first
        member = Member(process)
        self.members.append(member)
        return member

    async def several(self, count: int, **order: Any) -> list[Member]:
        return list(await asyncio.gather(*(self.start(**order) for _ in range(count))))

    async def budgets(self, rows: Sequence[BudgetRow]) -> None:
        told = [msgspec.to_builtins(row) for row in rows]
        await asyncio.gather(*(member.ask("budgets", rows=told) for member in self.members))

    async def kill(self, member: Member) -> None:
        self.members.remove(member)
        await member.kill()

    async def end(self) -> None:
        """All of them close; every status must be 0."""
        members, self.members = self.members, []
        assert [await member.end() for member in members] == [0] * len(members)

    async def adopt_all(self) -> int:
        adopter = Adopter(open_session(self.database.engine), Money(), self.journal, lambda: time.time_ns() // 1000)
        await adopter.scan()
        await adopter.session.close()
        return adopter.adopted

    def provider(self) -> dict[str, dict[str, int]]:
        """What the provider's log says, by request."""
        return {line["id"]: line for line in map(json.loads, self.log.read_text().splitlines())}

    async def at_rest(self) -> Books:
        """The books when every process has ended, with everything that must then be true."""
        found = await books(self.database.engine)
        found.assert_sound()
        assert found.leased == 0, "money is still leased"
        assert found.states <= {"closed"}, found.states
        for window, spent in found.spent.items():
            assert spent <= found.cap[window], f"window {window}: spent {spent} of {found.cap[window]}"
        checked = await audit(self.database.engine)
        assert checked.broken == [], checked.broken
        assert os.listdir(self.journal) == [], "a journal is left"  # noqa: PTH208
        return found


@contextlib.asynccontextmanager
async def fleet(database: Database, folder: Path) -> AsyncIterator[Fleet]:
    """No process outlives it."""
    made = Fleet(database, folder)
    try:
        yield made
    finally:
        for member in made.members:
            member.go_on()
            await member.kill()
