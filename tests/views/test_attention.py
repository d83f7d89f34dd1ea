"""What needs a hand, for every page: of what a caller sees, and not told once it is old."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gateway import people
from gateway.access import COMMAND_LINE, Actor
from gateway.backend_watch import BackendWatch
from gateway.board import Board, Told
from gateway.catalog import Catalog
from gateway.db.engine import make_engine
from gateway.errors import InvalidRequest
from gateway.routing.router import Router
from gateway.settings import Storage
from gateway.views import attention
from gateway.views.attention import Attention
from tests.api.test_admin import CATALOG
from tests.conftest import Database
from tests.fixtures.ledger import record, write

ADMIN, BOTH = Actor(name="a", role="admin"), Actor(name="b", role="team_admin", teams={1: "team_admin", 2: "member"})
MINUTE_US = 60_000_000


class Parts(Struct):
    """What it needs of a worker."""

    catalog: Catalog
    router: Router


def parts() -> Parts:
    made = Parts(CATALOG, Router())
    made.router.states(CATALOG)
    return made


async def budget(database: Database, kind: str, scope: str, nanousd: int) -> None:
    new = people.NewBudget(scope_kind=kind, scope=scope, limit_nanousd=nanousd, period="total")
    await people.set_budget(database.engine, new, actor=COMMAND_LINE)


async def test_budgets_and_failures_are_those_that_are_seen(database: Database, tmp_path: Path) -> None:
    for name in ("one", "two"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    key = (await people.add_key(database.engine, b"s" * 32, people.NewKey(team="one"), actor=COMMAND_LINE))[1].public
    now_us = time.time_ns() // 1000
    failed = [record(now_us - MINUTE_US, [("a", "failed", 3)], outcome="failed", team_id=2) for _ in range(6)]
    await write(database.engine, [*failed, record(now_us - MINUTE_US, [("a", "completed", 3)], team_id=1)])
    for kind, scope, limit in (("organisation", "default", 1), ("team", "one", 10**9), ("team", "two", 0), ("key", key, 0)):
        await budget(database, kind, scope, limit)
    made = Attention(database.engine, Board(tmp_path, "0"))
    assert (made.counts(parts(), ADMIN), made.burn(None)) == ({}, None), "nothing is said before anything is known"
    await made.look()
    assert made.counts(parts(), ADMIN) == {"budgets": 3}
    assert made.counts(parts(), BOTH) == {"budgets": 1}, "its team's key; it is no admin of the other team"
    assert made.burn(None) is not None and made.burn(frozenset((2,))) is not None and made.burn(frozenset((1,))) is None


async def test_what_cannot_be_read_hides_nothing_else(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await people.add_team(database.engine, "one", actor=COMMAND_LINE)
    await budget(database, "team", "one", 0)
    made = Attention(database.engine, Board(tmp_path, "0"))

    async def gives_up(_: object) -> None:
        raise InvalidRequest("The database gave up on this report.")

    monkeypatch.setattr(attention, "read_failures", gives_up)
    await made.look()
    assert (made.counts(parts(), ADMIN), made.burn(None)) == ({"budgets": 1}, None)


async def test_what_is_old_is_not_told(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await people.add_team(database.engine, "one", actor=COMMAND_LINE)
    await budget(database, "team", "one", 0)
    made = Attention(database.engine, Board(tmp_path, "0"))
    await made.look()
    assert made.counts(parts(), ADMIN) == {"budgets": 1}
    monkeypatch.setattr(attention, "STALE_S", -1.0)
    assert (made.counts(parts(), ADMIN), made.burn(None)) == ({}, None)


async def test_backends_are_those_that_any_worker_of_this_gateway_does_not_ask(tmp_path: Path) -> None:
    """Also while the database is away."""
    here, now = parts(), time.time()
    engine = make_engine(Storage(state_dir=str(tmp_path / "nothing")))
    made = Attention(engine, Board(tmp_path, "0"))
    await made.look()
    assert made.counts(here, ADMIN) == {}
    views = here.router.snapshot(time.monotonic())
    there = [replace(one, state="ejected" if one.backend == "dear" else "ready") for one in views]
    gone = replace(views[0], backend="gone", state="ejected")
    word = Told(worker="1", at=now + 3600, settings="h", since=now, catalog="v", views=[*there, gone])
    Board(tmp_path, "1").leave(word, BackendWatch())
    await made.look()
    assert made.counts(here, ADMIN) == {"backends": 1}, "what nobody knows any more is not counted"
    for name in ("cheap", "dear"):
        here.router.states(CATALOG)[name].health.wait_until = time.monotonic() + 600.0
    assert made.counts(here, ADMIN) == {"backends": 2}, "its own belief at once, and nothing twice"
    await engine.dispose()
