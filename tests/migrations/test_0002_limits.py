"""A database of the first version gets the table of rate limits and keeps what it has."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from sqlalchemy import Connection, create_engine, inspect, text

import migrations


def to(connection: Connection, revision: str) -> None:
    configuration = migrations.configuration()
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, revision)


def test_the_first_version_is_brought_up(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0001")
        assert "limits" not in inspect(connection).get_table_names()
        connection.execute(text("INSERT INTO organisations (name, created_at_us) VALUES ('default', 1)"))
        to(connection, "0002")
        assert "limits" in inspect(connection).get_table_names()
        assert connection.execute(text("SELECT name FROM organisations")).scalar_one() == "default"
    engine.dispose()
