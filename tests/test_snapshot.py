"""The worker's view of keys, budgets and prices: how soon a change is seen, and what holds when the database does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from sqlalchemy import insert, text, update

from gateway import people, snapshot
from gateway.access import COMMAND_LINE
from gateway.auth import Keyring, mint
from gateway.catalog import Price
from gateway.db.engine import make_engine
from gateway.db.tables import budgets, catalog_version, price_book
from gateway.errors import NotReady
from gateway.made import NOTHING, Made
from gateway.money.budgets import BudgetRow
from gateway.settings import Storage
from gateway.snapshot import Snapshot
from tests.conftest import Database
from tests.fixtures.frozen import frozen_port

SECRET = b"s" * 32


class Taken:
    """Receives budgets as Accounts does."""

    def __init__(self) -> None:
        self.rows: list[BudgetRow] = []

    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None:
        self.rows = list(budgets)


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


@asynccontextmanager
async def polling(database: Database, **options: object) -> AsyncIterator[tuple[Snapshot, Keyring, Taken]]:
    ring, taken = Keyring((SECRET,), database.engine), Taken()
    found = Snapshot(database.engine, ring, taken, **options)  # type: ignore[arg-type]
    assert await found.load()
    found.start()
    yield found, ring, taken
    await found.stop()


async def seen_within(seconds: float, condition: object) -> float:
    """Seconds until the condition held; fails after `seconds`."""
    started = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - started < seconds
        await asyncio.sleep(0.01)
    return time.monotonic() - started


async def test_everything_is_loaded_at_once(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    key, _ = await people.add_key(database.engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    await people.set_budget(
        database.engine,
        people.NewBudget(scope_kind="team", scope="alpha", limit_nanousd=7, period="day", timezone="Asia/Shanghai", model="r"),
        actor=COMMAND_LINE,
    )
    gone = await people.set_budget(
        database.engine, people.NewBudget(scope_kind="team", scope="alpha", limit_nanousd=8, period="total"), actor=COMMAND_LINE
    )
    await people.delete_budget(database.engine, gone.id, actor=COMMAND_LINE)
    price = Price(id="p2", input=1, output=2)
    async with database.engine.begin() as connection:
        await connection.execute(update(budgets).values(override_nanousd=9, override_until_us=5))
        for age, record in ((1, Price(id="p1", input=5, output=5)), (2, price)):
            row = {"id": record.id, "vendor": "v", "model": "m", "source": "api", "from_us": age, "created_at_us": age}
            await connection.execute(insert(price_book).values(**row, record=msgspec.json.encode(record).decode()))
    ring, taken, heard = Keyring((SECRET,), database.engine), Taken(), []

    async def hear(prices: snapshot.Prices, made: Made) -> None:
        heard.append((prices, made))

    found = Snapshot(database.engine, ring, taken, on_load=hear)
    assert not found.loaded and found.age_s == float("inf")
    assert await found.load()
    assert found.loaded and found.age_s < 5
    who = ring.find(bearer(key))
    assert who is not None and (who.team, ring.look_ups) == ("alpha", 0)
    assert taken.rows == [
        BudgetRow(
            id=taken.rows[0].id,
            scope_kind="team",
            scope_id=who.team_id,
            scope="alpha",
            period="day",
            limit_nanousd=7,
            model="r",
            timezone="Asia/Shanghai",
            override_nanousd=9,
            override_until_us=5,
        )
    ]
    assert found.prices == {("v", "m"): price} and heard == [(found.prices, NOTHING)]


async def test_nothing_is_loaded_while_nothing_changes(database: Database) -> None:
    ring = Keyring((SECRET,), database.engine)
    found = Snapshot(database.engine, ring, Taken())
    for _ in range(3):
        assert await found.load()
    assert found.reloads == 1
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    assert await found.load()
    assert found.reloads == 2


async def test_g20_a_revocation_is_seen_by_every_worker_within_five_seconds(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    text_, key = await people.add_key(database.engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    async with polling(database) as (_, one, _), polling(database) as (_, two, _):
        assert one.find(bearer(text_)) is not None and two.find(bearer(text_)) is not None
        await people.revoke_key(database.engine, key.public, actor=COMMAND_LINE)
        waited = await seen_within(5.0, lambda: one.find(bearer(text_)) is None and two.find(bearer(text_)) is None)
    assert waited < 5.0  # the promise to whoever revokes a key


async def test_without_a_database_the_old_snapshot_holds_and_the_next_start_waits(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    key, _ = await people.add_key(database.engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    ring = Keyring((SECRET,), database.engine)
    found = Snapshot(database.engine, ring, Taken())
    assert await found.load()
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE catalog_version RENAME TO hidden"))
    assert not await found.load()
    assert found.failures == 1 and found.loaded
    assert ring.find(bearer(key)) is not None
    fresh = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert not await fresh.load()
    assert not fresh.loaded
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE hidden RENAME TO catalog_version"))
    assert await fresh.load() and fresh.loaded


async def test_a_snapshot_that_is_too_old_is_no_longer_trusted(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    key, _ = await people.add_key(database.engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    ring = Keyring((SECRET,), database.engine)
    found = Snapshot(database.engine, ring, Taken(), max_age_s=0.05)
    assert await found.load()
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE api_keys RENAME TO hidden"))
        await connection.execute(update(catalog_version).values(version=catalog_version.c.version + 1))
    await asyncio.sleep(0.1)
    assert not await found.load()
    assert not found.loaded
    assert ring.find(bearer(key)) is None
    with pytest.raises(NotReady):
        await ring.find_slow(bearer(key))
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE hidden RENAME TO api_keys"))
    assert await found.load()
    assert ring.find(bearer(key)) is not None


async def test_a_frozen_database_is_given_up(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "LOAD_S", 0.3)

    async with frozen_port() as port:
        engine = make_engine(Storage(state_dir=str(tmp_path), database_url=f"postgresql+asyncpg://u:p@127.0.0.1:{port}/d"))
        found = Snapshot(engine, Keyring((SECRET,), engine), Taken())
        started = time.monotonic()
        assert not await found.load()
        assert time.monotonic() - started < 20 and found.failures == 1
        await engine.dispose()


async def test_the_poller_outlives_a_row_that_cannot_be_read(database: Database) -> None:
    async with polling(database) as (found, ring, _):
        price = {"id": "p", "vendor": "v", "model": "m", "source": "api", "record": "not json", "from_us": 1, "created_at_us": 1}
        async with database.engine.begin() as connection:
            await connection.execute(insert(price_book).values(**price))
            await connection.execute(update(catalog_version).values(version=catalog_version.c.version + 1))
        await seen_within(3.0, lambda: found.failures > 0)
        assert found.loaded
        async with database.engine.begin() as connection:
            await connection.execute(update(price_book).values(record='{"id": "p", "input": 1, "output": 2}'))
        await seen_within(3.0, lambda: found.prices)
        with pytest.raises(Exception, match="unknown"):
            await ring.find_slow(bearer(mint(SECRET).text))
