"""Teams and keys that were there ask for no labels."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from gateway.labels import stored
from tests.migrations.test_0003_retention import to


def test_who_was_there_asks_for_nothing(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0007")
        connection.execute(text("INSERT INTO organisations (name, created_at_us) VALUES ('default', 1)"))
        connection.execute(text("INSERT INTO teams (org_id, name, salt, created_at_us) VALUES (1, 'a', 's', 1)"))
        connection.execute(text("INSERT INTO api_keys (team_id, public, digest, scopes, created_at_us) VALUES (1, 'p', x'00', 'admin', 1)"))
        to(connection, "0008")
        kept = connection.execute(text("SELECT teams.labels, api_keys.labels FROM teams, api_keys")).one()
        assert stored(*kept) == ()
    engine.dispose()
