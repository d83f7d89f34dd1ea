"""Keys that were there are neither blocked nor anybody's own."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from tests.migrations.test_0003_retention import to


def test_keys_that_were_there_work_on(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0008")
        connection.execute(text("INSERT INTO organisations (name, created_at_us) VALUES ('default', 1)"))
        connection.execute(text("INSERT INTO teams (org_id, name, salt, created_at_us) VALUES (1, 'a', 's', 1)"))
        connection.execute(text("INSERT INTO api_keys (team_id, public, digest, scopes, created_at_us) VALUES (1, 'p', x'00', 'admin', 1)"))
        to(connection, "0009")
        assert connection.execute(text("SELECT public, blocked_at_us, member_id FROM api_keys")).one() == ("p", None, None)
    engine.dispose()
