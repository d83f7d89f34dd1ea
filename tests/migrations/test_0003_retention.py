"""A database of the second version learns that nothing was pruned yet."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from sqlalchemy import Connection, create_engine, text

import migrations


def to(connection: Connection, revision: str) -> None:
    configuration = migrations.configuration()
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, revision)


def test_the_second_version_is_brought_up(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0002")
        connection.execute(text("INSERT INTO organisations (name, created_at_us) VALUES ('default', 1)"))
        to(connection, "0003")
        assert connection.execute(text("SELECT id, pruned_until_us FROM retention")).one() == (1, 0)
        assert connection.execute(text("SELECT name FROM organisations")).scalar_one() == "default"
    engine.dispose()
