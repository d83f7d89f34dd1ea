"""A process that spends as it is told: commands as JSON lines on standard input, an answer for each on standard output.

Every request whose intent is written is put into a log of its own as its provider would: with its worst case before it is called, with its
cost when it has answered. Run by the chaos scenarios and by the money tests that need processes.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from msgspec import convert, structs

from gateway.db.engine import make_engine
from gateway.db.session import Do, Transaction
from gateway.money.accounts import Accounts, BudgetRow, Refusal, Scope
from gateway.settings import Money, Storage
from tests.fixtures.money import intent_of, record_of


class Spender:
    def __init__(self, accounts: Accounts, log: Path) -> None:
        self.accounts = accounts
        self.log = log.open("a", buffering=1)
        self.slowest_s = 0.0

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        command: Any = getattr(self, "do_" + order["do"])
        return dict(await command(order))

    async def do_budgets(self, order: dict[str, Any]) -> dict[str, Any]:
        self.accounts.set_budgets(convert(order["rows"], list[BudgetRow]))
        return {}

    async def do_stats(self, _: dict[str, Any]) -> dict[str, Any]:
        return structs.asdict(self.accounts.stats()) | {"slowest_s": self.slowest_s}

    async def do_stop_inside(self, order: dict[str, Any]) -> dict[str, Any]:
        """SIGSTOP ourselves in the middle of the next transaction that writes, after a statement with these words."""
        session = self.accounts._syncer.session
        real = session.run

        async def run(transaction: Transaction[Any], *, reads: bool = False) -> Any:
            if reads:
                return await real(transaction, reads=reads)
            session.run = real  # type: ignore[method-assign]
            return await real(_stopping(transaction, order["after"]))

        session.run = run  # type: ignore[method-assign, assignment]
        return {}

    async def do_spend(self, order: dict[str, Any]) -> dict[str, Any]:
        """clients at once, each one request after the other, until a time or until refused. Costs are worst cases where `full`."""
        counts = {"admitted": 0, "refused": 0, "unavailable": 0, "cost": 0}
        rng = random.Random(order["seed"])
        until = time.monotonic() + order.get("for_s", 60.0)
        self.slowest_s = 0.0
        await asyncio.gather(*(self._client(order, rng, until, counts) for _ in range(order["clients"])))
        return counts

    async def _client(self, order: dict[str, Any], rng: random.Random, until: float, counts: dict[str, int]) -> None:
        scope = Scope(1, order["team"], 1, "assistant")
        while time.monotonic() < until:
            began = time.monotonic()
            worst = rng.randint(order["least"], order["most"])
            now, request_id = self.accounts.now_us(), self.accounts.new_request_id()
            got = await self.accounts.obtain(scope, worst, now)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if isinstance(got, Refusal):
                counts["refused" if got.kind == "budget" else "unavailable"] += 1
                if got.kind == "budget" and order.get("until_refused"):
                    return
                await asyncio.sleep(0.02)
                continue
            counts["admitted"] += 1
            self.accounts.intent(intent_of(request_id, now, got, worst))
            cost = worst if order.get("full") else rng.randint(0, worst)
            self._write({"id": str(request_id), "worst": worst, "cost": cost})
            await asyncio.sleep(rng.random() * order.get("lasts_s", 0.01))
            record = structs.replace(record_of(request_id, now, got, cost), team_id=scope.team_id)
            self.accounts.settle(got, record)
            counts["cost"] += cost

    def _write(self, line: dict[str, Any]) -> None:
        self.log.write(json.dumps(line) + "\n")


def _stopping(transaction: Transaction[Any], words: str) -> Transaction[Any]:
    step = next(transaction)
    stopped = False
    while True:
        rows = yield step
        if not stopped and words in (step.sql if isinstance(step, Do) else ""):
            stopped = True
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread itself: another one would let it run on for a moment
        try:
            step = transaction.send(rows)
        except StopIteration as end:
            return end.value


async def main(order: dict[str, Any]) -> None:
    engine = make_engine(Storage(database_url=order["url"], state_dir=order["state"]))
    money = convert({"tick_s": 0.05, "segment_bytes": 1 << 20, "adopt_scan_s": 0.5, "heartbeat_s": 1.0} | order.get("money", {}), Money)
    skew_us = int(order.get("skew_s", 0) * 1_000_000)
    accounts = await Accounts.open(engine, money, Path(order["journal"]), clock=lambda: time.time_ns() // 1000 + skew_us)
    spender = Spender(accounts, Path(order["provider_log"]))
    say(ready=str(accounts.process_id))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()

    async def answer(told: dict[str, Any]) -> None:
        say(number=told["number"], answer=await spender.obey(told))

    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    await accounts.close(wait_s=30.0)
    await engine.dispose()


def say(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
