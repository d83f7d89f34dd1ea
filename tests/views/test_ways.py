"""A team's newest choices computed again: which rows are sampled, and what their share comes to a month."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import delete, insert

from gateway.db.rollup_tables import rollups
from gateway.db.tables import attempts, decisions, usage
from gateway.money.marks import HEDGED
from gateway.routing.decision import Candidate, Decision, encode
from gateway.views import ways as views
from tests.conftest import Database
from tests.routing.test_what_if import made, two

NOW_US = 1_796_000_000_000_000
HOUR_US = 3_600_000_000
NOBODY = UUID(int=0)


def row(at_us: int, team_id: int = 1, outcome: str = "completed", marks: int = 0) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "started_at_us": at_us,
        "ended_at_us": at_us,
        "org_id": 1,
        "team_id": team_id,
        "key_id": 1,
        "outcome": outcome,
        "process_id": NOBODY,
        "marks": marks,
    }


async def put(database: Database, rows: list[dict[str, Any]], *records: Decision) -> None:
    """Rows of the ledger with a decision each, in turn."""
    encoded = [encode(record) for record in records]
    stored = [
        {"request_id": one["id"], "made_at_us": one["started_at_us"], "team_id": one["team_id"], "record": encoded[n % len(encoded)]}
        for n, one in enumerate(rows)
    ]
    async with database.engine.begin() as connection:
        await connection.execute(insert(usage), rows)
        await connection.execute(insert(decisions), stored)


async def spent(database: Database, cost: int, requests: int, outcome: str = "completed", route: str = "assistant") -> None:
    """What the week came to, in the roll-ups."""
    keys: dict[str, Any] = {"bucket_us": NOW_US - NOW_US % HOUR_US - HOUR_US, "org_id": 1, "team_id": 1, "key_id": 1, "route": route}
    words = {"backend": "dear", "vendor": "v", "model": "m", "outcome": outcome, "tag": ""}
    async with database.engine.begin() as connection:
        await connection.execute(insert(rollups).values(keys | words | {"cost": cost, "requests": requests}))


async def test_the_share_that_would_have_been_spared_of_what_the_week_cost(database: Database) -> None:
    at = [NOW_US - n * 1_000_000 for n in range(1, 1101)]
    await put(database, [row(one) for one in at[:600]], two(ttft_ms=1500.0))
    await put(database, [row(one, marks=HEDGED if n < 40 else 0) for n, one in enumerate(at[600:])], two())
    free = made(Candidate("dear", cost=9), Candidate("cheap", "parallel", cost=0))
    await put(database, [row(NOW_US, team_id=2) for _ in range(30)], free)
    await put(database, [row(NOW_US, outcome="cached") for _ in range(30)], free)
    await put(database, [row(NOW_US - 8 * 24 * HOUR_US) for _ in range(30)], free)
    await spent(database, 7 * 10**9, 4_400)
    await spent(database, 0, 1_000, "cached")
    await spent(database, 10**12, 1, route="code")
    async with database.engine.begin() as connection:
        hedged = (await connection.execute(usage.select().where(usage.c.marks == HEDGED))).mappings().all()
        lost = [
            {"request_id": one["id"], "n": n, "outcome": outcome, "error": error, "cost": cost}
            for one in hedged
            for n, outcome, error, cost in ((1, "cancelled", "lost_race", 500), (2, "completed", "", 10**6))
        ]
        await connection.execute(insert(attempts), lost)
    found = await views.ways(database.engine, 1, NOW_US)
    assert found is not None and (found.records, found.sent) == (1100, 4401)
    longer, hedges = found.savings
    # 600 of 5,000 and 500 of 1,000 nano-USD were predicted; 600 would have been spared 4,000
    assert longer.month == 600 * 4_000 * 7 * 10**9 * 30 // ((600 * 5_000 + 500 * 1_000) * 7)
    assert (longer.kind, longer.route, longer.there, longer.goal_ms, longer.percent) == ("ttft", "assistant", "cheap", 2250.0, 150)
    assert longer.share == 600 / 1100
    # 40 of 1,100 rows paid 500 to who came second; the week sent four times as many
    assert (hedges.kind, hedges.month, hedges.share) == ("hedges", 40 * 500 * 4401 * 30 // (1100 * 7), 40 / 1100)


async def test_too_few_records_say_nothing_and_what_was_found_is_kept_a_while(database: Database) -> None:
    rows = [row(NOW_US - n * 1_000_000) for n in range(1, views.RECORDS_MIN + 5)]
    await put(database, rows[: views.RECORDS_MIN - 1], two("rate_limited"))
    other = two("rate_limited")
    other.policy = "4"
    await put(database, rows[views.RECORDS_MIN - 1 :], other)
    await spent(database, 10**9, 1_000)
    finder = views.Finder(database.engine)
    assert await finder.of(1, NOW_US) is None, "records of another policy cannot be computed again"
    await put(database, [row(NOW_US - 1)], two("rate_limited"))
    assert await finder.of(1, NOW_US + 1_000_000) is None, "kept"
    late_us = NOW_US + int(views.KEPT_S * 1e6)
    found = await finder.of(1, late_us)
    assert found is not None and [(one.kind, one.there, one.share) for one in found.savings] == [("room", "cheap", 1.0)]
    assert found.savings[0].month == 4 * 10**9 * 30 // (5 * 7), "4,000 of every 5,000"
    async with database.engine.begin() as connection:
        await connection.execute(delete(decisions))
    assert await finder.of(1, late_us + 1) is found
    assert await finder.of(2, NOW_US) is None
