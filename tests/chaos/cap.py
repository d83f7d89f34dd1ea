"""Many at once on one tight cap: never past it, and used up to the last request that still fits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import text

from gateway.money.budgets import BudgetRow
from tests.chaos.fleet import Fleet, Member, fleet
from tests.conftest import Database
from tests.fixtures.money import add_budget

LEAST, MOST = 1_000, 200_000  # nano-USD a request may cost
SKEW_S = 300  # between the clocks of two of the processes
MONEY = {"recall_wait_s": 20.0}  # what idles elsewhere has its time to come back, however busy this machine is: then every refusal is final


async def run(
    database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], *, rounds: int = 20, clients: int = 500
) -> None:
    """Rounds of `clients` requests at once from four processes, alternately at their worst case and below it."""
    async with fleet(database, folder) as ships:
        await ships.several(3, money=MONEY)
        await ships.start(skew_s=SKEW_S, money=MONEY)
        whole = await add_budget(database.engine, limit=1 << 60, scope_kind="organisation", period="total")
        for number in range(rounds):
            await one_round(ships, whole, rng, say, (number + 1, clients))
        await ships.end()
        found = await ships.at_rest()
        assert found.rows == len(ships.provider())
        assert found.cost == sum(entry["cost"] for entry in ships.provider().values())


async def one_round(ships: Fleet, whole: BudgetRow, rng: random.Random, say: Callable[[str], None], size: tuple[int, int]) -> None:
    """A team with a tight cap of its own inside the organisation's wide one. size: number of the round, clients."""
    number, clients = size
    cap = rng.randint(40, 120) * clients * 1000
    tight = await add_budget(ships.database.engine, limit=cap, scope_id=number, period="total")
    await ships.budgets([whole, tight])
    full = number % 2 == 1
    order = {"team": number, "least": LEAST, "most": MOST, "full": full, "until_refused": True, "clients": clients // len(ships.members)}
    counts = await asyncio.gather(*(member.ask("spend", seed=rng.random(), **order) for member in ships.members))
    admitted = sum(count["admitted"] for count in counts)
    refused = sum(count["refused"] for count in counts)
    unavailable = sum(count["unavailable"] for count in counts)
    again = await mop_up(ships.members, rng, number, full=full)
    left = cap - await spent_of(ships, tight.id)
    kind = "worst case" if full else "less"
    say(f"round {number}, {kind}: {admitted}+{again} admitted, {refused} refused, {unavailable} put off, {left} of {cap} left")
    assert left >= 0, f"{-left} nano-USD past the cap of {cap}"
    assert left < LEAST, f"{left} nano-USD were never used, though requests of {LEAST} were refused"


async def mop_up(members: list[Member], rng: random.Random, team: int, *, full: bool) -> int:
    """With nothing in flight ask on, for any request and at last for the smallest, until nobody gets one; returns how many did."""
    total = 0
    for most in (MOST, MOST // 20, LEAST):
        while True:
            order = {"team": team, "least": LEAST, "most": most, "full": full, "until_refused": True, "clients": 1}
            got = [await member.ask("spend", seed=rng.random(), **order) for member in members]
            admitted = sum(count["admitted"] for count in got)
            total += admitted
            if admitted == 0:
                break
    return total


async def spent_of(ships: Fleet, budget: int) -> int:
    """Spent of the budget's only window once every row has arrived."""
    for _ in range(3000):
        stats = [await member.ask("stats") for member in ships.members]
        if not any(one["queued"] or one["unsynced_nanousd"] or one["reserved_nanousd"] for one in stats):
            async with ships.database.engine.connect() as connection:
                query = text("SELECT spent FROM budget_windows WHERE budget_id = :budget")
                return int((await connection.execute(query, {"budget": budget})).scalar_one())
        await asyncio.sleep(0.05)
    raise AssertionError(f"the rows of budget {budget} never arrived")
