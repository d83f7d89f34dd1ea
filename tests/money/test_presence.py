"""Which hours a worker's rows may have come late for, and what marks them; the rest of it is run in test_keeper.py and test_closing.py."""

from __future__ import annotations

from msgspec import structs
from sqlalchemy import select

from gateway.db.session import open_session
from gateway.db.tables import owned_hours
from gateway.money.ledger import HOUR_US
from gateway.money.presence import GRACE_US, late, mark
from gateway.money.records import UsageRecord
from tests.conftest import Database
from tests.fixtures.ledger import record

HOUR = 490_000 * HOUR_US


def row(at_us: int, *backends: str, price_id: str = "hourly:x:1") -> UsageRecord:
    made = record(at_us, [(backend, "completed", 1) for backend in backends])
    return structs.replace(made, attempts=tuple(structs.replace(end, price_id=price_id) for end in made.attempts))


def test_a_row_of_the_running_hour_is_not_late() -> None:
    assert late([row(HOUR, "smol"), row(HOUR + HOUR_US - 1, "smol")], HOUR + HOUR_US - 1) == set()


def test_a_row_of_an_hour_that_is_over_is_late_for_every_owned_backend_it_used() -> None:
    found = late([row(HOUR + 5, "smol", "big"), row(HOUR + 7, "smol")], HOUR + HOUR_US)
    assert found == {
        ("smol", HOUR, "vendor of smol", "model of smol"),
        ("big", HOUR, "vendor of big", "model of big"),
    }
    assert late([row(HOUR, "hosted", price_id="config:hosted:1")], HOUR + HOUR_US) == set()


async def test_a_mark_makes_the_hour_or_has_it_looked_at_again(database: Database) -> None:
    session = open_session(database.engine)
    hours = [("smol", HOUR, "v", "m"), ("big", HOUR, "v", "m")]
    try:
        for _ in range(2):
            await session.run(mark(hours))
        async with database.engine.begin() as connection:
            await connection.execute(owned_hours.update().values(owed=7, check_at_us=None))
        await session.run(mark(hours[:1]))
    finally:
        await session.close()
    async with database.engine.connect() as connection:
        rows = (await connection.execute(select(owned_hours).order_by(owned_hours.c.backend))).all()
    assert [(one.backend, one.owed, one.check_at_us) for one in rows] == [("big", 7, None), ("smol", 7, HOUR + HOUR_US + GRACE_US)]
