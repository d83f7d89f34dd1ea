"""The price book: dated, a person's word above the published price, and how a price to come begins to hold on every worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, update

from gateway import prices
from gateway.access import COMMAND_LINE
from gateway.auth import Keyring
from gateway.catalog import Price
from gateway.db.tables import price_book
from gateway.errors import InvalidRequest, NotFound
from gateway.money.budgets import BudgetRow
from gateway.money.pricing import CLASSES
from gateway.settings import BackendSettings, PriceSettings, Settings, TierSettings
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
    first = await prices.set_price(
        database.engine, prices.NewPrice(**MINI, input="0.15", output="0.60", per_request="0.001"), actor=COMMAND_LINE
    )
    assert first.usd == {"input": "0.150000000", "output": "0.600000000", "per_request": "0.001000000"}
    await published(database, 2, first.from_us + 1)
    await asyncio.sleep(0.01)
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"] == Price(id=first.id, input=150_000_000, output=600_000_000, per_request=1_000_000)
    assert [(one.id, one.state) for one in await prices.list_prices(database.engine)] == [(first.id, "in force")]
    assert {one.state for one in await prices.list_prices(database.engine, everything=True)} == {"in force", "superseded"}


async def test_a_price_to_come_begins_by_itself(database: Database) -> None:
    now = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="1", output="1"), actor=COMMAND_LINE)
    later = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="2", output="2", starts="1h"), actor=COMMAND_LINE)
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
    await prices.set_price(database.engine, prices.NewPrice(**MINI, input="1", output="1"), actor=COMMAND_LINE)
    own = PriceSettings(input="5", output="6")
    given = [("book", "mini", None), ("file", "mini", own), ("none", "other", None)]
    backends = tuple(BackendSettings(name=name, vendor="openai", model=model, price=price) for name, model, price in given)
    found = {one.backend: one.price for one in await prices.of_backends(database.engine, Settings(backends=backends))}
    assert found["none"] is None
    assert found["book"] is not None and found["book"].input == 10**9
    assert found["file"] is not None and found["file"].input == 5 * 10**9


async def test_every_class_and_tier_is_kept(database: Database) -> None:
    classes = {name: str(number) for number, name in enumerate(CLASSES, 1)}
    tier = TierSettings(above=200_000, **classes)
    made = await prices.set_price(
        database.engine, prices.NewPrice(**MINI, **classes, batch_discount="0.5", tiers=(tier,)), actor=COMMAND_LINE
    )
    assert made.usd == made.tiers[0].usd == {name: f"{rate}.000000000" for name, rate in classes.items()}
    assert (made.batch_discount, made.tiers[0].above) == ("0.5", 200_000)
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    known = snapshot.prices["openai", "mini"]
    assert (known.output_image, known.batch_discount) == (10 * 10**9, 500_000)
    assert (known.tiers[0].input, known.tiers[0].output_image) == (10**9, 10 * 10**9)


async def test_of_two_at_the_same_instant_the_second_holds(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stopped(_: object) -> int:
        return 1_790_000_000_000_000

    monkeypatch.setattr("gateway.people.common.now_us_of", stopped)
    for number in ("1", "2", "3"):
        await prices.set_price(database.engine, prices.NewPrice(**MINI, input=number, output=number), actor=COMMAND_LINE)
    assert [one.usd["input"] for one in await prices.list_prices(database.engine)] == ["3.000000000"]
    assert len(await prices.list_prices(database.engine, everything=True)) == 3


async def test_a_price_may_begin_in_the_past_and_be_withdrawn(database: Database) -> None:
    await published(database, 1, 1)
    now = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="1", output="1"), actor=COMMAND_LINE)
    late = await prices.set_price(database.engine, prices.NewPrice(**MINI, input="2", output="2", starts="2026-01-01"), actor=COMMAND_LINE)
    assert (late.state, late.from_us) == ("superseded", 1767225600_000_000), "what was set for later still holds"
    assert (await prices.delete_price(database.engine, now.id, actor=COMMAND_LINE)).state == "withdrawn"
    states = {one.id: one.state for one in await prices.list_prices(database.engine, everything=True)}
    assert states == {"seed-1": "superseded", now.id: "withdrawn", late.id: "in force"}
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), Taken())
    assert await snapshot.load()
    assert snapshot.prices["openai", "mini"].id == late.id
    await prices.delete_price(database.engine, late.id, actor=COMMAND_LINE)
    assert await snapshot.load(), "a withdrawal moves the version that workers poll"
    assert snapshot.prices["openai", "mini"].id == "seed-1"
    assert [one.id for one in await prices.list_prices(database.engine)] == ["seed-1"]
    with pytest.raises(NotFound):
        await prices.delete_price(database.engine, "api:nothing", actor=COMMAND_LINE)
    with pytest.raises(InvalidRequest, match="published price"):
        await prices.delete_price(database.engine, "seed-1", actor=COMMAND_LINE)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"vendor": "acme"}, "vendor"),
        ({"model": ""}, "model"),
        ({"input": "cheap"}, "input"),
        ({"output": "-1"}, "output"),
        ({"input": "2000000"}, "input"),
        ({"batch_discount": "2"}, "batch_discount"),
        ({"tiers": (TierSettings(above=1, input="1", output="x"),)}, "tiers[0].output"),
        ({"starts": "soon"}, "starts"),
    ],
)
async def test_what_is_no_price_is_refused(database: Database, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        await prices.set_price(database.engine, prices.NewPrice(**(MINI | {"input": "1", "output": "1"} | wrong)), actor=COMMAND_LINE)
    assert told.value.param == param
    assert await prices.list_prices(database.engine) == []
