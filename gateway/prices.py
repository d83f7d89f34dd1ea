"""The price book: what a person sets beside the published prices, dated. The command line and the admin API both call this.

Workers see a change about a second later; a price in the settings file wins over the book. A price may begin in the past: rows keep
what they were billed at until money/reprice.py books the difference. Knows no cost and no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs
from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit, made
from gateway.access import Actor
from gateway.catalog import Backend, Catalog, Price, Tier
from gateway.catalog_build import build
from gateway.db.engine import clock_us, reading
from gateway.db.tables import price_book
from gateway.errors import InvalidRequest, NotFound
from gateway.instants import date_us, instant_us
from gateway.money.book import API, Book, Dated
from gateway.money.pricing import CLASSES, MILLION, read_price, usd
from gateway.people.common import LISTED_MAX, MODEL_MAX, changing, check_text
from gateway.settings import PriceSettings, Settings, TierSettings
from gateway.snapshot import read_prices
from providers.vendors import VENDORS

RATES = (*CLASSES, "per_request")


class NewPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens as decimal strings; per_request in USD. None = billed as the dearer neighbour, never zero.

    batch_discount: the share that a vendor takes off its batches' tokens, "0.5". tiers: see TierSettings. starts: from when it holds,
    also an instant that is past; see `instants.instant_us`; None = now.
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
    input_image: str | None = None
    output_image: str | None = None
    per_request: str | None = None
    batch_discount: str | None = None
    tiers: tuple[TierSettings, ...] = ()
    starts: str | None = None


class TierEntry(Struct, frozen=True, kw_only=True):
    """Rates of requests whose prompt has more than `above` tokens."""

    above: int
    usd: dict[str, str]


class Entry(Struct, frozen=True, kw_only=True):
    """One price of the book. usd: the rates that it names. state: in force | upcoming | superseded | withdrawn. source: seed | api."""

    id: str
    vendor: str
    model: str
    source: str
    state: str
    from_us: int
    usd: dict[str, str]
    batch_discount: str | None
    tiers: tuple[TierEntry, ...]


class Priced(Struct, frozen=True, kw_only=True):
    """What a backend is billed at. price None = unknown, which is not zero. hourly: nano-USD; then the price is not billed."""

    backend: str
    vendor: str
    model: str
    price: Price | None
    hourly: int | None = None


async def set_price(engine: AsyncEngine, new: NewPrice, *, actor: Actor) -> Entry:
    """Add a price; older ones stay in the book for the rows that were billed at them."""
    parsed = _price(new)
    async with changing(engine) as (connection, now_us):
        from_us = now_us if new.starts is None else instant_us(new.starts, now_us, "starts")
        same = price_book.c.vendor == new.vendor, price_book.c.model == new.model
        latest = (await connection.execute(select(func.max(price_book.c.created_at_us)).where(*same))).scalar_one()
        made_us = now_us if latest is None else max(now_us, latest + 1)  # SQLite's clock has milliseconds: the order must be plain
        price = structs.replace(parsed, id=f"{API}:{new.vendor}/{new.model}:{made_us}")
        row = {"id": price.id, "vendor": new.vendor, "model": new.model, "source": API, "from_us": from_us, "created_at_us": made_us}
        await connection.execute(insert(price_book).values(**row, record=msgspec.json.encode(price).decode()))
        after = {name: value for name, value in structs.asdict(new).items() if value not in (None, ())}
        await audit.write(connection, actor, action="price.set", kind="price", ident=price.id, after=after)
    return next(one for one in await list_prices(engine, everything=True) if one.id == price.id)


def _price(new: NewPrice) -> Price:
    if new.vendor not in VENDORS:
        raise InvalidRequest(f"vendor: there is no vendor '{new.vendor}': use {', '.join(sorted(VENDORS))}.", param="vendor")
    if not new.model:
        raise InvalidRequest("model: name the model as the vendor does.", param="model")
    check_text("model", new.model, MODEL_MAX)
    try:
        return read_price(PriceSettings(**{name: getattr(new, name) for name in (*RATES, "batch_discount", "tiers")}))
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param=str(error).partition(":")[0]) from error


async def delete_price(engine: AsyncEngine, price_id: str, *, actor: Actor) -> Entry:
    """Withdraw a price that somebody set: the one before it holds again, and for what is re-rated it never held."""
    async with changing(engine) as (connection, now_us):
        rows = select(price_book).where(price_book.c.id == price_id)
        found = (await connection.execute(rows)).one_or_none() if price_id.isprintable() else None
        if found is None:
            raise NotFound(f"There is no price '{price_id[:200]}': `tollway prices list --all` shows each with its id.", param="id")
        if found.source != API:
            raise InvalidRequest(f"'{price_id}' is a published price: it stays. A price that you set wins over it.", param="id")
        withdrawn = update(price_book).where(price_book.c.id == price_id, price_book.c.withdrawn_at_us.is_(None))
        await connection.execute(withdrawn.values(withdrawn_at_us=now_us))
        before = {"withdrawn": found.withdrawn_at_us is not None}
        await audit.write(connection, actor, action="price.delete", kind="price", ident=price_id, before=before, after={"withdrawn": True})
    return next(one for one in await list_prices(engine, everything=True) if one.id == price_id)


async def list_prices(engine: AsyncEngine, everything: bool = False) -> list[Entry]:
    """What is in force and what is to come; with `everything` what was superseded or withdrawn too."""
    async with reading(engine).connect() as connection:
        now_us = (await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one()
        held = {price.id for price in (await read_prices(connection))[0].values()}
        order = price_book.c.vendor, price_book.c.model, price_book.c.from_us, price_book.c.created_at_us
        rows = (await connection.execute(select(price_book).order_by(*order).limit(LISTED_MAX))).all()
    entries = [_entry(row, now_us, held) for row in rows]
    return [one for one in entries if everything or one.state in ("in force", "upcoming")]


async def read_book(engine: AsyncEngine) -> Book:
    """The book with all its instants, without what was withdrawn."""
    async with reading(engine).connect() as connection:
        rows = (await connection.execute(select(price_book).where(price_book.c.withdrawn_at_us.is_(None)))).all()
    return Book(
        Dated(
            vendor=row.vendor,
            model=row.model,
            source=row.source,
            from_us=row.from_us,
            created_at_us=row.created_at_us,
            price=msgspec.json.decode(row.record, type=Price),
        )
        for row in rows
    )


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    prices: Annotated[list[NewPrice], Meta(min_length=1, max_length=LISTED_MAX)]


def book_of(text: str) -> Book:
    """A book to try out: [[prices]] tables as NewPrice has it; without `starts` a price holds for ever. InvalidRequest names the field."""
    try:
        given = msgspec.toml.decode(text, type=_File).prices
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRequest(f"{str(error).replace('`', chr(39))}.", param="prices") from error
    entries = []
    for number, one in enumerate(given):
        try:
            price = structs.replace(_price(one), id=f"book:{number}")
        except InvalidRequest as error:
            raise InvalidRequest(f"prices[{number}].{error.message}", param=f"prices[{number}].{error.param}") from error
        from_us = 0 if one.starts is None else date_us(one.starts, f"prices[{number}].starts")
        entries.append(Dated(vendor=one.vendor, model=one.model, source=API, from_us=from_us, created_at_us=number, price=price))
    return Book(entries)


async def catalog(engine: AsyncEngine, settings: Settings) -> Catalog:
    """The catalog of the file's settings and of what the API made, with the prices now in force."""
    async with reading(engine).connect() as connection:
        known, _ = await read_prices(connection)
        entries = await made.read(connection)
    return build(made.joined(settings, entries)[0], known)


async def backends(engine: AsyncEngine, settings: Settings) -> Mapping[str, Backend]:
    """Its backends."""
    return (await catalog(engine, settings)).backends


async def of_backends(engine: AsyncEngine, settings: Settings) -> list[Priced]:
    """What each backend of the settings is billed at now."""
    found = (await backends(engine, settings)).values()
    return [Priced(backend=one.name, vendor=one.vendor, model=one.model, price=one.price, hourly=one.hourly_nanousd) for one in found]


def _entry(row: Row[tuple[object, ...]], now_us: int, held: set[str]) -> Entry:
    price = msgspec.json.decode(row.record, type=Price)
    if row.withdrawn_at_us is not None:
        state = "withdrawn"
    else:
        state = "in force" if price.id in held else ("upcoming" if row.from_us > now_us else "superseded")
    return Entry(
        id=row.id,
        vendor=row.vendor,
        model=row.model,
        source=row.source,
        state=state,
        from_us=row.from_us,
        usd=rates_of(price) | ({"per_request": usd(price.per_request)} if price.per_request else {}),
        batch_discount=None if price.batch_discount is None else f"{price.batch_discount / MILLION:g}",
        tiers=tuple(TierEntry(above=tier.above, usd=rates_of(tier)) for tier in price.tiers),
    )


def rates_of(price: Price | Tier) -> dict[str, str]:
    """The classes that a price names, as text of USD per million tokens."""
    named = ((name, getattr(price, name)) for name in CLASSES)
    return {name: usd(rate) for name, rate in named if rate is not None}
