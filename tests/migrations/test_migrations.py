"""Bringing databases up to date: from nothing, again, several at once, and what happens to one that a newer program made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.util import CommandError
from sqlalchemy import URL, make_url, text

import migrations
from gateway.db import tables
from gateway.db.engine import make_engine
from gateway.settings import Storage
from tests.conftest import _administer

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:  # type: ignore[misc]
    """The address of a database without a table."""
    if request.param == "sqlite":
        yield make_url(f"sqlite+aiosqlite:///{tmp_path / 'new.db'}")
        return
    server: str = request.getfixturevalue("postgres_url")
    name = f"empty_{os.getpid()}_{tmp_path.name}".lower().replace("-", "_")
    await _administer(server, f"CREATE DATABASE {name}")
    yield make_url(server).set(database=name)
    await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


async def value(url: URL, statement: str) -> object:
    engine = make_engine(Storage(database_url=url.render_as_string(hide_password=False)))
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        await engine.dispose()


def run(url: URL | None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    if url is not None:
        environ["DATABASE_URL"] = url.render_as_string(hide_password=False)
    return subprocess.run(
        [sys.executable, "-m", "migrations"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_program_is_made_for_the_newest_script() -> None:
    assert migrations.head() == tables.HEAD


async def test_an_empty_database_gets_the_schema_and_keeps_its_rows_the_second_time(empty: URL) -> None:
    await migrations.upgrade_async(empty)
    assert await value(empty, "SELECT version_num FROM alembic_version") == tables.HEAD
    assert await value(empty, "SELECT version FROM catalog_version") == 1
    await value(empty, "UPDATE catalog_version SET version = 7")
    await migrations.upgrade_async(empty)
    assert await value(empty, "SELECT version FROM catalog_version") == 7


def test_several_at_once_make_it_once(empty: URL) -> None:
    environ = {**os.environ, "DATABASE_URL": empty.render_as_string(hide_password=False)}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "migrations"], cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    assert {out.strip() for out, _ in said} == {tables.HEAD}


async def test_a_database_of_a_newer_program_is_left_alone(empty: URL) -> None:
    await migrations.upgrade_async(empty)
    await value(empty, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(CommandError, match="9999"):
        await migrations.upgrade_async(empty)
    assert await value(empty, "SELECT version_num FROM alembic_version") == "9999"


async def test_a_migration_that_fails_leaves_nothing_behind(empty: URL) -> None:
    await value(empty, "CREATE TABLE price_book (x INTEGER)")  # stands in the way of the last but one table
    failed = run(empty)
    assert failed.returncode == 1 and "price_book" in failed.stderr and "Traceback" not in failed.stderr
    await value(empty, "DROP TABLE price_book")
    await migrations.upgrade_async(empty)
    assert await value(empty, "SELECT version_num FROM alembic_version") == tables.HEAD


def test_without_an_address_it_says_so() -> None:
    failed = run(None)
    assert failed.returncode == 1 and "DATABASE_URL" in failed.stderr
