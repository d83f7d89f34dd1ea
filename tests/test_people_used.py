"""What keys and teams did and when they last did anything: the same before and after what it is read from was added up."""

from __future__ import annotations

import time

from gateway.money.ledger import BUCKET_US, DAY_US
from gateway.money.settling import settle
from gateway.people.used import LOOK_DAYS, LastUse, Use, last_used, used_since
from tests.conftest import Database
from tests.fixtures.ledger import record, write

QUARTERS, DAYS = BUCKET_US, DAY_US


async def test_what_keys_and_teams_did_since_an_instant(database: Database) -> None:
    now_us = time.time_ns() // 1000
    made = [(0, 5), (3, 7), (40, None), (70, 100)]
    rows = [record(now_us - days * DAY_US, [("a", "completed", cost)], team_id=1, key_id=11) for days, cost in made]
    rows += [record(now_us - DAY_US, [("b", "completed", 1)], team_id=1, key_id=12), record(now_us, [("b", "completed", 9)], team_id=2)]
    await write(database.engine, rows)
    since_us = now_us - 50 * DAY_US - (now_us - 50 * DAY_US) % BUCKET_US
    first, second = Use(requests=3, cost_nanousd=12, unpriced=1), Use(requests=1, cost_nanousd=1, unpriced=0)
    for _ in range(2):
        async with database.engine.connect() as connection:
            assert await used_since(connection, "key_id", frozenset({1}), since_us) == {11: first, 12: second}
            assert await used_since(connection, "team_id", None, since_us) == {
                1: Use(requests=4, cost_nanousd=13, unpriced=1),
                2: Use(requests=1, cost_nanousd=9, unpriced=0),
            }
            assert await used_since(connection, "team_id", frozenset({3}), since_us) == {}
        await settle(database.engine)


async def test_the_last_use_is_told_with_its_grain(database: Database) -> None:
    now_us = time.time_ns() // 1000
    at = {"now": now_us, "days": now_us - 3 * DAY_US, "edge": now_us - (LOOK_DAYS - 1) * DAY_US, "old": now_us - (LOOK_DAYS + 2) * DAY_US}
    rows = [record(at["now"], [("a", "completed", 5)], key_id=1), record(at["days"], [("a", "completed", 5)], key_id=1, tag="t")]
    rows += [record(at["days"], [], outcome="refused", key_id=2), record(at["old"], [("a", "completed", 5)], key_id=2)]
    rows += [record(at["edge"], [("a", "completed", 5)], key_id=3), record(at["old"], [("a", "completed", 5)], key_id=4)]
    await write(database.engine, [*rows, record(at["days"], [("a", "completed", 5)], key_id=5, team_id=2)])

    async def told(grain_us: int, scope: frozenset[int] | None = None) -> None:
        async with database.engine.connect() as connection:
            found = await last_used(connection, scope)
        quarter = LastUse(at["now"] - at["now"] % BUCKET_US, BUCKET_US)
        others = {2: at["days"], 3: at["edge"]} | ({5: at["days"]} if scope is None else {})
        assert found == {1: quarter} | {key: LastUse(at_us - at_us % grain_us, grain_us) for key, at_us in others.items()}

    await told(QUARTERS)
    await settle(database.engine)
    await told(DAYS)
    await told(DAYS, frozenset({1}))
