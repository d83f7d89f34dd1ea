"""Accounts on real databases: budgets that hold, rows that arrive, money that comes back, and what happens when SQL does not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest
from msgspec import structs
from sqlalchemy import text

from gateway.errors import NotReady
from gateway.money.accounts import Accounts, BudgetRow, Hold, Refusal, Scope
from gateway.money.windows import to_us
from gateway.settings import Money, Storage
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, books, end_of, intent_of, record_of
from tests.fixtures.waiting import until

MONEY = Money(tick_s=0.05, segment_bytes=1 << 18)
SCOPE = Scope(1, 1, 1, "assistant")
Open = Callable[..., Awaitable[Accounts]]


@pytest.fixture
async def opened(database: Database, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens Accounts on the test's database; what a test leaves open is closed."""
    every: list[Accounts] = []

    async def make(*budgets: BudgetRow, money: Money = MONEY, **more: object) -> Accounts:
        accounts = await Accounts.open(database.engine, money, tmp_path / "journal", **more)  # type: ignore[arg-type]
        every.append(accounts)
        accounts.set_budgets(budgets)
        return accounts

    yield make
    for accounts in every:
        await accounts.close(wait_s=1.0)


async def spend(accounts: Accounts, worst: int, cost: int, scope: Scope = SCOPE) -> UUID | Refusal:
    now, request_id = accounts.now_us(), accounts.new_request_id()
    got = await accounts.obtain(scope, worst, now)
    if isinstance(got, Refusal):
        return got
    await accounts.intend(intent_of(request_id, now, got, worst))
    accounts.settle(got, record_of(request_id, now, got, cost))
    return request_id


async def test_three_of_ten_fit_a_budget_of_one_dollar(database: Database, opened: Open, tmp_path: Path) -> None:
    """G02: ten at once, worst case 0.30 each, budget 1.00: three admitted, 0.90 booked, nothing held at the end."""
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT, scope_kind="key"))
    got = await asyncio.gather(*(spend(accounts, 30 * CENT, 30 * CENT) for _ in range(10)))
    refused = [one for one in got if isinstance(one, Refusal)]
    assert len(refused) == 7
    error = refused[0].error(402)
    assert (error.status, error.retry) == (402, False)
    assert "key '1'" in error.message
    assert "0.300000000" in error.message
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent, found.leased, found.states) == (3, {1: 90 * CENT}, 0, {"closed"})
    assert os.listdir(tmp_path / "journal") == []  # noqa: PTH208


async def test_cancelled_streams_give_back_what_they_did_not_use(database: Database, opened: Open) -> None:
    """G26: three streams hold 0.30 each, are cut at 0.001 each; a fourth fits, nothing stays reserved, 0.003 is spent."""
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT, scope_kind="key"))
    for _ in range(3):
        assert isinstance(await spend(accounts, 30 * CENT, CENT // 10), UUID)
    fourth = await accounts.obtain(SCOPE, 30 * CENT, accounts.now_us())
    assert isinstance(fourth, Hold)
    accounts.release(fourth)
    assert accounts.stats().reserved_nanousd == 0
    await accounts.close()
    found = await books(database.engine)
    assert (found.spent[1], found.leased) == (3 * CENT // 10, 0)


async def test_a_scope_without_budget_and_a_free_request_take_no_window(database: Database, opened: Open) -> None:
    """G03c: an explicit price of 0 is allowed when the budget is used up."""
    accounts = await opened(await add_budget(database.engine, limit=0, scope_kind="key", scope_id=5))
    free = accounts.reserve(Scope(1, 1, 5, "assistant"), 0, accounts.now_us())
    other = accounts.reserve(SCOPE, 5, accounts.now_us())
    assert isinstance(free, Hold)
    assert isinstance(other, Hold)
    assert free.charges == other.charges == ()
    assert isinstance(await spend(accounts, 1, 1, Scope(1, 1, 5, "assistant")), Refusal)
    assert accounts.budgeted(1, 1, 5, "assistant")
    assert not accounts.budgeted(1, 1, 1, "assistant")


async def test_settling_again_changes_nothing(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    now, request_id = accounts.now_us(), accounts.new_request_id()
    got = await accounts.obtain(SCOPE, CENT, now)
    assert isinstance(got, Hold)
    accounts.intent(intent_of(request_id, now, got, CENT))
    record = record_of(request_id, now, got, CENT)
    for _ in range(3):
        accounts.settle(got, record)
    accounts.settle(None, record)
    assert await accounts.recent(request_id) == record
    await until(lambda: accounts.stats().queued == 0, "the row arrived")
    accounts.settle(got, record)
    refused = record_of(accounts.new_request_id(), now, None, 0, "refused")
    accounts.settle(None, refused)
    accounts.settle(None, refused)
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1]) == (2, CENT)


async def test_request_ids_carry_the_corrected_clock(opened: Open) -> None:
    accounts = await opened()
    first, second = accounts.new_request_id(), accounts.new_request_id()
    assert first.version == second.version == 7
    assert first.variant == second.variant
    assert abs((first.int >> 80) - accounts.now_us() // 1000) < 1000
    assert len({accounts.new_request_id() for _ in range(1000)}) == 1000


async def test_a_wrong_local_clock_is_corrected_by_the_databases(opened: Open) -> None:
    right, wrong = await opened(), await opened(clock=lambda: to_us_now() + 300_000_000)
    assert abs(right.now_us() - wrong.now_us()) < 2_000_000
    assert -301 < wrong.stats().clock_offset_s < -299


def to_us_now() -> int:
    return time.time_ns() // 1000


async def test_idle_money_of_another_process_is_recalled_before_anybody_is_refused(database: Database, opened: Open) -> None:
    row = await add_budget(database.engine, limit=100 * CENT)
    rich, poor = await opened(row), await opened(row)
    for _ in range(3):
        assert isinstance(await spend(rich, CENT, CENT), UUID)
    await until(lambda: rich.stats().leased_nanousd >= 8 * CENT, "a slice is kept far from the cap")
    await asyncio.sleep(0.1)
    rest = 100 * CENT - 3 * CENT
    assert isinstance(await spend(poor, rest, rest), UUID), "all that is left fits, once the other has given back"
    await asyncio.gather(rich.close(), poor.close())
    found = await books(database.engine)
    found.assert_sound()
    assert (found.spent[1], found.leased) == (100 * CENT, 0)


async def test_a_refusal_is_remembered_for_a_moment(database: Database, opened: Open) -> None:
    row = await add_budget(database.engine, limit=10 * CENT)
    accounts = await opened(row, money=structs.replace(MONEY, refusal_memory_s=30.0))
    assert isinstance(await spend(accounts, 20 * CENT, 0), Refusal)
    before = accounts.stats().syncs
    for _ in range(20):
        assert isinstance(await spend(accounts, 20 * CENT, 0), Refusal)
    assert accounts.stats().syncs - before <= 2
    assert isinstance(await spend(accounts, 5 * CENT, 5 * CENT), UUID), "a smaller need was not refused"


async def test_money_that_comes_back_is_not_refused_from_memory(database: Database, opened: Open) -> None:
    row = await add_budget(database.engine, limit=10 * CENT)
    accounts = await opened(row, money=structs.replace(MONEY, refusal_memory_s=30.0))
    now, first, second = accounts.now_us(), await accounts.obtain(SCOPE, 7 * CENT, accounts.now_us()), accounts.new_request_id()
    assert isinstance(first, Hold)
    assert isinstance(await spend(accounts, 5 * CENT, 0), Refusal)
    accounts.intent(intent_of(second, now, first, 7 * CENT))
    accounts.settle(first, record_of(second, now, first, CENT))
    assert isinstance(await spend(accounts, 5 * CENT, 0), UUID), "six of seven cents came back"
    held = await accounts.obtain(SCOPE, 7 * CENT, accounts.now_us())
    assert isinstance(held, Hold)
    assert isinstance(await spend(accounts, 5 * CENT, 0), Refusal)
    accounts.release(held)
    assert isinstance(await spend(accounts, 5 * CENT, 0), UUID)


async def test_a_client_that_leaves_the_line_leaves_no_money_behind(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    waiting = [asyncio.create_task(accounts.obtain(SCOPE, CENT, accounts.now_us())) for _ in range(20)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    got = await asyncio.gather(*waiting, return_exceptions=True)
    holds = [one for one in got if isinstance(one, Hold)]
    assert len(holds) == 10
    assert accounts.stats().reserved_nanousd == 10 * CENT
    for hold in holds:
        accounts.release(hold)
    assert (accounts.stats().reserved_nanousd, accounts.stats().waiting) == (0, 0)


async def test_holds_grow_for_a_second_attempt_and_overruns_are_booked(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    now, request_id = accounts.now_us(), accounts.new_request_id()
    got = await accounts.obtain(SCOPE, 60 * CENT, now)
    assert isinstance(got, Hold)
    assert not got.grow(60 * CENT)
    refusal = accounts.refusal(got, 60 * CENT)
    assert (refusal.kind, refusal.worst_nanousd) == ("budget", 60 * CENT)
    got.shrink(60 * CENT - 130 * CENT)  # the provider billed more than its bound
    accounts.intent(intent_of(request_id, now, got, 60 * CENT))
    accounts.settle(got, record_of(request_id, now, got, 130 * CENT))
    assert isinstance(await spend(accounts, 1, 1), Refusal)
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.spent[1], found.leased) == (130 * CENT, 0)


async def test_a_second_attempt_asks_the_database_like_a_first(database: Database, opened: Open) -> None:
    """The lease was cut for a cheap attempt; the one after it is dear, and its budget has plenty."""
    accounts = await opened(await add_budget(database.engine, limit=10_000 * CENT))
    now, request_id = accounts.now_us(), accounts.new_request_id()
    hold = await accounts.obtain(SCOPE, CENT, now)
    assert isinstance(hold, Hold)
    hold.shrink(CENT)  # the first attempt failed and cost nothing
    assert not hold.grow(9_000 * CENT)
    assert await accounts.grow(hold, 9_000 * CENT, SCOPE, now) is hold
    assert accounts.stats().reserved_nanousd == hold.worst == 9_000 * CENT
    refusal = await accounts.grow(hold, 2_000 * CENT, SCOPE, now)
    assert isinstance(refusal, Refusal) and (refusal.kind, refusal.worst_nanousd) == ("budget", 2_000 * CENT)
    assert hold.worst == 9_000 * CENT
    accounts.intent(intent_of(request_id, now, hold, 9_000 * CENT))
    accounts.settle(hold, record_of(request_id, now, hold, 5 * CENT))
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.spent[1], found.leased) == (5 * CENT, 0)


async def test_money_for_a_request_that_ended_meanwhile_goes_back(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    now = accounts.now_us()
    hold = await accounts.obtain(SCOPE, CENT, now)
    assert isinstance(hold, Hold)
    asked = asyncio.create_task(accounts.grow(hold, 90 * CENT, SCOPE, now))
    await asyncio.sleep(0)
    accounts.release(hold)
    assert isinstance(await asked, Refusal)
    accounts.set_budgets([])
    assert accounts.stats().reserved_nanousd == 0
    free = await accounts.obtain(SCOPE, CENT, now)  # a scope without budgets
    assert isinstance(free, Hold) and await accounts.grow(free, 90 * CENT, SCOPE, now) is free
    accounts.release(free)


async def test_a_hold_whose_budget_was_deleted_still_says_why_it_cannot_grow(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    got = await accounts.obtain(SCOPE, 60 * CENT, accounts.now_us())
    assert isinstance(got, Hold)
    accounts.set_budgets([])
    assert not got.grow(60 * CENT)
    refusal = accounts.refusal(got, 60 * CENT)
    assert (refusal.kind, refusal.worst_nanousd) == ("budget", 60 * CENT)
    accounts.release(got)


async def test_what_is_open_at_the_end_is_left_to_an_adopter(database: Database, opened: Open) -> None:
    row = await add_budget(database.engine, limit=100 * CENT)
    dying = await opened(row)
    now, request_id = dying.now_us(), dying.new_request_id()
    got = await dying.obtain(SCOPE, 7 * CENT, now)
    assert isinstance(got, Hold)
    dying.intent(intent_of(request_id, now, got, 5 * CENT))
    dying.attempt_ended(end_of(request_id, 2 * CENT, 5 * CENT, outcome="failed"))
    dying.intent(intent_of(request_id, now, got, 5 * CENT, n=2))
    await dying.close(wait_s=0.3)
    heir = await opened(row, money=structs.replace(MONEY, adopt_scan_s=0.05))
    await until(lambda: heir.stats().adopted == 1, "adopted")
    found = await books(database.engine)
    found.assert_sound()
    assert (found.outcomes, found.spent[1]) == ({"unknown": 1}, 7 * CENT)


async def test_nothing_is_accepted_while_closing(opened: Open) -> None:
    accounts = await opened()
    accounts.check_open()
    await accounts.close()
    with pytest.raises(NotReady) as refused:
        accounts.check_open()
    assert (refused.value.code, refused.value.retry_after_s) == ("draining", 1.0)


async def test_a_full_journal_stops_admission(opened: Open) -> None:
    accounts = await opened(money=structs.replace(MONEY, segment_bytes=32 * 1024, journal_max_bytes=64 * 1024))
    with pytest.raises(NotReady, match="journal"):
        for _ in range(200):
            accounts.check_open()
            accounts.intent(intent_of(accounts.new_request_id(), 1, None, 1))
    assert accounts.stats().journal_open > 0


async def test_an_operator_closes_a_living_process_and_it_goes_on(database: Database, opened: Open, tmp_path: Path) -> None:
    """Fenced: running requests finish, every row arrives once, spent is their cost, and the process is another one."""
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    now, running = accounts.now_us(), accounts.new_request_id()
    got = await accounts.obtain(SCOPE, 30 * CENT, now)
    assert isinstance(got, Hold)
    accounts.intent(intent_of(running, now, got, 30 * CENT))
    first = accounts.process_id
    async with database.engine.begin() as connection:
        for statement in (
            "UPDATE budget_windows SET leased = 0",
            "DELETE FROM budget_leases",
            "UPDATE gateway_processes SET state = 'closed', sync_seq = sync_seq + 1",
        ):
            await connection.execute(text(statement))
    await until(lambda: accounts.process_id != first and accounts._syncer.registered, "a new identity")
    await until(lambda: accounts.stats().leased_nanousd >= 30 * CENT, "what runs is leased again")
    assert isinstance(await spend(accounts, 10 * CENT, 10 * CENT), UUID)
    accounts.settle(got, record_of(running, now, got, 20 * CENT))
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1], found.leased, found.states) == (2, 30 * CENT, 0, {"closed"})
    assert os.listdir(tmp_path / "journal") == []  # noqa: PTH208


async def test_a_database_that_forgot_commits_gets_its_rows_again(database: Database, opened: Open) -> None:
    """A failover to a standby that lags: rows, charges and leases of the last moments are gone from SQL."""
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT))
    now, running = accounts.now_us(), accounts.new_request_id()
    got = await accounts.obtain(SCOPE, 30 * CENT, now)
    assert isinstance(got, Hold)
    accounts.intent(intent_of(running, now, got, 30 * CENT))
    for _ in range(5):
        assert isinstance(await spend(accounts, 2 * CENT, 2 * CENT), UUID)
    await until(lambda: accounts.stats().queued == 0, "rows arrived")
    async with database.engine.begin() as connection:
        for statement in (
            *(f"DELETE FROM {name}" for name in ("usage", "attempts", "rollups", "latency_rollups", "budget_leases")),
            "UPDATE budget_windows SET spent = 0, leased = 0",
            "UPDATE gateway_processes SET sync_seq = 1",
        ):
            await connection.execute(text(statement))
    await until(lambda: accounts.stats().recovering, "it noticed")
    with pytest.raises(NotReady):
        accounts.check_open()
    await until(lambda: not accounts.stats().recovering, "it recovered")
    assert isinstance(await spend(accounts, 10 * CENT, 10 * CENT), UUID)
    accounts.settle(got, record_of(running, now, got, 30 * CENT))
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1], found.leased) == (7, 50 * CENT, 0)


async def test_a_lowered_limit_and_a_deleted_budget_take_idle_money_back(database: Database, opened: Open) -> None:
    row = await add_budget(database.engine, limit=100 * CENT)
    accounts = await opened(row)
    assert isinstance(await spend(accounts, CENT, CENT), UUID)
    await until(lambda: accounts.stats().leased_nanousd > 0, "a slice")
    async with database.engine.begin() as connection:
        await connection.execute(text(f"UPDATE budgets SET limit_nanousd = {CENT}"))
    await until(lambda: accounts.stats().leased_nanousd == 0, "idle money is back")
    assert isinstance(await spend(accounts, CENT, CENT), Refusal)
    accounts.set_budgets([])
    assert isinstance(await spend(accounts, CENT, CENT), UUID), "a deleted budget no longer applies"


async def test_at_the_boundary_the_next_period_is_open_and_the_last_one_closes(database: Database, opened: Open) -> None:
    """G27 in motion: a day in Shanghai ends while one request runs; it counts where it was admitted."""
    boundary = to_us(datetime.fromisoformat("2026-08-19T16:00:00Z"))
    row = await add_budget(database.engine, limit=30 * CENT, scope_kind="key", period="day", timezone="Asia/Shanghai")
    accounts = await opened(row)
    accounts._syncer.offset_us = 0
    last, first = boundary - 1, boundary
    got = await accounts.obtain(SCOPE, 20 * CENT, last)
    assert isinstance(got, Hold)
    running = accounts.new_request_id()
    accounts.intent(intent_of(running, last, got, 20 * CENT))
    exhausted = await accounts.obtain(SCOPE, 20 * CENT, last)
    assert isinstance(exhausted, Refusal)
    assert exhausted.resets_at_us == boundary
    following = await accounts.obtain(SCOPE, 20 * CENT, first)
    assert isinstance(following, Hold)
    assert following.charges != got.charges
    accounts.release(following)
    accounts.settle(got, record_of(running, last, got, 15 * CENT))
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert sorted(found.spent.values()) == [0, 15 * CENT]


async def test_g27_a_spent_day_in_shanghai_begins_anew_at_sixteen_utc(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT, period="day", timezone="Asia/Shanghai"))

    def at(text: str) -> int:
        return to_us(datetime.fromisoformat(text))

    async def asked(text: str, cost: int) -> Hold | Refusal:
        got = await accounts.obtain(SCOPE, cost, at(text))
        if isinstance(got, Hold):
            accounts.settle(got, record_of(accounts.new_request_id(), at(text), got, cost))
        return got

    assert isinstance(await asked("2026-08-19T02:00:00Z", 100 * CENT), Hold)
    refused = await asked("2026-08-19T15:59:59Z", CENT)
    assert isinstance(refused, Refusal) and refused.kind == "budget" and refused.resets_at_us == at("2026-08-19T16:00:00Z")
    assert isinstance(await asked("2026-08-19T16:00:00Z", 100 * CENT), Hold)
    refused = await asked("2026-08-20T15:59:59.999999Z", CENT)
    assert isinstance(refused, Refusal) and refused.resets_at_us == at("2026-08-20T16:00:00Z")
    assert "The budget resets: 2026-08-20T16:00:00Z" in refused.error(402).message
    assert isinstance(await asked("2026-08-20T16:00:00Z", CENT), Hold)


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
async def test_a_frozen_database_means_503_not_402_and_every_row_arrives(database: Database, opened: Open, storage: Storage) -> None:
    """Requests go on inside the lease; beyond it the answer is 503; after the thaw all rows are there."""
    accounts = await opened(await add_budget(database.engine, limit=10_000 * CENT))
    assert isinstance(await spend(accounts, CENT, CENT), UUID)
    await until(lambda: accounts.stats().leased_nanousd >= 8 * CENT, "a slice")
    blocker = database.engine.connect()
    connection = await blocker.__aenter__()
    await connection.execute(text("LOCK TABLE gateway_processes IN ACCESS EXCLUSIVE MODE"))
    try:
        spent = 1
        while isinstance(got := await spend(accounts, CENT, CENT), UUID):
            spent += 1
        assert spent > 4
        error = got.error(402)
        assert (error.status, error.retry_after_s) == (503, 1.0)
    finally:
        await connection.rollback()
        await blocker.__aexit__(None, None, None)
    await until(lambda: accounts.stats().queued == 0, "the rows arrived", within_s=10)
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1], found.leased) == (spent, spent * CENT, 0)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_start_without_a_database_is_not_ready_and_becomes_so(database: Database, opened: Open) -> None:
    path = Path(str(database.engine.url.database))
    real = path.rename(path.with_suffix(".real"))  # noqa: ASYNC240
    path.symlink_to(path.parent / "not there" / "tollway.db")  # noqa: ASYNC240
    accounts = await opened()
    with pytest.raises(NotReady) as refused:
        accounts.check_open()
    assert refused.value.code == "database_unavailable"
    back = path.with_suffix(".link")
    back.symlink_to(real)
    back.replace(path)  # in one step: between two, SQLite would make an empty database
    await until(lambda: accounts._syncer.registered, "registered")
    accounts.check_open()


async def test_power_mode_works_the_same(database: Database, opened: Open) -> None:
    accounts = await opened(await add_budget(database.engine, limit=100 * CENT), money=structs.replace(MONEY, fsync="power"))
    got = await asyncio.gather(*(spend(accounts, CENT, CENT) for _ in range(30)))
    assert all(isinstance(one, UUID) for one in got)
    await accounts.close()
    found = await books(database.engine)
    found.assert_sound()
    assert (found.rows, found.spent[1]) == (30, 30 * CENT)
