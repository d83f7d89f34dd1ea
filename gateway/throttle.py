"""Slows down who guesses passwords: failed sign-ins by account and by address, counted in SQL, so that all workers count together.

The rule: in WINDOW_S from the first failure, an account has ACCOUNT_FAILURES tries and an address ADDRESS_FAILURES; then both wait for the
window's end, the right password too. A try counts before its password is looked at, so that many at once are no way around; a good one is
taken back. Knows no password and no session.
"""

from __future__ import annotations

import hashlib
import ipaddress

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.tables import login_failures

WINDOW_S = 900
ACCOUNT_FAILURES = 10
ADDRESS_FAILURES = 50
ROWS_MAX = 20_000  # accounts and addresses that are remembered; beyond it the oldest are forgotten


def account_subject(email: str) -> bytes:
    """An account, existing or not, as the table names it."""
    return hashlib.sha256(b"account\0" + email.encode()).digest()


def address_subject(address: str) -> bytes:
    """Where a try comes from. A network of IPv6 that one household has (/64) is one address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return hashlib.sha256(b"address\0" + address.encode()).digest()
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or ipaddress.IPv6Network((parsed, 64), strict=False).network_address
    return hashlib.sha256(b"address\0" + parsed.packed).digest()


async def admit(connection: AsyncConnection, email: str | None, address: str, now_us: int) -> int:
    """Count a try; the seconds it has to wait, 0 = it may be made. email None: a try without an account."""
    await _forget_old(connection, now_us)
    accounts = [] if email is None else [(account_subject(email), ACCOUNT_FAILURES)]
    for subject, allowed in ((address_subject(address), ADDRESS_FAILURES), *accounts):  # who is refused already counts against no account
        failures, since_us = await _count(connection, subject, now_us)
        if failures > allowed:
            return max(1, -((now_us - since_us) // 1_000_000 - WINDOW_S))
    return 0


async def take_back(connection: AsyncConnection, email: str, address: str) -> None:
    """The try was good: the account begins anew, the address has one failure less."""
    await connection.execute(delete(login_failures).where(login_failures.c.subject == account_subject(email)))
    one_less = update(login_failures).where(login_failures.c.subject == address_subject(address), login_failures.c.failures > 0)
    await connection.execute(one_less.values(failures=login_failures.c.failures - 1))


async def _count(connection: AsyncConnection, subject: bytes, now_us: int) -> tuple[int, int]:
    """(failures with this one, since when)"""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    known = login_failures.c
    fresh = known.since_us > now_us - WINDOW_S * 1_000_000
    statement = insert(login_failures).values(subject=subject, since_us=now_us, failures=1)
    again = statement.on_conflict_do_update(
        index_elements=[known.subject],
        set_={"failures": case((fresh, known.failures + 1), else_=1), "since_us": case((fresh, known.since_us), else_=now_us)},
    )
    row = (await connection.execute(again.returning(known.failures, known.since_us))).one()
    return int(row.failures), int(row.since_us)


async def _forget_old(connection: AsyncConnection, now_us: int) -> None:
    await connection.execute(delete(login_failures).where(login_failures.c.since_us <= now_us - WINDOW_S * 1_000_000))
    rows = (await connection.execute(select(func.count()).select_from(login_failures))).scalar_one()
    if rows > ROWS_MAX:
        oldest = select(login_failures.c.subject).order_by(login_failures.c.since_us).limit(rows - ROWS_MAX)
        await connection.execute(delete(login_failures).where(login_failures.c.subject.in_(oldest)))
