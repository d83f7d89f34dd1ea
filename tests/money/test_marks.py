"""What is remarkable about a row: by its end, its attempts and its objectives."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from gateway.db.tables import usage
from gateway.money.ledger import BOOKED
from gateway.money.marks import FAILED, FAILED_OVER, HEDGED, MISSED, UNPRICED, late, marks
from gateway.money.records import UsageRecord
from tests.conftest import Database
from tests.fixtures.ledger import record, write

CASES = [
    (record(1, [("a", "completed", 5)]), 0),
    (record(1, [("a", "failed", 0), ("a", "completed", 5)]), 0),
    (record(1, [("a", "failed", 0), ("b", "completed", 5)]), FAILED_OVER),
    (record(1, [("a", "failed", 0), ("b", "failed", None)], outcome="failed"), FAILED_OVER | UNPRICED | FAILED),
    (record(1, [], outcome="cached"), 0),
    (record(1, [], outcome="refused"), FAILED),
    (record(1, [("a", "unknown", 5)], outcome="unknown"), FAILED),
    (record(1, [], outcome="idle"), 0),
    (record(1, [("a", "completed", 5)], marks=HEDGED | MISSED), HEDGED | MISSED),
]


@pytest.mark.parametrize(("row", "expected"), CASES, ids=range(len(CASES)))
def test_a_row_is_marked_by_its_end_and_its_attempts(row: UsageRecord, expected: int) -> None:
    assert marks(row, BOOKED) == expected


@pytest.mark.parametrize(
    ("seen", "tokens", "objectives", "expected"),
    [
        ((900, 2000), 10, (None, None, None), False),
        ((900, 2000), 10, (900.0, None, None), False),
        ((901, 2000), 10, (900.0, None, None), True),
        ((900, 2700), 10, (None, 200.0, None), False),
        ((900, 2701), 10, (None, 200.0, None), True),
        ((900, 9000), 1, (None, 200.0, None), False),
        ((None, 9000), 0, (900.0, 10.0, None), False),
        ((None, 9000), 0, (None, None, 8999.0), True),
        ((900, 2000), 10, (None, None, 2000.0), False),
    ],
)
def test_late_is_beyond_an_objective(seen: Any, tokens: int, objectives: Any, expected: bool) -> None:
    assert late(seen, tokens, objectives) is expected


async def test_marks_stand_in_the_ledger(database: Database) -> None:
    rows = [row for row, _ in CASES]
    await write(database.engine, rows)
    async with database.engine.connect() as connection:
        found = {row.id: row.marks for row in await connection.execute(select(usage.c.id, usage.c.marks))}
    assert found == {row.id: expected for row, expected in CASES}
