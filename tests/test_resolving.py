"""Who settles an unknown request stands in the audit log, with what was booked before and after; what is not settled leaves no row."""

from __future__ import annotations

import pytest

from gateway import audit, resolving
from gateway.access import COMMAND_LINE
from gateway.errors import InvalidRequest
from tests.conftest import Database
from tests.fixtures.ledger import record, write


async def test_it_is_booked_once_and_told_once(database: Database) -> None:
    lost = record(1, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [lost])
    assert await resolving.resolve(database.engine, lost.id, 120, actor=COMMAND_LINE) == -380
    with pytest.raises(InvalidRequest, match="resolved already"):
        await resolving.resolve(database.engine, lost.id, 7, actor=COMMAND_LINE)
    rows, _ = await audit.read(database.engine, audit.Asked())
    assert [(one.actor, one.action, one.ident, one.before, one.after) for one in rows] == [
        ("command line", "ledger.resolve", str(lost.id), {"usd": "0.000000500"}, {"usd": "0.000000120"})
    ]
