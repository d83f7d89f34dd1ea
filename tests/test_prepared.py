"""When a start may skip the preparing process: only when nothing that it depends on has changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.prepared import is_prepared, mark
from gateway.settings import BackendSettings, Settings, Storage


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    """Settings whose state folder was prepared."""
    shutil.copy(sqlite_template, tmp_path / "tollway.db")
    found = Settings(storage=Storage(state_dir=str(tmp_path)))
    mark(found)
    assert is_prepared(found)
    return found


def forget_the_stamp(settings: Settings) -> None:
    (settings.state / "prepared").unlink()


def lose_the_database(settings: Settings) -> None:
    (settings.state / "tollway.db").unlink()


def spoil_the_database(settings: Settings) -> None:
    (settings.state / "tollway.db").write_bytes(b"no database")


def restore_an_older_database(settings: Settings) -> None:
    with closing(sqlite3.connect(settings.state / "tollway.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")


@pytest.mark.parametrize("change", [forget_the_stamp, lose_the_database, spoil_the_database, restore_an_older_database])
def test_a_change_of_the_folder_prepares_again(settings: Settings, change: Callable[[Settings], None]) -> None:
    change(settings)
    assert not is_prepared(settings)


def test_a_change_of_the_settings_prepares_again(settings: Settings) -> None:
    assert not is_prepared(replace(settings, backends=(BackendSettings(name="x", vendor="openai", model="m"),)))


def test_nothing_was_prepared_in_an_empty_folder(tmp_path: Path) -> None:
    assert not is_prepared(Settings(storage=Storage(state_dir=str(tmp_path / "none"))))


def test_another_database_is_always_checked(settings: Settings) -> None:
    elsewhere = replace(settings, storage=replace(settings.storage, database_url="postgresql+asyncpg://h/x"))
    mark(elsewhere)
    assert not is_prepared(elsewhere)
