"""A request without a row: what its own worker knows of it, what others read in journals, and who is told."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import people
from gateway.access import ADMIN, COMMAND_LINE, MEMBER, TEAM_ADMIN, Actor
from gateway.exchange import Exchange
from gateway.money.accounts import Accounts
from gateway.settings import Money
from gateway.views import under_way
from gateway.views.under_way import RUNS, WRITES, Call, of_exchange, of_journal
from tests.conftest import Database
from tests.fixtures.money import end_of, intent_of, record_of
from tests.test_decision_log import decided

BOSS = Actor(name="key a", role=ADMIN)


class Worker(Struct):
    engine: AsyncEngine
    accounts: Accounts
    pipeline: Worker.Served

    class Served(Struct):
        in_flight: list[Exchange] = []


def test_a_journal_says_whom_it_asked_and_how_that_ended() -> None:
    asked = uuid4()
    first, failed = intent_of(asked, 77, None, 5), end_of(asked, 0, outcome="failed")
    second = intent_of(asked, 77, None, 5, n=2)
    assert of_journal([]) is None and of_journal([failed]) is None, "an end alone does not say whose it was"
    told = of_journal([first])
    assert told is not None and (told.id, told.state, told.team_id, told.started_at_us) == (asked, RUNS, 1, 77)
    assert told.calls == (Call(n=1, backend="b"),) and told.pieces is None
    told = of_journal([first, failed, second])
    assert told is not None and [(one.n, one.outcome) for one in told.calls] == [(1, "failed"), (2, "")]
    told = of_journal([first, record_of(asked, 77, None, 5)])
    assert told is not None and (told.state, told.outcome, told.calls[0].outcome) == (WRITES, "completed", "completed")
    assert "is being written" in told.told


def test_its_own_worker_knows_what_it_chose() -> None:
    x = decided()
    told = of_exchange(x)
    assert (told.state, told.calls, told.pieces, told.decision) == (RUNS, (), 0, x.decision)
    assert str(x.id) in told.told and "still runs" in told.told
    x.outcome = "completed"
    assert of_exchange(x).state == WRITES


async def test_who_may_see_its_row_may_see_it_before_and_nobody_else(database: Database, tmp_path: Path) -> None:
    await people.add_team(database.engine, "growth", actor=COMMAND_LINE)
    accounts = await Accounts.open(database.engine, Money(), tmp_path / "journal")
    try:
        worker = Worker(database.engine, accounts, Worker.Served())
        asked = accounts.new_request_id()
        accounts.intent(intent_of(asked, accounts.now_us(), None, 5))
        seen = await under_way.find(worker, BOSS, asked)
        assert seen is not None and (seen.team, seen.route, seen.key) == ("growth", "assistant", "")
        assert await under_way.find(worker, Actor(name="t", role=TEAM_ADMIN, teams={1: TEAM_ADMIN}), asked) is not None
        for blind in (
            Actor(name="t", role=TEAM_ADMIN, teams={2: TEAM_ADMIN}),
            Actor(name="m", role=MEMBER, teams={1: MEMBER}, member_id=9),
            Actor(name="m", role=MEMBER),
        ):
            assert await under_way.find(worker, blind, asked) is None
        assert await under_way.find(worker, BOSS, accounts.new_request_id()) is None
        assert await accounts.journalled(UUID(int=asked.int & (1 << 80) - 1 | 5 << 80)) == [], "one of 1970 is not looked for"
        assert await accounts.journalled(uuid4()) == []
        x = decided()
        worker.pipeline.in_flight.append(x)
        assert await under_way.find(worker, Actor(name="t", role=TEAM_ADMIN, teams={7: TEAM_ADMIN}), x.id) is not None
    finally:
        await accounts.close()
