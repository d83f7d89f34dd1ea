"""Accounts on real databases: budgets that hold, rows that arrive, money that comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.money.accounts import Accounts, Hold, Refusal, Scope
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, books, intent_of, record_of

MONEY = Money(tick_s=0.05, segment_bytes=1 << 18)
SCOPE = Scope(1, 1, 1, "assistant")
pytestmark = pytest.mark.usefixtures("database")


async def test_three_of_ten_fit_a_budget_of_one_dollar(database: Database, tmp_path: Path) -> None:
    """G02: ten at once, worst case 0.30 each, budget 1.00: three admitted, 0.90 booked, nothing held at the end."""
    row = await add_budget(database.engine, limit=100 * CENT, scope_kind="key")
    accounts = await Accounts.open(database.engine, MONEY, tmp_path / "journal")
    accounts.set_budgets([row])

    async def one() -> bool:
        now, request_id = accounts.now_us(), accounts.new_request_id()
        got = await accounts.obtain(SCOPE, 30 * CENT, now)
        if isinstance(got, Refusal):
            assert got.kind == "budget"
            assert got.error(402).status == 402
            return False
        await accounts.intend(intent_of(request_id, now, got, 30 * CENT))
        await asyncio.sleep(0.01)
        accounts.settle(got, record_of(request_id, now, got, 30 * CENT))
        return True

    admitted = await asyncio.gather(*(one() for _ in range(10)))
    assert sum(admitted) == 3
    await accounts.close()
    found = await books(database.engine)
    assert found.rows == 3
    assert found.spent == {1: 90 * CENT}
    assert found.leased == 0
    assert found.states == {"closed"}
    found.assert_sound()
    assert list((tmp_path / "journal").iterdir()) == []


async def test_a_scope_without_budget_is_free_to_go(database: Database, tmp_path: Path) -> None:
    accounts = await Accounts.open(database.engine, MONEY, tmp_path / "journal")
    got = accounts.reserve(SCOPE, 5, accounts.now_us())
    assert isinstance(got, Hold)
    assert got.charges == ()
    await accounts.close()
