"""Published prices are seeded once, for what is on the list."""

from __future__ import annotations

from sqlalchemy import select

from gateway.db.tables import price_book
from gateway.price_seed import seed_prices
from gateway.settings import BackendSettings
from tests.conftest import Database


async def test_only_unpriced_models_on_the_list_are_seeded_and_once(database: Database) -> None:
    known = BackendSettings(name="a", vendor="openai", model="gpt-4o-mini")
    others = BackendSettings(name="b", vendor="openai", model="nobody-knows"), BackendSettings(name="c", vendor="scripted", model="m")
    for _ in range(2):
        await seed_prices(database.engine, (known, *others))
    async with database.engine.connect() as connection:
        rows = (await connection.execute(select(price_book.c.vendor, price_book.c.model, price_book.c.source))).all()
    assert [tuple(row) for row in rows] == [("openai", "gpt-4o-mini", "seed")]
