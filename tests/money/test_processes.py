"""Several real processes on one database: caps hold, kill -9 loses nothing, the dead are adopted, the living are not (see tests/chaos)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos import cap, flush, pause
from tests.chaos.fleet import fleet
from tests.conftest import Database
from tests.fixtures.money import add_budget

SEED = 20_261_130


def quiet(_: str) -> None: ...


async def test_many_at_once_never_pass_a_cap_and_use_it_up(database: Database, tmp_path: Path) -> None:
    """At their worst case and below it, four processes, one clock five minutes off: less than the smallest request is left."""
    await cap.run(database, tmp_path, random.Random(SEED), quiet, rounds=2, clients=40)


async def test_a_process_that_stands_still_harms_nobody(database: Database, tmp_path: Path) -> None:
    await pause.outside(database, tmp_path, random.Random(SEED), quiet, 0.0)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_process_that_stands_still_inside_a_transaction(database: Database, tmp_path: Path) -> None:
    """SQLite's writers wait, admission goes on. (The server of Postgres needs seconds to end such a session: `make chaos`.)"""
    await pause.inside(database, tmp_path, random.Random(SEED), quiet, 0.0)


async def test_rows_in_opposite_order_under_random_locks(database: Database, tmp_path: Path) -> None:
    await flush.run(database, tmp_path, random.Random(SEED), quiet, rounds=2)


async def test_kill_9_loses_nothing(database: Database, tmp_path: Path) -> None:
    """One of two is killed under load: the other adopts it; at the end the provider's log and the ledger agree row by row."""
    budget = await add_budget(database.engine, limit=10**12, scope_kind="organisation")
    order = {"team": 1, "least": 1000, "most": 200_000, "clients": 20}
    async with fleet(database, tmp_path) as ships:
        victim, other = await ships.several(2)
        await ships.budgets([budget])
        victim.tell("spend", seed=1, for_s=100.0, lasts_s=0.2, **order)
        for _ in range(3000):
            if len(ships.provider()) > 60:
                break
            await asyncio.sleep(0.02)
        await ships.kill(victim)
        await other.ask("spend", seed=2, for_s=0.3, lasts_s=0.05, **order)
        for _ in range(3000):
            if (await other.ask("stats"))["adopted"] == 1:
                break
            await asyncio.sleep(0.02)
        await ships.end()
        found = await ships.at_rest()
        provider = ships.provider()
    assert len(provider) <= found.rows <= len(provider) + 1, "an intent may have been written whose call was not logged any more"
    assert 0 < found.outcomes["unknown"] <= 21
    truth = sum(entry["cost"] for entry in provider.values())
    assert truth <= found.cost <= truth + sum(entry["worst"] for entry in provider.values())
