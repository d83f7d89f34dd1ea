"""The throttle of sign-ins: so many tries of an account and of an address in a window, then none, and a bounded memory."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from gateway import throttle
from gateway.db.tables import login_failures
from gateway.throttle import ACCOUNT_FAILURES, ADDRESS_FAILURES, WINDOW_S, address_subject
from tests.conftest import Database

START = 1_800_000_000_000_000
SECOND = 1_000_000


async def tried(database: Database, email: str | None, address: str, at_us: int = START) -> int:
    async with database.engine.begin() as connection:
        return await throttle.admit(connection, email, address, at_us)


async def test_an_account_has_so_many_tries_in_a_window_from_anywhere(database: Database) -> None:
    for number in range(ACCOUNT_FAILURES):
        assert await tried(database, "anna@x.org", f"10.0.0.{number}", START + number * SECOND) == 0
    later = START + 100 * SECOND
    assert await tried(database, "anna@x.org", "10.0.1.1", later) == WINDOW_S - 100
    assert await tried(database, "ben@x.org", "10.0.1.1", later) == 0
    assert await tried(database, "anna@x.org", "10.0.1.1", START + WINDOW_S * SECOND) == 0


async def test_an_address_has_so_many_tries_whatever_the_account(database: Database) -> None:
    for number in range(ADDRESS_FAILURES):
        assert await tried(database, f"m{number}@x.org", "10.0.0.1") == 0
    assert await tried(database, "new@x.org", "10.0.0.1") == WINDOW_S
    assert await tried(database, None, "10.0.0.1") == WINDOW_S
    assert await tried(database, "new@x.org", "10.0.0.2") == 0
    for number in range(2 * ACCOUNT_FAILURES):
        assert await tried(database, "victim@x.org", "10.0.0.1") > 0, number
    assert await tried(database, "victim@x.org", "10.0.0.2") == 0, "who is refused locks nobody out"


async def test_a_good_try_begins_the_account_anew_and_is_not_counted_for_the_address(database: Database) -> None:
    for _ in range(ADDRESS_FAILURES + 10):
        assert await tried(database, "anna@x.org", "10.0.0.1") == 0
        async with database.engine.begin() as connection:
            await throttle.take_back(connection, "anna@x.org", "10.0.0.1")
    async with database.engine.connect() as connection:
        assert [row.failures for row in await connection.execute(select(login_failures))] == [0]


async def test_what_is_remembered_is_bounded_and_ends(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ROWS_MAX", 6)
    for number in range(10):
        await tried(database, f"m{number}@x.org", "10.0.0.1", START + number)
    async with database.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(login_failures))).scalar_one() <= 8
    await tried(database, "late@x.org", "10.0.0.2", START + (WINDOW_S + 1) * SECOND)
    async with database.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(login_failures))).scalar_one() == 2


def test_a_network_of_ipv6_is_one_address() -> None:
    assert address_subject("2001:db8:1:2::5") == address_subject("2001:db8:1:2:ffff::1") != address_subject("2001:db8:1:3::5")
    assert address_subject("::ffff:10.0.0.1") == address_subject("10.0.0.1") != address_subject("10.0.0.2")
    assert address_subject("") != address_subject("unix")
