"""Rate limits in the database, as every worker's snapshot sees them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway import people, rates
from gateway.access import COMMAND_LINE
from gateway.auth import Keyring
from gateway.errors import InvalidRequest, NotFound
from gateway.money.budgets import BudgetRow
from gateway.money.limits import LimitRow
from gateway.snapshot import Snapshot
from tests.conftest import Database

SECRET = b"s" * 32


class Taken:
    def __init__(self) -> None:
        self.rows: list[LimitRow] = []

    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None:
        """Not looked at here."""

    def set_limits(self, rows: Sequence[LimitRow]) -> None:
        self.rows = list(rows)


async def test_a_change_reaches_the_snapshot(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    _, key = await people.add_key(database.engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    taken = Taken()
    snapshot = Snapshot(database.engine, Keyring((SECRET,), database.engine), taken, limiter=taken)
    made = await rates.set_limit(database.engine, rates.NewLimit(scope_kind="key", scope=key.public, rpm=5), actor=COMMAND_LINE)
    assert await snapshot.load()
    assert taken.rows == [LimitRow(id=made.id, scope_kind="key", scope_id=key.id, rpm=5)]
    again = await rates.set_limit(
        database.engine, rates.NewLimit(scope_kind="key", scope=key.public, tpm=7, parallel=0), actor=COMMAND_LINE
    )
    assert again == rates.Limit(id=made.id, scope_kind="key", scope=key.public, model=None, rpm=None, tpm=7, parallel=0)
    other = await rates.set_limit(
        database.engine, rates.NewLimit(scope_kind="team", scope="alpha", rpm=1, model="assistant"), actor=COMMAND_LINE
    )
    assert other.id != made.id
    assert [one.id for one in await rates.list_limits(database.engine)] == [made.id, other.id]
    await rates.delete_limit(database.engine, made.id, actor=COMMAND_LINE)
    assert await snapshot.load()
    assert [(row.id, row.model) for row in taken.rows] == [(other.id, "assistant")]
    with pytest.raises(NotFound):
        await rates.delete_limit(database.engine, made.id, actor=COMMAND_LINE)


@pytest.mark.parametrize(
    "new",
    [
        rates.NewLimit(scope_kind="team", scope="alpha"),
        rates.NewLimit(scope_kind="team", scope="alpha", rpm=-1),
        rates.NewLimit(scope_kind="team", scope="alpha", rpm=1, model=""),
        rates.NewLimit(scope_kind="planet", scope="alpha", rpm=1),
    ],
)
async def test_what_makes_no_sense_is_refused(database: Database, new: rates.NewLimit) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    with pytest.raises(InvalidRequest):
        await rates.set_limit(database.engine, new, actor=COMMAND_LINE)
    assert await rates.list_limits(database.engine) == []
