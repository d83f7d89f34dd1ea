"""The sync transaction on both databases: applied once, charged once, whatever is sent again and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from sqlalchemy import text

from gateway.catalog import Price
from gateway.db.session import Session, open_session
from gateway.money import sync
from gateway.money.leases import Ask
from gateway.money.pricing import BATCH, cost
from gateway.money.records import UsageRecord
from providers.types import Usage
from tests.conftest import Database
from tests.fixtures.money import add_budget, books, record_of

NOW = 1_790_000_000_000_000


class Shelf:
    """A database with one budget of 1000, its window, and a registered process."""

    def __init__(self, database: Database, session: Session) -> None:
        self.database = database
        self.session = session
        self.sql = session.dialect
        self.window = 0
        self.seq = 0

    async def process(self) -> UUID:
        process = uuid4()
        await self.session.run(sync.register(self.sql, process, "host", "boot", "/journal"))
        return process

    async def sync(self, process: UUID, seq: int, *rows: UsageRecord, **more: object) -> sync.Answer:
        fenced, owner = bool(more.pop("fenced", False)), bool(more.pop("owner", True))
        asks = (Ask(window_id=self.window, **more),) if more else ()  # type: ignore[arg-type]
        payload = sync.Payload(process=process, seq=seq, rows=rows, asks=asks, fenced=fenced, owner=owner)
        return await self.session.run(sync.sync(self.sql, payload))


@pytest.fixture
async def shelf(database: Database) -> AsyncIterator[Shelf]:
    session = open_session(database.engine)
    made = Shelf(database, session)
    row = await add_budget(database.engine, limit=1000, scope_kind="team")
    window = await session.run(sync.make_window(session.dialect, row.id, 0, None))
    assert window is not None
    made.window = window
    yield made
    await session.close()


def settled(shelf: Shelf, cost: int | None, outcome: str = "completed", request_id: UUID | None = None) -> UsageRecord:
    return record_of(request_id or uuid4(), NOW, None, cost, outcome, charges=(shelf.window,))


async def test_money_is_leased_charged_and_given_back(shelf: Shelf) -> None:
    me = await shelf.process()
    answer = await shelf.sync(me, 0, want=600)
    assert (answer.seq, answer.lines[0].amount, answer.lines[0].room) == (1, 600, 400)
    answer = await shelf.sync(me, 1, settled(shelf, 250), want=0, free=350)
    assert (answer.lines[0].amount, answer.lines[0].spent, answer.lines[0].room) == (350, 250, 400)
    answer = await shelf.sync(me, 2, ret=350)
    assert (answer.lines[0].amount, answer.lines[0].room) == (0, 750)
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.leased, found.leases) == (0, {})


async def test_two_processes_share_what_there_is(shelf: Shelf) -> None:
    one, two = await shelf.process(), await shelf.process()
    await shelf.sync(one, 0, want=700, free=0, near=False)
    answer = await shelf.sync(two, 0, want=500)
    assert (answer.lines[0].amount, answer.lines[0].room, answer.lines[0].idle_of_others) == (300, 0, 700)
    answer = await shelf.sync(one, 1, ret=0, want=0, free=700, near=False)
    assert answer.lines[0].wanted, "the other one starves"
    assert answer.processes == 2


async def test_a_payload_sent_again_is_applied_once(shelf: Shelf) -> None:
    me = await shelf.process()
    row = settled(shelf, 40)
    first = await shelf.sync(me, 0, row, want=100)
    again = await shelf.sync(me, 0, row, want=100)
    assert (again.seq, again.lines[0].amount) == (first.seq, first.lines[0].amount) == (1, 60)
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[shelf.window]) == (1, 40)


async def test_a_row_is_charged_once_even_without_the_guard(shelf: Shelf) -> None:
    """A restored journal brings rows again, in another process's name and in a batch with others."""
    one, two = await shelf.process(), await shelf.process()
    row, fresh = settled(shelf, 40), settled(shelf, 2)
    await shelf.sync(one, 0, row)
    await shelf.sync(two, 0, row, fresh, row)
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[shelf.window]) == (2, 42)


async def test_a_stale_number_changes_nothing(shelf: Shelf) -> None:
    me = await shelf.process()
    await shelf.sync(me, 0, want=10)
    await shelf.sync(me, 1, want=10)
    with pytest.raises(sync.Moved):
        await shelf.sync(me, 0, settled(shelf, 5))
    with pytest.raises(sync.Moved):
        await shelf.sync(me, 1, settled(shelf, 5), owner=False)
    with pytest.raises(sync.Forgotten) as forgot:
        await shelf.sync(me, 7, settled(shelf, 5))
    assert forgot.value.seq == 2
    with pytest.raises(sync.Forgotten):
        await shelf.sync(uuid4(), 0, settled(shelf, 5))
    assert (await books(shelf.database.engine)).rows == 0


async def test_the_true_end_of_an_unknown_row_is_an_adjustment_once(shelf: Shelf) -> None:
    one, two = await shelf.process(), await shelf.process()
    request_id = uuid4()
    await shelf.sync(one, 0, settled(shelf, 100, "unknown", request_id), want=100)
    truth = settled(shelf, 30, "completed", request_id)
    answer = await shelf.sync(two, 0, truth, want=0, free=1)
    assert answer.lines[0].spent == 30
    await shelf.sync(two, 1, truth)
    await shelf.sync(one, 1, settled(shelf, 100, "unknown", request_id))
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.rows, found.outcomes, found.spent[shelf.window], found.adjustments) == (1, {"unknown": 1}, 30, -70)


async def test_an_unpriced_row_is_null_and_charges_nothing(shelf: Shelf) -> None:
    """G03."""
    me = await shelf.process()
    await shelf.sync(me, 0, settled(shelf, None))
    async with shelf.database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT cost FROM usage"))).scalar_one() is None
        assert (await connection.execute(text("SELECT unpriced FROM rollups"))).scalar_one() == 1
    (await books(shelf.database.engine)).assert_sound()


async def test_the_providers_id_is_an_ordinary_column(shelf: Shelf) -> None:
    """G29: fifty answers under one id, and one under none."""
    me = await shelf.process()
    await shelf.sync(me, 0, *(settled(shelf, 10) for _ in range(50)))
    found = await books(shelf.database.engine)
    assert (found.rows, found.cost) == (50, 500)
    found.assert_sound()


async def test_closing_gives_back_what_is_left(shelf: Shelf) -> None:
    me = await shelf.process()
    await shelf.sync(me, 0, settled(shelf, 40), want=100)
    with pytest.raises(sync.Moved):
        await shelf.session.run(sync.close_process(shelf.sql, me, 0))
    await shelf.session.run(sync.close_process(shelf.sql, me, 1))
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.leased, found.spent[shelf.window], found.states) == (0, 40, {"closed"})
    with pytest.raises(sync.Closed):
        await shelf.sync(me, 2, want=1)


async def test_closing_may_book_what_the_journal_does_not_explain(shelf: Shelf) -> None:
    me = await shelf.process()
    await shelf.sync(me, 0, settled(shelf, 40), want=100)
    await shelf.session.run(sync.close_process(shelf.sql, me, 1, charge=sync.REBOOT))
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.leased, found.spent[shelf.window], found.adjusted[shelf.window]) == (0, 100, 60)


async def test_a_fenced_process_writes_rows_and_touches_no_lease(shelf: Shelf) -> None:
    me, other = await shelf.process(), await shelf.process()
    await shelf.sync(other, 0, want=100)
    await shelf.session.run(sync.close_process(shelf.sql, me, 0))
    await shelf.sync(me, 0, settled(shelf, 40), fenced=True)
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.spent[shelf.window], found.leased) == (40, 100)


async def test_a_lowered_limit_grants_nothing_and_a_raised_one_does(shelf: Shelf) -> None:
    me = await shelf.process()
    await shelf.sync(me, 0, want=600)
    await _limit(shelf, "limit_nanousd = 500")
    answer = await shelf.sync(me, 1, want=10)
    assert (answer.lines[0].amount, answer.lines[0].room, answer.lines[0].cap) == (600, -100, 500)
    await _limit(shelf, "override_nanousd = 2000, override_until_us = 9000000000000000")
    answer = await shelf.sync(me, 2, want=10)
    assert (answer.lines[0].amount, answer.lines[0].cap) == (610, 2000)
    await _limit(shelf, "override_until_us = 1")
    assert (await shelf.sync(me, 3, want=10)).lines[0].cap == 500


async def test_a_deleted_budget_grants_nothing_and_still_takes_its_rows(shelf: Shelf) -> None:
    me = await shelf.process()
    await shelf.sync(me, 0, want=100)
    await _limit(shelf, "deleted_at_us = 1")
    answer = await shelf.sync(me, 1, settled(shelf, 30), want=50)
    assert (answer.lines[0].amount, answer.lines[0].spent, answer.lines[0].deleted) == (70, 30, True)


async def _limit(shelf: Shelf, change: str) -> None:
    async with shelf.database.engine.begin() as connection:
        await connection.execute(text(f"UPDATE budgets SET {change}"))


async def test_a_budget_made_in_mid_period_starts_with_what_was_spent(shelf: Shelf) -> None:
    me = await shelf.process()
    quarter = NOW - NOW % 900_000_000
    await shelf.sync(me, 0, settled(shelf, 40), settled(shelf, 5))
    row = await add_budget(shelf.database.engine, limit=100, scope_kind="key", model="assistant")
    other = await add_budget(shelf.database.engine, limit=100, scope_kind="key", model="another")
    window = await shelf.session.run(sync.make_window(shelf.sql, row.id, quarter, quarter + 86_400_000_000))
    again = await shelf.session.run(sync.make_window(shelf.sql, row.id, quarter, quarter + 86_400_000_000))
    empty = await shelf.session.run(sync.make_window(shelf.sql, other.id, quarter, quarter + 86_400_000_000))
    assert window == again
    assert window is not None
    assert empty is not None
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.spent[window], found.adjusted[window], found.spent[empty]) == (45, 45, 0)
    assert await shelf.session.run(sync.make_window(shelf.sql, 999, 0, None)) is None


async def test_opposite_orders_do_not_deadlock(shelf: Shelf, database: Database) -> None:
    """Two processes write the same roll-ups and windows at once, one batch backwards."""
    other = open_session(database.engine)
    one, two = await shelf.process(), await shelf.process()

    async def write(session: Session, process: UUID, backwards: bool) -> None:
        for seq in range(10):
            rows = [settled(shelf, 1, f"outcome{number}") for number in range(50)]
            payload = sync.Payload(process=process, seq=seq, rows=tuple(reversed(rows) if backwards else rows))
            await session.run(sync.sync(session.dialect, payload))

    await asyncio.gather(write(shelf.session, one, False), write(other, two, True))
    await other.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[shelf.window]) == (1000, 1000)


async def test_hostile_text_reaches_the_ledger(shelf: Shelf) -> None:
    """A vendor's id with a NUL, or without end, must not hold up the rows behind it."""
    me = await shelf.process()
    bad = record_of(uuid4(), NOW, None, 1, charges=(shelf.window,))
    bad = UsageRecord(**{name: getattr(bad, name) for name in bad.__struct_fields__} | {"provider_id": "a\0b" * 1000, "tag": "'\";--\0"})
    await shelf.sync(me, 0, bad)
    async with shelf.database.engine.connect() as connection:
        row = (await connection.execute(text("SELECT provider_id, tag FROM usage"))).one()
    assert (len(row[0]), row[1]) == (256, "'\";--")
    (await books(shelf.database.engine)).assert_sound()


async def test_g28_a_finished_batch_is_charged_once_to_the_key_that_created_it(shelf: Shelf) -> None:
    """Whoever asks for it, however often: the batch's own id is the row's, so that only the first settlement counts; half price."""
    price = Price(id="m-claude", input=3 * 10**9, output=15 * 10**9, batch_discount=500_000)
    usage = Usage(input=1800, output=1000)
    charged = cost(price, usage, BATCH)
    assert charged == 10_200_000
    batch = uuid4()
    one, two = await shelf.process(), await shelf.process()
    row = structs.replace(settled(shelf, charged, request_id=batch), usage=usage, kind=BATCH)
    for number in range(5):
        process, seq = (one, number // 2) if number % 2 == 0 else (two, number // 2)
        seen = row if number < 3 else structs.replace(row, key_id=2)  # as if the second key's look had made it
        await shelf.sync(process, seq, seen)
    found = await books(shelf.database.engine)
    found.assert_sound()
    assert (found.rows, found.cost, found.spent) == (1, 10_200_000, {shelf.window: 10_200_000})
    async with shelf.database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT key_id, kind FROM usage"))).one() == (1, "batch")
