"""A process that stands still for a minute, outside a transaction and inside one, while others spend on the same cap."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import make_url, text

from gateway.db.engine import BUSY_TIMEOUT_MS, POSTGRES_SESSION
from tests.chaos.fleet import Fleet, Member, fleet
from tests.conftest import Database
from tests.fixtures.money import add_budget

LEAST, MOST = 1_000, 200_000
CAP = 30_000_000
WIDE = 10**12
CAUGHT_S = 2.0  # a transaction that lasts longer is the paused one's; before the server ends it
SLACK_S = 60.0  # for a machine that is busy with other things
SPENDING = {"team": 1, "least": LEAST, "most": MOST}
INSIDE = {"sqlite": "UPDATE gateway_processes", "postgresql": "FROM budget_windows"}  # then it holds the one lock, or a window's


async def run(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], *, pause_s: float = 60.0) -> None:
    await outside(database, folder, rng, say, pause_s)
    await inside(database, folder, rng, say, pause_s)


async def outside(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], pause_s: float) -> None:
    """It may hold money and requests: nobody touches them, the others use up the rest, and it goes on as if nothing had been."""
    async with fleet(database, folder) as ships:
        paused, *others = await ships.several(3)
        await ships.budgets([await add_budget(database.engine, limit=CAP, period="total")])
        running = paused.tell("spend", seed=rng.random(), clients=20, until_refused=True, lasts_s=0.5, **SPENDING)
        await spends(ships, paused)
        await between_transactions(database, paused)
        began = time.monotonic()
        got = await asyncio.gather(
            *(one.ask("spend", seed=rng.random(), clients=20, until_refused=True, lasts_s=0.05, **SPENDING) for one in others)
        )
        assert await ships.adopt_all() == 0, "a paused process was taken for dead"
        await asyncio.sleep(pause_s - (time.monotonic() - began))
        paused.go_on()
        last = await running
        say(f"paused outside for {time.monotonic() - began:.1f} s: others {[one['admitted'] for one in got]}, itself {last['admitted']}")
        assert all(one["admitted"] > 0 and one["refused"] > 0 for one in got)
        await ships.end()
        found = await ships.at_rest()
        assert found.rows == len(ships.provider())
        assert found.cost == sum(entry["cost"] for entry in ships.provider().values())


async def inside(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], pause_s: float) -> None:
    """It holds locks. Postgres ends its session after a while; on SQLite writers wait, and requests go on under leases."""
    async with fleet(database, folder) as ships:
        paused, other = await ships.several(2)
        await ships.budgets([await add_budget(database.engine, limit=WIDE, scope_kind="organisation", period="total")])
        for member in ships.members:  # a slice for each, so that requests need no database
            await member.ask("spend", seed=rng.random(), clients=4, for_s=0.5, **SPENDING)
        assert (await other.ask("stats"))["leased_nanousd"] > 0
        await paused.ask("stop_inside", after=INSIDE[database.name])
        running = paused.tell("spend", seed=rng.random(), clients=4, for_s=1.0, **SPENDING)
        await paused.stopped()
        began = time.monotonic()
        got = await other.ask("spend", seed=rng.random(), clients=4, for_s=1.0, lasts_s=0.05, **SPENDING)
        assert got["admitted"] > 0, "admission goes on under leases"
        if database.name == "postgresql":
            await written(other, began)
            waited = time.monotonic() - began
            say(f"rows of the other process arrived {waited:.1f} s after the pause began, while it lasted")
        else:
            assert (await other.ask("stats"))["queued"] > 0, "SQLite's one writer is paused: rows wait"
        await asyncio.sleep(pause_s - (time.monotonic() - began))
        paused.go_on()
        last = await running
        say(f"paused inside a transaction for {time.monotonic() - began:.1f} s: {got} meanwhile, itself {last}")
        await ships.end()
        found = await ships.at_rest()
        assert found.rows == len(ships.provider())
        assert found.cost == sum(entry["cost"] for entry in ships.provider().values())


async def between_transactions(database: Database, member: Member) -> None:
    """Pause it where it holds no lock of the database: where it was caught inside a transaction it goes on, and is paused again."""
    for _ in range(50):
        member.pause()
        await member.stopped()
        if await (no_writer(database) if database.name == "sqlite" else none_open(database)):
            return
        member.go_on()
        await asyncio.sleep(0.02)
    raise AssertionError("it was never caught between two transactions")


async def no_writer(database: Database) -> bool:
    """Whether SQLite's one lock comes free while somebody is paused."""

    def free() -> bool:
        with contextlib.closing(sqlite3.connect(str(make_url(database.url).database), timeout=CAUGHT_S)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.rollback()
            return True

    return await asyncio.to_thread(free)


async def none_open(database: Database) -> bool:
    """Whether every transaction ends that runs now, while somebody is paused."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start <= :now"
    async with database.engine.connect() as connection:
        now = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
        until = time.monotonic() + CAUGHT_S
        while (await connection.execute(text(others), {"now": now})).scalar_one():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
            await connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return True


async def spends(ships: Fleet, member: Member) -> None:
    """Return when it has admitted something."""
    for _ in range(3000):
        if (await member.ask("stats"))["journal_open"] > 0 and ships.provider():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nothing was admitted")


async def written(member: Member, since: float) -> None:
    """Return when its rows are in SQL: within the time after which the server ends the paused session, and the waits that led there."""
    idle_s = int(POSTGRES_SESSION["idle_in_transaction_session_timeout"]) / 1000
    lock_s = int(POSTGRES_SESSION["lock_timeout"]) / 1000
    within_s = idle_s + lock_s + BUSY_TIMEOUT_MS / 1000 + SLACK_S
    while time.monotonic() < since + within_s:
        stats = await member.ask("stats")
        if stats["queued"] == 0 and not stats["database_away"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"blocked for more than {within_s} s by a process that stands still")
