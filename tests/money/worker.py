"""A process that spends: run by the money tests as a subprocess, told by JSON in its first argument, answering one JSON line per event.

Every request it starts and every cost it settles is appended to a log of its own, as a provider would do.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from gateway.db.engine import make_engine
from gateway.money.accounts import Accounts, BudgetRow, Refusal, Scope
from gateway.settings import Money, Storage
from tests.fixtures.money import intent_of, record_of


async def main(order: dict[str, Any]) -> None:
    engine = make_engine(Storage(database_url=order["url"], state_dir=order["state"]))
    money = Money(tick_s=0.05, segment_bytes=1 << 18, adopt_scan_s=0.5, heartbeat_s=1.0)
    skew_us = int(order.get("skew_s", 0) * 1_000_000)
    accounts = await Accounts.open(engine, money, Path(order["journal"]), clock=lambda: time.time_ns() // 1000 + skew_us)
    accounts.set_budgets([BudgetRow(**row) for row in order["budgets"]])
    say(ready=str(accounts.process_id), now_us=accounts.now_us())
    rng = random.Random(order["seed"])
    until = time.monotonic() + order["for_s"]
    provider = Path(order["provider_log"]).open("a", buffering=1)  # noqa: ASYNC230, SIM115
    counts = {"admitted": 0, "refused": 0, "unavailable": 0}

    async def client(number: int) -> None:
        scope = Scope(1, 1 + number % 2, 1, "assistant")
        while time.monotonic() < until:
            worst = rng.randint(order["least"], order["most"])
            now, request_id = accounts.now_us(), accounts.new_request_id()
            got = await accounts.obtain(scope, worst, now)
            if isinstance(got, Refusal):
                counts["refused" if got.kind == "budget" else "unavailable"] += 1
                if got.kind == "budget" and order.get("stop_when_refused"):
                    return
                await asyncio.sleep(0.02)
                continue
            counts["admitted"] += 1
            accounts.intent(intent_of(request_id, now, got, worst))
            cost = worst if order.get("full") else rng.randint(0, worst)
            provider.write(json.dumps({"id": str(request_id), "cost": cost, "worst": worst}) + "\n")
            await asyncio.sleep(rng.random() * order.get("lasts_s", 0.01))
            accounts.settle(got, record_of(request_id, now, got, cost))

    await asyncio.gather(*(client(number) for number in range(order["clients"])))
    await accounts.close()
    await engine.dispose()
    say(done=counts)


def say(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
