"""The `tollway` command as a user calls it, on a database of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import cli
from gateway.db.engine import make_engine
from gateway.settings import Storage


class Said(Struct, frozen=True):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Tollway(Protocol):
    def __call__(self, *words: str) -> Said: ...


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tollway:
    """The command in an empty folder, without any settings."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["tollway", *words])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    return call


@pytest.fixture
def tollway(bare: Tollway, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tollway]:
    """The command on a migrated database, once SQLite, once Postgres."""
    monkeypatch.setenv("TOLLWAY_STORAGE__DATABASE_URL", storage.database_url)
    monkeypatch.setenv("TOLLWAY_STORAGE__STATE_DIR", storage.state_dir)
    yield bare


@pytest.fixture
def on_database(storage: Storage) -> Callable[[Callable[[AsyncEngine], Awaitable[Any]]], Any]:
    """Run something on the same database."""

    def run(work: Callable[[AsyncEngine], Awaitable[Any]]) -> Any:
        async def with_engine() -> Any:
            engine = make_engine(storage)
            try:
                return await work(engine)
            finally:
                await engine.dispose()

        return asyncio.run(with_engine())

    return run
