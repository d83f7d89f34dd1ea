"""The tables of what the API makes and what operators ask are there and empty."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from tests.migrations.test_0003_retention import to


def test_nothing_is_made_and_nothing_is_drained(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0010")
        to(connection, "0011")
        for table in ("made_entries", "backend_orders"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0
    engine.dispose()
