"""The price book: dated, a person's word above the published price, and how a price to come begins to hold on every worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
import pytest
from sqlalchemy import insert, update

from gateway import prices
from gateway.auth import Keyring
from gateway.catalog import Price
from gateway.db.tables import price_book
from gateway.errors import InvalidRequest
from gateway.money.budgets import BudgetRow
from gateway.settings import BackendSettings, PriceSettings, Settings
from gateway.snapshot import Snapshot
from tests.conftest import Database

SECRET = b"s" * 32
MINI = {"vendor": "openai", "model": "mini"}


class Taken:
    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None:
        """Not looked at here."""


async def published(database: Database, number: int, from_us: int) -> None:
    record = msgspec.json.encode(Price(id=f"seed-{number}", input=number, output=number)).decode()
    row = {"id": f"seed-{number}", **MINI, "source": "seed", "record": record, "from_us": from_us, "created_at_us": from_us}
    async with database.engine.begin() as connection:
        await connection.execute(insert(price_book).values(**row))


async def test_what_a_person_sets_wins_over_a_newer_published_price(database: Database) -> None:
    await published(database, 1, 1)
    first = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="0.15", output="0.60", per_request="0.001"))
    assert first.usd == {"input": "0.150000000", "output": "0.600000000", "per_request": "0.001000000"}
    await published(database, 2, first.from_us + 1)
    await asyncio.sleep(0.01)
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"] == Price(id=first.id, input=150_000_000, output=600_000_000, per_request=1_000_000)
    assert [(one.id, one.state) for one in await prices.list_prices(database.engine)] == [(first.id, "in force")]
    assert {one.state for one in await prices.list_prices(database.engine, everything=True)} == {"in force", "superseded"}


async def test_a_price_to_come_begins_by_itself(database: Database) -> None:
    now = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="1", output="1"))
    later = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="2", output="2", starts="1h"))
    assert later.state == "upcoming" and later.from_us - now.from_us > 3_500_000_000
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"].id == now.id
    async with database.engine.begin() as connection:  # half a second instead of an hour; no version moves
        soon = time.time_ns() // 1000 + 500_000
        await connection.execute(update(price_book).where(price_book.c.id == later.id).values(from_us=soon))
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"].id == now.id
    await asyncio.sleep(0.6)
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"].id == later.id
    assert await snapshot.load() and snapshot.reloads == 2


async def test_backends_and_what_they_are_billed_at(database: Database) -> None:
    await prices.set_price(database.engine, prices.NewPrice(**MINI, input="1", output="1"))
    own = PriceSettings(input="5", output="6")
    given = [("book", "mini", None), ("file", "mini", own), ("none", "other", None)]
    backends = tuple(BackendSettings(name=name, vendor="openai", model=model, price=price) for name, model, price in given)
    found = {one.backend: one.price for one in await prices.of_backends(database.engine, Settings(backends=backends))}
    assert found["none"] is None
    assert found["book"] is not None and found["book"].input == 10**9
    assert found["file"] is not None and found["file"].input == 5 * 10**9


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"vendor": "acme"}, "vendor"),
        ({"model": ""}, "model"),
        ({"input": "cheap"}, "price"),
        ({"output": "-1"}, "price"),
        ({"input": "2000000"}, "price"),
        ({"starts": "2020-01-01"}, "starts"),
        ({"starts": "soon"}, "expires"),
    ],
)
async def test_what_is_no_price_is_refused(database: Database, wrong: dict[str, str], param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        await prices.set_price(database.engine, prices.NewPrice(**(MINI | {"input": "1", "output": "1"} | wrong)))
    assert told.value.param == param
    assert await prices.list_prices(database.engine) == []
