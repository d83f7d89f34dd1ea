"""An operator's word about a lost process."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import text, update

from gateway.db.session import open_session
from gateway.db.tables import gateway_processes
from gateway.errors import InvalidRequest, NotFound
from gateway.money.audit import audit
from gateway.money.leases import Ask
from gateway.money.sync import Payload, make_window, register, sync
from gateway.processes import close_lost, list_processes
from tests.conftest import Database
from tests.fixtures.money import add_budget

LOST, OTHER = UUID(int=1), UUID(int=2)


async def holding(database: Database) -> None:
    """Two processes; the first holds 300 and has been silent for two minutes."""
    await add_budget(database.engine, limit=1000)
    session = open_session(database.engine)
    window = await session.run(make_window(session.dialect, 1, 0, None))
    assert window is not None
    for process in (LOST, OTHER):
        await session.run(register(session.dialect, process, "host", "boot", "folder"))
    await session.run(sync(session.dialect, Payload(process=LOST, seq=0, asks=(Ask(window_id=window, want=300),))))
    await session.close()
    async with database.engine.begin() as connection:
        moved = gateway_processes.c.heartbeat_at_us - 120_000_000
        await connection.execute(update(gateway_processes).where(gateway_processes.c.id == LOST).values(heartbeat_at_us=moved))


async def window(database: Database) -> tuple[int, int]:
    async with database.engine.connect() as connection:
        row = (await connection.execute(text("SELECT spent, leased FROM budget_windows"))).one()
        return int(row.spent), int(row.leased)


@pytest.mark.parametrize(("charge", "left"), [(True, (300, 0)), (False, (0, 0))])
async def test_what_it_holds_is_booked_or_given_back(database: Database, charge: bool, left: tuple[int, int]) -> None:
    await holding(database)
    assert await window(database) == (0, 300)
    found = await list_processes(database.engine)
    assert [(one.id, one.held, one.windows, one.lost) for one in found] == [(LOST, 300, 1, True), (OTHER, 0, 0, False)]
    await close_lost(database.engine, LOST, charge=charge)
    assert await window(database) == left
    assert [one.id for one in await list_processes(database.engine)] == [OTHER]
    assert [one.state for one in await list_processes(database.engine, closed=True)] == ["live", "closed"]
    with pytest.raises(InvalidRequest, match="closed already"):
        await close_lost(database.engine, LOST, charge=charge)
    assert (await audit(database.engine)).broken == []


async def test_a_living_one_is_left_alone(database: Database) -> None:
    await holding(database)
    with pytest.raises(InvalidRequest, match="stop it"):
        await close_lost(database.engine, OTHER, charge=False)
    with pytest.raises(NotFound):
        await close_lost(database.engine, uuid4(), charge=True)
    assert await window(database) == (0, 300)
