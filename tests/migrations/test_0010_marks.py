"""Rows that were written before are marked by what they tell of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, inspect, text

from gateway.money.ledger import ATTEMPT_COLUMNS, USAGE_COLUMNS, attempt_row, usage_row
from gateway.money.marks import HEDGED, MISSED
from tests.migrations.test_0003_retention import to
from tests.money.test_marks import CASES


def test_rows_of_before_are_marked_by_the_migration(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0009")
        for row, _ in CASES:
            _insert(connection, "usage", USAGE_COLUMNS, usage_row(row, lambda uid: uid.bytes, uuid4().bytes))
            for end in row.attempts:
                _insert(connection, "attempts", ATTEMPT_COLUMNS, attempt_row(end, lambda uid: uid.bytes))
        to(connection, "0010")
        found = {row.id: row.marks for row in connection.execute(text("SELECT id, marks FROM usage"))}
    assert found == {row.id.bytes: expected & ~(HEDGED | MISSED) for row, expected in CASES}
    engine.dispose()


def _insert(connection: Any, table: str, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """A row of today in the columns that the table had then."""
    had = {column["name"] for column in inspect(connection).get_columns(table)}
    row = {name: value for name, value in zip(names, values, strict=True) if name in had}
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"), row)
