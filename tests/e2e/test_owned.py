"""Owned hardware from a client's request to the hour's last row: one figure everywhere, and hours × rate exactly."""

from __future__ import annotations

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from gateway.db.engine import make_engine
from gateway.money.audit import Audit, audit
from gateway.money.keeper import Keeper
from gateway.money.ledger import HOUR_US
from gateway.money.owned import Owned
from gateway.money.reports import Asked, Report, spend
from gateway.settings import Storage
from tests.e2e.harness import Gateway, route, running

USD = 1_000_000_000
SCRIPT = "tokens = 12\\nttft_s = 0.02\\ntpot_s = 0.01"
CONFIG = (
    f"""
[[backends]]
name = "own"
vendor = "scripted"
model = "scripted"
hourly_usd = "3600"
price = {{ input = "1", output = "1" }}
script = "{SCRIPT}"

[[backends]]
name = "broken"
vendor = "scripted"
model = "scripted"
hourly_usd = "3600"
script = 'error = "server_failed"'
"""
    + route("own", "own")
    + route("broken", "broken", "own")
)

ALPHA = "SELECT * FROM usage WHERE team_id = (SELECT id FROM teams WHERE name = 'alpha')"


def ask(gateway: Gateway, key: str, *, stream: bool = False, model: str = "own", max_tokens: int = 20) -> tuple[int, str, int | None]:
    """Status, body and what the answer says that it cost, in nano-USD."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": max_tokens, "stream": stream}
    status, answer, headers = gateway.call("POST", "/v1/chat/completions", json.dumps(body).encode(), key)
    text = answer.decode()
    said = re.search(r"tollway-cost-usd (\S+)", text)
    told = headers.get("x-tollway-cost-usd") or (said[1] if said is not None else None)
    return status, text, None if told is None else int(told.replace(".", ""))


async def close_later(gateway: Gateway, hours: int) -> tuple[Audit, Report]:
    """What a gateway does that is started hours from now; what `tollway ledger verify` and `tollway report` find then."""
    engine = make_engine(Storage(database_url=gateway.database_url))

    async def ready(_: str) -> bool:
        return True

    keeper = Keeper(engine, uuid4(), Owned(), lambda: time.time_ns() // 1000 + hours * HOUR_US, dict, ready)
    await keeper.close_hours()
    await keeper.session.close()
    found = await audit(engine), await spend(engine, Asked(by=("backend", "outcome")))
    await engine.dispose()
    return found


def test_an_hour_of_owned_hardware(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG) as gateway:
        key = gateway.key("alpha")
        poor = gateway.key("beta")
        # nothing is known of its pace yet: 3600 USD an hour at 20 ms a token are 0.02 USD for each token of the worst case
        gateway.budget("1.00", team="beta")
        began = time.monotonic()
        told = [ask(gateway, key)[2], ask(gateway, key, stream=True)[2]]
        failed_over = ask(gateway, key, model="broken")[2]
        with ThreadPoolExecutor(4) as pool:
            told += [cost for _, _, cost in pool.map(lambda n: ask(gateway, key, stream=n % 2 == 0), range(4))]
        seconds = time.monotonic() - began
        end = time.monotonic() + 20
        while (refused := ask(gateway, poor))[0] != 402:  # until the worker has seen the budget
            assert refused[0] == 200 and time.monotonic() < end, refused
        assert "budget" in refused[1]

        end = time.monotonic() + 20
        while len(answered := gateway.rows(ALPHA)) < 7 and time.monotonic() < end:
            time.sleep(0.05)
        ends = gateway.rows(
            "SELECT backend, cost FROM attempts WHERE request_id IN (SELECT id FROM usage WHERE route = 'broken') ORDER BY n"
        )
        told.append(failed_over)
        assert [(end["backend"], end["cost"]) for end in ends] == [("broken", 0), ("own", failed_over)], "cheaper to ask, but it failed"
        costs = sorted(row["cost"] for row in answered)
        assert costs == sorted(cost for cost in told if cost is not None) and len(costs) == 7
        assert all(cost > 0 for cost in costs)
        assert sum(costs) <= seconds * USD, "never more than the time costs"
        alone = min(answered, key=lambda row: row["started_at_us"])
        assert 0.12 * USD < alone["cost"] <= alone["duration_ms"] / 1000 * USD + USD / 100, "who is alone pays for the time"
        assert {row["price_id"] for row in answered} == {f"hourly:own:{3600 * USD}"}
        assert gateway.stop() == 0

        checked, report = asyncio.run(close_later(gateway, 3))
        hours = gateway.rows("SELECT * FROM owned_hours WHERE owed > 0")
        assert {row["backend"] for row in hours} == {"own", "broken"}
        owed, covered = (sum(row[name] for row in hours) for name in ("owed", "covered_us"))
        assert owed == covered * 1000, "3600 USD an hour are a thousand nano-USD a microsecond"
        assert sum(row["cost"] for row in gateway.rows("SELECT cost FROM usage")) == owed
        idle = [row for row in gateway.rows("SELECT * FROM usage") if row["outcome"] == "idle"]
        assert idle and {(row["team_id"], row["charges"]) for row in idle} == {(0, "[]")}
        assert checked.broken == []
        assert report.total.cost == owed
        lines = [line for line in report.lines if line.group[1] == "idle"]
        assert {line.requests for line in lines} == {0} and sum(line.cost for line in lines) == sum(row["cost"] for row in idle)
