"""The price book: what a person sets beside the published prices, dated. The command line and the admin API both call this.

Workers see a change about a second later; a price in the settings file wins over the book. Knows no cost and no HTTP.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs
from sqlalchemy import Row, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.catalog import Price
from gateway.catalog_build import build
from gateway.db.engine import clock_us, reading
from gateway.db.tables import price_book
from gateway.errors import InvalidRequest
from gateway.money.pricing import parse_price, usd
from gateway.people import LISTED_MAX, changing, instant_us
from gateway.settings import PriceSettings, Settings
from gateway.snapshot import read_prices
from providers.vendors import VENDORS

API = "api"
RATES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning", "input_audio", "output_audio", "per_request")
MODEL_MAX = 200


class NewPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens as decimal strings; per_request in USD. None = billed as the dearer neighbour, never zero.

    starts: from when it holds; see `people.instant_us`; None = now.
    """

    vendor: str
    model: str
    input: str
    output: str
    cache_read: str | None = None
    cache_write_5m: str | None = None
    cache_write_1h: str | None = None
    reasoning: str | None = None
    input_audio: str | None = None
    output_audio: str | None = None
    per_request: str | None = None
    starts: str | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One price of the book. usd: the rates that it names. state: in force | upcoming | superseded. source: seed | api."""

    id: str
    vendor: str
    model: str
    source: str
    state: str
    from_us: int
    usd: dict[str, str]
    tiers: int


class Priced(Struct, frozen=True, kw_only=True):
    """What a backend is billed at. price None = unknown, which is not zero."""

    backend: str
    vendor: str
    model: str
    price: Price | None


async def set_price(engine: AsyncEngine, new: NewPrice) -> Entry:
    """Add a price; older ones stay in the book for the rows that were billed at them."""
    if new.vendor not in VENDORS:
        raise InvalidRequest(f"There is no vendor '{new.vendor}': use {', '.join(sorted(VENDORS))}.", param="vendor")
    if not 0 < len(new.model) <= MODEL_MAX:
        raise InvalidRequest("model: name the model as the vendor does.", param="model")
    try:
        parsed = parse_price(PriceSettings(**{name: getattr(new, name) for name in RATES}), new.model)
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param="price") from error
    async with changing(engine) as (connection, now_us):
        from_us = now_us if new.starts is None else instant_us(new.starts, now_us)
        if from_us < now_us:
            raise InvalidRequest(f"'{new.starts}' is past: what was billed stays billed. Leave it out for now.", param="starts")
        price = structs.replace(parsed, id=f"{API}:{new.vendor}/{new.model}:{now_us}")
        row = {"id": price.id, "vendor": new.vendor, "model": new.model, "source": API, "from_us": from_us, "created_at_us": now_us}
        await connection.execute(insert(price_book).values(**row, record=msgspec.json.encode(price).decode()))
    return next(one for one in await list_prices(engine, everything=True) if one.id == price.id)


async def list_prices(engine: AsyncEngine, everything: bool = False) -> list[Entry]:
    """What is in force and what is to come; with `everything` what was superseded too."""
    async with reading(engine).connect() as connection:
        now_us = (await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one()
        held = {price.id for price in (await read_prices(connection))[0].values()}
        order = price_book.c.vendor, price_book.c.model, price_book.c.from_us, price_book.c.created_at_us
        rows = (await connection.execute(select(price_book).order_by(*order).limit(LISTED_MAX))).all()
    entries = [_entry(row, now_us, held) for row in rows]
    return [one for one in entries if everything or one.state != "superseded"]


async def of_backends(engine: AsyncEngine, settings: Settings) -> list[Priced]:
    """What each backend of the settings is billed at now."""
    async with reading(engine).connect() as connection:
        known, _ = await read_prices(connection)
    backends = build(settings, known).backends.values()
    return [Priced(backend=one.name, vendor=one.vendor, model=one.model, price=one.price) for one in backends]


def _entry(row: Row[tuple[object, ...]], now_us: int, held: set[str]) -> Entry:
    price = msgspec.json.decode(row.record, type=Price)
    state = "in force" if price.id in held else ("upcoming" if row.from_us > now_us else "superseded")
    rates = {name: getattr(price, name) for name in RATES}
    return Entry(
        id=row.id,
        vendor=row.vendor,
        model=row.model,
        source=row.source,
        state=state,
        from_us=row.from_us,
        usd={name: usd(rate) for name, rate in rates.items() if rate is not None and (rate or name != "per_request")},
        tiers=len(price.tiers),
    )
