"""Late prices: the difference is booked beside the rows, exactly, once, and every invariant holds at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.catalog import Price
from gateway.db.session import open_session
from gateway.money import reprice as module
from gateway.money.audit import audit
from gateway.money.book import API, Book, Dated
from gateway.money.corrections import resolve
from gateway.money.leases import Ask
from gateway.money.ledger import charges_of
from gateway.money.pricing import cost
from gateway.money.rebuild import rebuild
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.money.reprice import Found, Rater, reprice
from gateway.money.retention import export
from gateway.money.sync import Payload, make_window, register, sync
from gateway.money.windows import bounds
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record
from tests.fixtures.money import add_budget
from tests.money.test_audit import DAY, PROCESS, START

SPAN = DAY // 8  # in which the requests began

OLD = {name: Price(id=f"api:{name}", input=10**9, output=number * 10**9) for number, name in enumerate("ab", 2)}
NEW = {
    "a": Price(id="api:new a", input=3 * 10**9, output=10**9, per_request=7),
    "b": OLD["b"],
    "c": Price(id="api:c", input=5, output=10**9),
}


def book_of(prices: dict[str, Price], from_us: int = 0) -> Book:
    return Book(
        Dated(vendor=f"vendor of {name}", model=f"model of {name}", source=API, from_us=from_us, created_at_us=0, price=price)
        for name, price in prices.items()
    )


NEW_BOOK = book_of(NEW)
Books = list[dict[str, Price]]


def billed(end: AttemptEnd, prices: dict[str, Price], kind: str = "") -> AttemptEnd:
    price = prices.get(end.backend)
    return structs.replace(end, price_id="" if price is None else price.id, cost=cost(price, end.usage, kind))


def rated(record: UsageRecord, prices: dict[str, Price]) -> UsageRecord:
    """The same request billed at these prices."""
    ends = tuple(billed(end, prices, record.kind) for end in record.attempts)
    costs = [end.cost for end in ends]
    return structs.replace(record, attempts=ends, cost=None if None in costs else sum(one or 0 for one in costs))


async def filled(engine: AsyncEngine, rows: Iterable[UsageRecord]) -> list[UsageRecord]:
    """These rows, those of team 1 charged to its budget."""
    await add_budget(engine, limit=10**15)
    session = open_session(engine)
    try:
        sql = session.dialect
        window = await session.run(make_window(sql, 1, *bounds("month", "UTC", START)))
        made = [structs.replace(one, charges=(window,) if one.team_id == 1 else ()) for one in rows]
        await session.run(register(sql, PROCESS, "host", "boot", "folder"))
        asks = tuple(Ask(window_id=one, want=amount) for one, amount in sorted(charges_of(made).items()))
        await session.run(sync(sql, Payload(process=PROCESS, seq=0, rows=tuple(made), asks=asks)))
        return made
    finally:
        await session.close()


def everything() -> list[UsageRecord]:
    return [rated(one, OLD) for one in mixed(60, START, START + SPAN)]


async def scalar(database: Database, sql: str) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(text(sql))).scalar_one())


async def spent(database: Database) -> int:
    return await scalar(database, "SELECT spent FROM budget_windows WHERE id = 1")


def should_cost(rows: Iterable[UsageRecord], prices: dict[str, Price]) -> int:
    return sum((one if one.outcome == "unknown" else rated(one, prices)).cost or 0 for one in rows)


async def run(database: Database, rater: Rater | None = None, since: int = START, until: int = START + SPAN, **more: Any) -> Found:
    return await reprice(database.engine, rater or Rater(book=NEW_BOOK), since, until, **({"book": True} | more))


async def test_the_difference_is_booked_once(database: Database) -> None:
    rows = await filled(database.engine, everything())
    before = await spent(database)
    found = await run(database)
    wanted = should_cost(rows, NEW)
    assert found.rows == len(rows) and 0 < found.changed < len(rows)
    assert sum(line.after for line in found.lines) == wanted
    assert sum(line.before for line in found.lines) == should_cost(rows, OLD)
    assert await scalar(database, "SELECT CAST(sum(cost) AS BIGINT) FROM rollups") == wanted
    ours = [one for one in rows if one.team_id == 1]
    assert await spent(database) == should_cost(ours, NEW) != before
    assert (await audit(database.engine)).broken == []
    exported = [msgspec.json.decode(line) async for text in export(database.engine, "jsonl", 0, 1 << 62) for line in text.splitlines()]
    assert sum((row["cost_nanousd"] or 0) + row["adjusted_nanousd"] for row in exported) == wanted
    again = await run(database)
    assert again.changed == 0 and [line.before for line in again.lines] == [line.after for line in found.lines]
    assert await spent(database) == should_cost(ours, NEW)
    await rebuild(database.engine)
    assert (await audit(database.engine)).broken == []


async def test_what_had_no_price_has_one(database: Database) -> None:
    rows = await filled(database.engine, everything())
    without = sum(one.cost is None for one in rows)
    assert await scalar(database, "SELECT CAST(sum(unpriced) AS BIGINT) FROM rollups") == without > 0
    found = await run(database, Rater(book=book_of({"c": NEW["c"]})))
    assert found.changed == without == sum(line.unpriced_before for line in found.lines)
    assert sum(line.unpriced_after for line in found.lines) == 0
    assert await scalar(database, "SELECT CAST(sum(unpriced) AS BIGINT) FROM rollups") == 0
    assert await scalar(database, "SELECT count(*) FROM usage WHERE cost IS NULL") == without, "rows are never edited"
    assert (await audit(database.engine)).broken == []
    await rebuild(database.engine)
    assert await scalar(database, "SELECT CAST(sum(unpriced) AS BIGINT) FROM rollups") == 0
    assert (await audit(database.engine)).broken == []


async def test_a_price_of_zero_is_a_price(database: Database) -> None:
    rows = await filled(database.engine, [rated(record(START, [("c", "completed", None)]), {})])
    free = Rater(book=book_of({"c": Price(id="api:free", input=0, output=0)}))
    assert (await run(database, free)).changed == 1
    assert (await run(database, free)).changed == 0
    assert rows[0].cost is None and await scalar(database, "SELECT CAST(sum(unpriced) AS BIGINT) FROM rollups") == 0
    assert (await audit(database.engine)).broken == []


async def test_a_request_of_which_a_part_has_no_price_stays_without(database: Database) -> None:
    both = rated(record(START, [("a", "failed", 1), ("c", "completed", None)], team_id=1), OLD)
    await filled(database.engine, [both])
    assert both.cost is None and both.attempts[0].cost
    found = await run(database, Rater(book=book_of({"a": NEW["a"]})))
    assert (found.changed, found.lines[0].unpriced_after) == (0, 1)
    found = await run(database, Rater(book=book_of({"c": NEW["c"]})))
    assert found.lines[0].after == await spent(database) == should_cost([both], {"a": OLD["a"], "c": NEW["c"]})
    found = await run(database)
    assert found.lines[0].after == await spent(database) == should_cost([both], NEW)
    assert (await audit(database.engine)).broken == []


async def test_prices_go_there_and_back(database: Database) -> None:
    rows = await filled(database.engine, [one for one in everything() if one.cost is not None])
    for prices in (NEW, OLD, NEW):
        await run(database, Rater(book=book_of(prices)))
        assert await spent(database) == should_cost((one for one in rows if one.team_id == 1), prices)
        assert (await audit(database.engine)).broken == []


async def test_only_the_period_and_from_when_the_price_holds(database: Database) -> None:
    rows = await filled(database.engine, everything())
    noon = START + SPAN // 2
    await run(database, since=START + SPAN // 4, until=START + SPAN // 4)
    assert await scalar(database, "SELECT count(*) FROM adjustments WHERE reason = 'reprice'") == 0
    found = await run(database, Rater(book=book_of(NEW, noon)), until=noon + SPAN // 4)
    within = [one for one in rows if noon <= one.started_at_us < noon + SPAN // 4]
    assert found.rows == len([one for one in rows if one.started_at_us < noon + SPAN // 4])
    total = await scalar(database, "SELECT CAST(sum(cost) AS BIGINT) FROM rollups")
    assert total == should_cost(rows, OLD) - should_cost(within, OLD) + should_cost(within, NEW)


async def test_to_try_it_writes_nothing(database: Database) -> None:
    rows = await filled(database.engine, everything())
    found = await run(database, book=False)
    assert sum(line.after for line in found.lines) == should_cost(rows, NEW)
    assert await scalar(database, "SELECT count(*) FROM adjustments WHERE reason = 'reprice'") == 0
    assert (await audit(database.engine)).broken == []


async def test_unknown_ends_stay(database: Database) -> None:
    rows = await filled(database.engine, [rated(record(START, [("a", "unknown", 1)], outcome="unknown", team_id=1), OLD)])
    found = await run(database)
    assert (found.unknown, found.changed) == (1, 0)
    await resolve(database.engine, rows[0].id, 77)
    assert (await run(database)).lines[0].after == 77 == await spent(database)


async def test_whose_price_was_in_the_settings(database: Database) -> None:
    """They stay, for those have no date; named by their backend they are rated; owned hardware is never rated by tokens."""
    settled = {"a": structs.replace(OLD["a"], id="config:a:1"), "b": structs.replace(OLD["b"], id="hourly:b:1")}
    rows = await filled(database.engine, [rated(record(START, [(name, "completed", 1)], team_id=1), settled) for name in "ab"])
    assert (await run(database)).changed == 0
    now = Price(id="config:a:2", input=9 * 10**9, output=0)
    assert (await run(database, Rater(book=NEW_BOOK, backend="a", settled=now))).changed == 1
    assert await spent(database) == should_cost(rows, {"a": now, "b": OLD["b"]})
    assert (await run(database, Rater(book=NEW_BOOK, backend="b"))).changed == 0
    tried = await run(database, Rater(book=NEW_BOOK, whatever=True), book=False)
    assert sum(line.after for line in tried.lines) == should_cost(rows, NEW)
    assert (await audit(database.engine)).broken == []


async def test_refused_attempts_pay_no_fee_and_batches_keep_their_discount(database: Database) -> None:
    refused = record(START, [("a", "failed", 0)], outcome="failed", team_id=1)
    refused = structs.replace(refused, attempts=(structs.replace(refused.attempts[0], usage=type(refused.usage)(), price_id="api:a"),))
    half = {"a": structs.replace(NEW["a"], batch_discount=500_000)}
    batch = rated(record(START, [("a", "completed", 1)], team_id=1, kind="batch"), OLD)
    await filled(database.engine, [refused, batch])
    await run(database, Rater(book=book_of(half)))
    whole = cost(NEW["a"], batch.usage)
    assert whole is not None and await spent(database) == cost(half["a"], batch.usage, "batch") < whole


RATES = st.integers(0, 10**10)
BOOKS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.builds(Price, id=st.just("api:x"), input=RATES, output=RATES), max_size=3), max_size=5
)


@settings(max_examples=200, deadline=None)
@given(BOOKS, st.lists(st.sampled_from("abc"), min_size=1, max_size=3), BOOKS)
def test_whatever_books_come_the_last_price_of_each_attempt_counts(first: Books, backends: list[str], books: Books) -> None:
    """And never a figure from a part of the prices: a row has none while one of its attempts has none."""
    known = dict(first[0]) if first else {}
    one = rated(record(START, [(name, "completed", 1) for name in backends]), known)
    booked: dict[UUID, int] = {}
    for prices in books:
        rater = Rater(book=book_of(prices))
        deltas = module._deltas(rater, one, booked)
        booked |= {name: delta for _, name, delta in deltas}
        assert module._deltas(rater, one, booked) == [], "twice is once"
        if one.cost is not None or booked or all(name in known or name in prices for name in backends):
            known |= prices
        figure = module._figure(one, booked)
        if all(name in known for name in backends):
            assert figure == sum(cost(known[end.backend], end.usage) or 0 for end in one.attempts)
        else:
            assert figure is None and not booked


async def test_killed_anywhere_and_run_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 9)
    rows = await filled(database.engine, everything())
    ours = [one for one in rows if one.team_id == 1]
    whole = module._run
    pages = 0

    async def dies(*given: Any) -> Any:
        nonlocal pages
        pages += 1
        if pages == 4:
            raise KeyboardInterrupt
        return await whole(*given)

    monkeypatch.setattr(module, "_run", dies)
    with pytest.raises(KeyboardInterrupt):
        await run(database)
    assert should_cost(ours, OLD) != await spent(database) != should_cost(ours, NEW), "it stopped half-way"
    assert (await audit(database.engine)).broken == []
    found = await run(database)
    assert found.rows == len(rows) and await spent(database) == should_cost(ours, NEW)
    assert (await audit(database.engine)).broken == []


async def test_two_at_once_book_it_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 11)
    rows = await filled(database.engine, everything())
    await asyncio.gather(run(database), run(database))
    assert await spent(database) == should_cost((one for one in rows if one.team_id == 1), NEW)
    assert await scalar(database, "SELECT count(*) FROM adjustments WHERE reason = 'reprice'") == await booked_once(database)
    assert (await audit(database.engine)).broken == []


async def booked_once(database: Database) -> int:
    """Adjustments that are the first of their attempt."""
    async with database.engine.connect() as connection:
        rows = (await connection.execute(text("SELECT id, usage_id FROM adjustments WHERE reason = 'reprice'"))).all()
    known = {_uuid(row[0]) for row in rows}
    firsts = {module.reprice_id(_uuid(row[1]), n, 0) for row in rows for n in (1, 2)}
    return len(known & firsts)


def _uuid(value: Any) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
