"""Hours of owned hardware: one row per backend and hour, spans that grow in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Connection, create_engine, insert, inspect, select
from sqlalchemy.exc import IntegrityError

from gateway.db.tables import owned_hours, owned_spans
from tests.migrations.test_0003_retention import to


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.connect() as opened:
        to(opened, "0004")
        assert "owned_hours" not in inspect(opened).get_table_names()
        to(opened, "0005")
        yield opened
    engine.dispose()


def test_an_hour_is_open_and_there_once(connection: Connection) -> None:
    connection.execute(insert(owned_hours).values(backend="smol", hour_us=0, check_at_us=5))
    row = connection.execute(select(owned_hours)).one()
    assert (row.owed, row.written, row.vendor) == (None, 0, "")
    with pytest.raises(IntegrityError):
        connection.execute(insert(owned_hours).values(backend="smol", hour_us=0))


def test_a_process_has_one_span_per_beginning(connection: Connection) -> None:
    span = {"process_id": uuid4(), "backend": "smol", "kind": "present", "from_us": 1, "until_us": 2, "machine": "", "rate": 3}
    connection.execute(insert(owned_spans).values(**span))
    connection.execute(insert(owned_spans).values(**span | {"from_us": 5}))
    assert [row.load for row in connection.execute(select(owned_spans))] == [0, 0]
    with pytest.raises(IntegrityError):
        connection.execute(insert(owned_spans).values(**span))
