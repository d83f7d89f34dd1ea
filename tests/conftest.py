"""Fixtures for all tests: a real Postgres and a real Valkey per session, and a migrated database of its own per test."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from msgspec import Struct
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import migrations
from gateway.db.engine import make_engine
from gateway.settings import Storage
from tests.fixtures.services import Postgres, Valkey
from tests.fixtures.used_databases import UsedDatabases

settings.register_profile("tollway", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
settings.load_profile("tollway")

_POSTGRES, _VALKEY = "TEST_POSTGRES_URL", "TEST_VALKEY_URL"
_started: list[Postgres | Valkey] = []


def _start(name: str) -> str:
    """The address of a service, started by whoever asks first in this process tree."""
    if name not in os.environ:
        service = Postgres() if name == _POSTGRES else Valkey()
        _started.append(service)
        os.environ[name] = service.url
    return os.environ[name]


def pytest_configure(config: pytest.Config) -> None:
    distributed = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if distributed:  # the workers inherit the addresses, so the controller must start both before them
        _start(_POSTGRES)
        _start(_VALKEY)


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    while _started:
        _started.pop().stop()
    os.environ.pop(_POSTGRES, None)
    os.environ.pop(_VALKEY, None)


class Database(Struct, frozen=True):
    """A migrated, empty database. `storage` opens it in another process too."""

    name: str  # sqlite | postgresql
    url: str
    storage: Storage
    engine: AsyncEngine


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The maintenance database of the session's Postgres."""
    return _start(_POSTGRES)


@pytest.fixture
def valkey_url(worker_number: int) -> Iterator[str]:
    """An empty Valkey database, one number per xdist worker."""
    import redis

    url = _start(_VALKEY).rsplit("/", 1)[0] + f"/{worker_number}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    yield url


@pytest.fixture(scope="session")
def worker_number() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


async def _administer(url: str, *statements: str) -> None:
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as connection:
            for statement in statements:
                await connection.execute(text(statement))
    finally:
        await engine.dispose()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "template.db"
    migrations.upgrade(f"sqlite+aiosqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str, worker_number: int) -> str:
    """The name of a migrated database to copy."""
    name = f"template_{worker_number}"
    asyncio.run(_administer(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}"))
    migrations.upgrade(make_url(postgres_url).set(database=name))
    return name


_numbers = iter(range(1, 1 << 30))


@pytest.fixture(scope="session")
def used_databases(postgres_url: str, postgres_template: str) -> UsedDatabases:
    return UsedDatabases(postgres_url.replace("+asyncpg", ""), postgres_template)


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Settings of a migrated, empty database: once SQLite, once Postgres. For tests that open it in processes of their own."""
    state = tmp_path / "state"
    state.mkdir()
    if request.param == "sqlite":
        path = state / "tollway.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield Storage(state_dir=str(state), database_url=f"sqlite+aiosqlite:///{path}")
        return
    server: str = request.getfixturevalue("postgres_url")
    if "database" in request.fixturenames:  # held by this process: when the test is over, nobody comes back to it
        used: UsedDatabases = request.getfixturevalue("used_databases")
        name = used.take()
        yield Storage(state_dir=str(state), database_url=make_url(server).set(database=name).render_as_string(hide_password=False))
        used.give(name)
        return
    template: str = request.getfixturevalue("postgres_template")
    name = f"test_{template}_{next(_numbers)}"
    asyncio.run(_administer(server, f"CREATE DATABASE {name} TEMPLATE {template}"))
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    yield Storage(state_dir=str(state), database_url=url)
    asyncio.run(_administer(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def database(storage: Storage) -> AsyncIterator[Database]:
    """The same with an engine on it."""
    engine = make_engine(storage)
    yield Database(engine.dialect.name, storage.database_url, storage, engine)
    await engine.dispose()
