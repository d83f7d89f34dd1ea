"""The ledger added up in steps: it says how far it is, comes to what the roll-ups say, and finds the stretch where it does not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sqlalchemy import select, text

from gateway.db.tables import usage
from gateway.errors import InvalidRequest, NotFound
from gateway.money.ledger import DAY_US, HOUR_US
from gateway.views.ledger_check import Checked, Step, check, cut
from gateway.views.spend import Asked
from tests.conftest import Database
from tests.views.test_series import NOVEMBER
from tests.views.test_spend import asked, filled


async def told(database: Database, wanted: Asked) -> tuple[list[Step], Checked]:
    found = [one async for one in check(database.engine, wanted)]
    steps, (last,) = [one for one in found if isinstance(one, Step)], [one for one in found if isinstance(one, Checked)]
    assert found[-1] is last
    return steps, last


async def test_it_says_how_far_it_is_and_comes_to_the_ledger(database: Database) -> None:
    records = await filled(database)
    steps, found = await told(database, asked("team"))
    assert steps[0] == Step(0, len(records)) and steps[-1] == Step(len(records), len(records))
    assert all(a.done <= b.done and a.total == b.total for a, b in pairwise(steps)) and len(steps) > 10
    cost = sum(one.cost or 0 for one in records)  # type: ignore[attr-defined]
    assert (found.rolled, found.ledger, found.differs) == (cost, cost, None)
    _, one = await told(database, asked("model", team="two", where={"route": frozenset(("code", "none"))}))
    assert 0 < one.ledger == one.rolled < cost

    row = usage.c
    async with database.engine.begin() as connection:
        dear = (await connection.execute(select(row.id, row.started_at_us).where(row.cost > 0).order_by(row.id.desc()).limit(1))).one()
        await connection.execute(usage.update().where(row.id == dear.id).values(cost=row.cost + 5))
    _, wrong = await told(database, asked("team"))
    assert (wrong.rolled, wrong.ledger) == (cost, cost + 5)
    assert wrong.differs is not None and wrong.differs[0] <= dear.started_at_us < wrong.differs[1] <= wrong.differs[0] + HOUR_US


async def test_only_what_is_seen_and_can_be_told_is_added_up(database: Database) -> None:
    await filled(database)
    _, mine = await told(database, asked("team", scope=frozenset((2,))))
    assert 0 < mine.ledger == mine.rolled < (await told(database, asked("team")))[1].ledger
    with pytest.raises(NotFound):
        await told(database, asked("team", team="one", scope=frozenset((2,))))
    with pytest.raises(InvalidRequest, match="route and tag"):
        await told(database, asked("team", where={"backend": frozenset(("a",))}))
    async with database.engine.begin() as connection:
        await connection.execute(text(f"UPDATE retention SET pruned_until_us = {NOVEMBER + 1}"))
    with pytest.raises(InvalidRequest, match="begins later"):
        await told(database, asked("team"))


def test_a_stretch_of_many_requests_is_cut_so_that_no_statement_reads_too_many() -> None:
    assert cut(0, DAY_US, 0, 10) == cut(0, DAY_US, 10, 10) == [(0, DAY_US)]
    parts = cut(0, DAY_US, 35, 10)
    assert len(parts) == 4 and parts[0][0] == 0 and parts[-1][1] == DAY_US
    assert all(a[1] == b[0] for a, b in pairwise(parts))
