"""`tollway processes`."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.session import open_session
from gateway.db.tables import gateway_processes
from gateway.money.sync import register
from tests.cli.conftest import Tollway
from tests.cli.test_ledger import OnDatabase
from tests.money.test_audit import PROCESS


async def lost(engine: AsyncEngine) -> None:
    session = open_session(engine)
    await session.run(register(session.dialect, PROCESS, "host-7", "boot", "/folder"))
    await session.close()
    async with engine.begin() as connection:
        await connection.execute(update(gateway_processes).values(heartbeat_at_us=1))


def test_a_lost_one_is_listed_and_closed(tollway: Tollway, on_database: OnDatabase) -> None:
    on_database(lost)
    head, row = tollway("processes", "list").lines
    told = dict(zip(head.split(), row.split(), strict=True))
    assert (told["process"], told["host"], told["state"], told["held_usd"]) == (str(PROCESS), "host-7", "lost", "0.000000000")
    closed = tollway("processes", "close", str(PROCESS), "--charge")
    assert closed.status == 0 and "booked as spent" in closed.out
    assert len(tollway("processes", "list").lines) == 1
    assert len(tollway("processes", "list", "--closed").lines) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((str(PROCESS),), "one of --charge and --release"),
        ((str(PROCESS), "--charge", "--release"), "one of --charge and --release"),
        (("banana", "--charge"), "no process id"),
        ((str(PROCESS), "--charge"), "no process"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tollway: Tollway, words: tuple[str, ...], told: str) -> None:
    refused = tollway("processes", "close", *words)
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1
