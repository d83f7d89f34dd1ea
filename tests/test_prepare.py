"""The steps before the workers, on real databases: schema, secret, first admin key, prices; and what must stop a start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import create_async_engine

from gateway import people
from gateway.auth import SECRET_FILE
from gateway.catalog import Price
from gateway.child import environment, python
from gateway.db import schema
from gateway.db.engine import make_engine
from gateway.db.tables import HEAD, api_keys, price_book
from gateway.prepare import NotYet, check, prepare
from gateway.published import publish
from gateway.settings import BackendSettings, ConfigError, PriceSettings, QualitySettings, RouteSettings, Settings, Storage

HOSTED = BackendSettings(name="mini", vendor="openai", model="gpt-4o-mini", api_key="env:TEST_KEY")
PRICED = BackendSettings(name="own", vendor="vllm", model="llama", price=PriceSettings(input="0.1", output="0.2"))


@pytest.fixture(autouse=True)
def credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-test-0123456789")


def settings(storage: Storage, *backends: BackendSettings) -> Settings:
    return Settings(storage=storage, backends=backends)


async def test_a_first_start_makes_everything_and_a_second_nothing(tmp_path: Path) -> None:
    mine = settings(Storage(state_dir=str(tmp_path / "state")), HOSTED, PRICED)
    mine.state.mkdir(mode=0o700)
    key = await prepare(mine)
    assert key is not None and key.startswith("tw-")
    assert (mine.state / SECRET_FILE).stat().st_mode & 0o777 == 0o600
    engine = make_engine(mine.storage)
    assert await schema.state(engine) == "current"
    assert [(one.team, one.scopes) for one in await people.list_keys(engine)] == [("default", ("admin",))]
    assert await prepare(mine) is None
    assert len(await people.list_keys(engine)) == 1
    await engine.dispose()


async def test_a_revoked_admin_key_is_replaced(storage: Storage) -> None:
    mine = settings(storage)
    assert await prepare(mine) is not None
    engine = make_engine(storage)
    async with engine.begin() as connection:
        await connection.execute(update(api_keys).values(revoked_at_us=1))
    assert await prepare(mine) is not None
    assert await prepare(mine) is None
    await engine.dispose()


async def test_prices_are_seeded_only_where_none_is_configured(storage: Storage) -> None:
    mine = settings(storage, HOSTED, PRICED, msgspec.structs.replace(HOSTED, name="x", model="no-such-model"))
    await prepare(mine)
    await prepare(mine)
    engine = make_engine(storage)
    async with engine.connect() as connection:
        rows = (await connection.execute(select(price_book))).all()
    await engine.dispose()
    assert [(row.vendor, row.model, row.source) for row in rows] == [("openai", "gpt-4o-mini", "seed")]
    price = msgspec.json.decode(rows[0].record, type=Price)
    assert (price.id, price.input, price.output) == (rows[0].id, 150_000_000, 600_000_000)  # 0.15 and 0.60 USD per million


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        (msgspec.structs.replace(HOSTED, vendor="opnai"), 'backends.mini.vendor: "opnai" is unknown. Did you mean "openai"?'),
        (msgspec.structs.replace(HOSTED, api_key=""), "backends.mini.api_key: the vendor openai needs a key"),
        (
            msgspec.structs.replace(HOSTED, vendor="openai-compatible"),
            "backends.mini.base_url: the vendor openai-compatible has no address",
        ),
        (msgspec.structs.replace(HOSTED, api_key="env:TOLLWAY_NOT_SET"), "TOLLWAY_NOT_SET"),
    ],
)
def test_what_the_settings_ask_for_must_exist(tmp_path: Path, backend: BackendSettings, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(settings(Storage(state_dir=str(tmp_path)), backend))
    assert says in str(caught.value)


async def test_a_newer_database_refuses(storage: Storage) -> None:
    engine = make_engine(storage)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await engine.dispose()
    with pytest.raises(ConfigError, match="newer Tollway"):
        await prepare(settings(storage))


async def test_an_unmigrated_postgres_waits_for_a_person(postgres_url: str, tmp_path: Path) -> None:
    mine = settings(Storage(state_dir=str(tmp_path), database_url=postgres_url))
    with pytest.raises(NotYet, match="run `tollway migrate`"):
        await prepare(mine)
    engine = create_async_engine(postgres_url)
    assert await schema.state(engine) == "empty"
    await engine.dispose()


async def test_a_database_that_is_away_is_not_yet(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match="The database cannot be used"):
        await prepare(settings(Storage(state_dir=str(tmp_path), database_url="postgresql+asyncpg://u:secret@127.0.0.1:9/x")))


async def test_an_older_sqlite_is_upgraded(tmp_path: Path) -> None:
    mine = settings(Storage(state_dir=str(tmp_path)))
    engine = make_engine(mine.storage)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
    assert await schema.state(engine) == "empty"
    await engine.dispose()
    await prepare(mine)
    engine = make_engine(mine.storage)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one() == HEAD
    await engine.dispose()


@pytest.mark.parametrize(
    ("database_url", "backend", "status"),
    [
        ("", PRICED, 0),
        ("postgresql+asyncpg://u:hunter2hunter2@127.0.0.1:9/x", PRICED, 75),
        ("", msgspec.structs.replace(PRICED, vendor="x"), 78),
    ],
)
def test_exit_status_and_one_line(tmp_path: Path, database_url: str, backend: BackendSettings, status: int) -> None:
    mine = settings(Storage(state_dir=str(tmp_path), database_url=database_url), backend)
    command = python("gateway.prepare", "--settings", str(publish(mine, tmp_path)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment())
    assert done.returncode == status, done.stderr
    assert ("First admin key" in done.stdout) is (status == 0)
    assert "Traceback" not in done.stderr and "hunter2" not in done.stderr and "tw-" not in done.stderr


def test_a_quality_model_that_cannot_be_read_is_refused_by_its_route(tmp_path: Path) -> None:
    backends = tuple(BackendSettings(name=name, vendor="scripted", model="m") for name in "ab")
    rule = QualitySettings(weak=("a",), floor=0.9, model=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"routes\.r\.quality\.model: .*none: cannot be read"):
        check(Settings(backends=backends, routes=(RouteSettings(name="r", backends=("a", "b"), quality=rule),)))
