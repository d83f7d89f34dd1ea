"""Rows of the third version have no image tokens, were answered at once, and its prices all hold."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from tests.migrations.test_0003_retention import to


def test_the_third_version_is_brought_up(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0003")
        names = "id, started_at_us, ended_at_us, org_id, team_id, key_id, outcome, input_tokens, process_id"
        connection.execute(text(f"INSERT INTO usage ({names}) VALUES (x'01', 1, 2, 1, 1, 1, 'completed', 7, x'02')"))
        connection.execute(text("INSERT INTO price_book VALUES ('p', 'v', 'm', 'seed', '{}', 1, 1)"))
        to(connection, "0004")
        assert connection.execute(text("SELECT input_tokens, input_image_tokens, output_image_tokens, kind FROM usage")).one() == (
            7,
            0,
            0,
            "",
        )
        assert connection.execute(text("SELECT withdrawn_at_us FROM price_book")).scalar_one() is None
    engine.dispose()
