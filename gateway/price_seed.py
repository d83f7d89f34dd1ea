"""Published prices into the price book, for backends that configure none. Knows the list that a package brings, and no network."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.tables import price_book
from gateway.money.pricing import seed_price
from gateway.settings import BackendSettings
from providers.vendors import VENDORS

log = structlog.get_logger("tollway.price_seed")


async def seed_prices(engine: AsyncEngine, backends: Sequence[BackendSettings]) -> None:
    """Once per version of the price data. A backend whose model is not on the list is logged."""
    version = importlib.metadata.version("genai-prices")
    now = datetime.now(UTC)
    unpriced = [one for one in backends if one.price is None and one.hourly_usd is None and one.vendor not in ("local", "scripted")]
    wanted = {(one.vendor, one.model): one for one in unpriced}
    async with engine.begin() as connection:
        known = set((await connection.execute(select(price_book.c.id))).scalars())
        for (vendor, model), backend in wanted.items():
            row_id = f"genai-prices:{version}:{vendor}/{model}"
            if row_id in known:
                continue
            listed = VENDORS[vendor].prices
            found = seed_price(listed, backend.known_as or model, now) if listed else None
            if found is None:
                message = "no published price: requests to this backend are unpriced until you set backends.price"
                log.warning(message, backend=backend.name, model=model)
                continue
            record = msgspec.json.encode(msgspec.structs.replace(found, id=row_id)).decode()
            at = int(now.timestamp() * 1e6)
            row = {"id": row_id, "vendor": vendor, "model": model, "source": "seed", "record": record, "from_us": at, "created_at_us": at}
            await connection.execute(insert(price_book).values(**row))
