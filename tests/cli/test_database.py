"""What the database commands share: the first command makes the embedded database, tables align, errors are one line."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.database import instant, table
from tests.cli.conftest import Tollway


def test_the_first_command_makes_the_embedded_database(bare: Tollway, tmp_path: Path) -> None:
    said = bare("teams", "add", "search")
    assert (said.status, said.err) == (0, "")
    assert stat.S_IMODE((tmp_path / ".tollway").stat().st_mode) == 0o700
    assert bare("teams", "list").lines[1].split()[0] == "search"


def test_a_settings_file_is_read_where_it_says(bare: Tollway, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[storage]\nstate_dir = "elsewhere"\n')
    assert bare("--config", "other.toml", "teams", "add", "search").status == 0
    assert (tmp_path / "elsewhere" / "tollway.db").exists()
    (tmp_path / "other.toml").write_text('[storage]\ndatabase_url = "mysql://x/y"\n')
    refused = bare("--config", "other.toml", "teams", "list")
    assert refused.status == 78 and "mysql" in refused.err and refused.err.count("\n") == 1


def test_a_database_of_a_newer_program_is_not_touched(bare: Tollway, tmp_path: Path) -> None:
    bare("teams", "add", "search")
    connection = sqlite3.connect(tmp_path / ".tollway" / "tollway.db")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    refused = bare("teams", "add", "ads")
    assert refused.status == 78 and "newer" in refused.err


def test_a_file_that_is_no_database_is_one_line(bare: Tollway, tmp_path: Path) -> None:
    (tmp_path / ".tollway").mkdir()
    (tmp_path / ".tollway" / "tollway.db").write_bytes(b"not a database" * 1000)
    refused = bare("teams", "list")
    assert refused.status == 1 and "not a database" in refused.err and refused.err.count("\n") == 1


@given(st.lists(st.tuples(st.text("ab c", min_size=1, max_size=9), st.integers(0, 10**12)), max_size=5))
def test_columns_align(rows: list[tuple[str, int]]) -> None:
    lines = table(("name", "cost"), rows).split("\n")
    assert len(lines) == len(rows) + 1
    assert all(len(line) == len(lines[0]) for line in lines) or not rows
    for line, (name, cost) in zip(lines[1:], rows, strict=True):
        assert line.startswith(name) and line.endswith(str(cost))


@pytest.mark.parametrize(("at_us", "text"), [(0, "1970-01-01T00:00:00Z"), (1_796_023_298_400_000, "2026-11-30T07:21:38Z"), (None, "-")])
def test_instants_are_utc_and_whole_seconds(at_us: int | None, text: str) -> None:
    assert instant(at_us) == text
