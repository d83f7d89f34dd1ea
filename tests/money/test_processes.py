"""Several real processes on one database: caps hold, kill -9 loses nothing, the dead are adopted and the living are not."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.db.session import open_session
from gateway.money.adoption import Adopter
from gateway.money.budgets import BudgetRow
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import Books, add_budget, books

ROOT = Path(__file__).parents[2]


class Fleet:
    """Worker subprocesses over one database and one journal root."""

    def __init__(self, database: Database, root: Path, budgets: list[BudgetRow]) -> None:
        self.database = database
        self.root = root
        self.budgets = budgets
        self.log = root / "provider.log"
        self.log.touch()

    async def start(self, seed: int, **order: Any) -> asyncio.subprocess.Process:
        told = {
            "url": self.database.url,
            "state": str(self.root),
            "journal": str(self.root / "journal"),
            "provider_log": str(self.log),
            "budgets": [msgspec.to_builtins(row) for row in self.budgets],
            "seed": seed,
            "for_s": 1.5,
            "clients": 40,
            "least": 1000,
            "most": 200_000,
        } | order
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.money.worker", json.dumps(told), stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        assert process.stdout is not None
        first = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        assert "ready" in first
        return process

    def provider(self) -> dict[str, dict[str, int]]:
        return {line["id"]: line for line in map(json.loads, self.log.read_text().splitlines())}

    async def adopt_all(self) -> int:
        adopter = Adopter(open_session(self.database.engine), Money(), self.root / "journal", lambda: time.time_ns() // 1000)
        await adopter.scan()
        await adopter.session.close()
        return adopter.adopted


async def end(process: asyncio.subprocess.Process) -> dict[str, int]:
    assert process.stdout is not None
    last = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
    assert await asyncio.wait_for(process.wait(), 10) == 0
    done: dict[str, int] = last["done"]
    return done


def at_rest(found: Books) -> None:
    found.assert_sound()
    assert found.leased == 0
    assert found.states == {"closed"}
    for window, spent in found.spent.items():
        assert spent <= found.cap[window]


async def test_two_processes_never_pass_a_tight_cap(database: Database, tmp_path: Path) -> None:
    """Two scopes nested in one; clocks five minutes apart; the clients try until nobody gets anything."""
    cap = 15_000_000
    budgets = [
        await add_budget(database.engine, limit=cap, scope_kind="organisation"),
        await add_budget(database.engine, limit=cap * 2 // 3, scope_kind="team", scope_id=1),
    ]
    fleet = Fleet(database, tmp_path, budgets)
    one, two = await asyncio.gather(fleet.start(1), fleet.start(2, skew_s=300))
    counts = await asyncio.gather(end(one), end(two))
    found = await books(database.engine)
    at_rest(found)
    assert found.rows == sum(count["admitted"] for count in counts) == len(fleet.provider())
    assert found.cost == sum(entry["cost"] for entry in fleet.provider().values())
    assert sum(count["refused"] for count in counts) > 0
    assert found.spent[1] > cap * 9 // 10, "money must not lie idle in leases while others are refused"


async def test_a_cap_is_used_up_to_the_smallest_request(database: Database, tmp_path: Path) -> None:
    """Actual = worst case, equal requests: what is left over is less than one of them."""
    size = 30_000
    cap = size * 100 + size - 1
    budget = await add_budget(database.engine, limit=cap, scope_kind="organisation")
    fleet = Fleet(database, tmp_path, [budget])
    order = {"full": True, "least": size, "most": size, "for_s": 20.0, "stop_when_refused": True}
    processes = await asyncio.gather(fleet.start(1, **order), fleet.start(2, **order))
    await asyncio.gather(*(end(process) for process in processes))
    found = await books(database.engine)
    at_rest(found)
    assert found.rows == 100
    assert found.spent[1] == 100 * size


async def test_kill_9_loses_nothing(database: Database, tmp_path: Path) -> None:
    """One of two is killed under load: the other adopts it; at the end the provider's log and the ledger agree row by row."""
    budget = await add_budget(database.engine, limit=10**12, scope_kind="organisation")
    fleet = Fleet(database, tmp_path, [budget])
    victim = await fleet.start(1, for_s=30.0, lasts_s=0.2)
    other = await fleet.start(2, for_s=2.5, lasts_s=0.05)
    await asyncio.sleep(0.7)
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    await end(other)
    found = await books(database.engine)
    at_rest(found)
    provider = fleet.provider()
    assert found.rows >= len(provider), "an intent may have been written whose call was not logged any more"
    assert found.rows - len(provider) <= 1
    assert 0 < found.outcomes["unknown"] <= 41
    truth = sum(entry["cost"] for entry in provider.values())
    assert truth <= found.cost <= truth + sum(entry["worst"] for entry in provider.values())
    assert list((tmp_path / "journal").iterdir()) == []


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_stopped_process_is_not_adopted(database: Database, tmp_path: Path) -> None:
    budget = await add_budget(database.engine, limit=10**9, scope_kind="organisation")
    fleet = Fleet(database, tmp_path, [budget])
    paused = await fleet.start(1, for_s=1.0)
    await asyncio.sleep(0.3)
    paused.send_signal(signal.SIGSTOP)
    try:
        assert await asyncio.wait_for(fleet.adopt_all(), 10) == 0
        assert len(list((tmp_path / "journal").iterdir())) == 1
    finally:
        paused.send_signal(signal.SIGCONT)
    await end(paused)
    at_rest(await books(database.engine))
