"""`tollway migrate`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import make_url

from gateway.db.tables import HEAD
from tests.cli.conftest import Tollway
from tests.conftest import _administer


@pytest.fixture
async def empty_postgres(postgres_url: str, tmp_path: Path) -> object:
    name = f"cli_{os.getpid()}_{abs(hash(tmp_path))}"
    await _administer(postgres_url, f"CREATE DATABASE {name}")
    yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    await _administer(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def test_postgres_is_migrated_when_a_person_says_so(bare: Tollway, empty_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLWAY_STORAGE__DATABASE_URL", empty_postgres)
    before = bare("teams", "list")
    assert before.status == 78 and "tollway migrate" in before.err
    done = bare("migrate")
    assert done.status == 0 and done.out.strip().endswith(f"schema {HEAD}")
    assert bare("migrate").status == 0
    assert bare("teams", "list").status == 0


def test_a_password_is_not_shown(bare: Tollway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLWAY_STORAGE__DATABASE_URL", "postgresql+asyncpg://me:hunter2@127.0.0.1:1/none")
    for words in (("migrate",), ("teams", "list")):
        failed = bare(*words)
        assert failed.status in (1, 78) and "127.0.0.1:1" in failed.err
        assert "hunter2" not in failed.err + failed.out
        assert "Traceback" not in failed.err
