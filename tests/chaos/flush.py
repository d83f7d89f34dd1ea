"""Two processes write the rows of fifty teams in opposite order while somebody locks the same rows at random: exact, and nothing lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from msgspec import structs
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gateway.money.accounts import Accounts, Hold, Scope
from gateway.money.audit import audit
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import add_budget, books, intent_of, patiently, record_of

TEAMS = 50
COST = 1_000
LOCKS = (
    "SELECT id FROM budget_windows ORDER BY random() LIMIT 5 FOR UPDATE",
    "SELECT team_id FROM rollups ORDER BY random() LIMIT 5 FOR UPDATE",
    "SELECT window_id FROM budget_leases ORDER BY random() LIMIT 5 FOR UPDATE",
)


async def run(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], *, rounds: int = 40) -> None:
    rows = [await add_budget(database.engine, limit=10**12, scope_id=team, period="total") for team in range(1, TEAMS + 1)]
    rows.append(await add_budget(database.engine, limit=10**12, scope_kind="organisation", period="total"))
    both: list[Accounts] = []
    for _ in range(2):
        accounts = await Accounts.open(database.engine, Money(tick_s=0.02, batch_rows=37, segment_bytes=1 << 20), folder / "journal")
        accounts.set_budgets(rows)
        both.append(accounts)
    ended = asyncio.Event()
    locking = asyncio.create_task(lock(database, rng, ended))
    teams = list(range(1, TEAMS + 1))
    await asyncio.gather(spend(both[0], teams, rounds), spend(both[1], teams[::-1], rounds))
    ended.set()
    locked = await locking
    for accounts in both:
        await accounts.close(wait_s=60.0)
    found = await books(database.engine)
    found.assert_sound()
    say(f"{found.rows} rows of {TEAMS} teams by two processes, {locked} times somebody held locks on their rows")
    assert found.rows == 2 * rounds * TEAMS
    assert found.cost == found.rows * COST
    assert sorted(found.spent.values()) == [*[2 * rounds * COST] * TEAMS, 2 * rounds * COST * TEAMS]
    assert (found.leased, found.states) == (0, {"closed"})
    assert (await audit(database.engine)).broken == []


async def spend(accounts: Accounts, teams: list[int], rounds: int) -> None:
    for _ in range(rounds):
        for team in teams:
            now, request_id = accounts.now_us(), accounts.new_request_id()
            hold = await patiently(accounts, Scope(1, team, 1, "assistant"), COST, now)
            assert isinstance(hold, Hold)
            accounts.intent(structs.replace(intent_of(request_id, now, hold, COST), team_id=team))
            accounts.settle(hold, structs.replace(record_of(request_id, now, hold, COST), team_id=team))
        await asyncio.sleep(0)


async def lock(database: Database, rng: random.Random, ended: asyncio.Event) -> int:
    """Hold some rows for a moment, again and again. On SQLite: the one write lock."""
    held = 0
    while not ended.is_set():
        try:
            async with database.engine.begin() as connection:  # SQLite: BEGIN IMMEDIATE
                if database.name == "postgresql":
                    await connection.execute(text("SET LOCAL deadlock_timeout = '20ms'"))  # where it comes to that, we are to lose soon
                    for statement in rng.sample(LOCKS, 2):
                        await connection.execute(text(statement))
                held += 1
                await asyncio.sleep(rng.random() * 0.02)
        except DBAPIError:  # we lost to them in a deadlock or waited too long: so be it
            continue
        await asyncio.sleep(rng.random() * 0.02)
    return held
