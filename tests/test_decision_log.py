"""Records of choices on their way to SQL: bounded, lost rather than late, kept for so many days."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import func, select, text

from gateway import decision_log
from gateway.auth import Principal
from gateway.catalog import Catalog, Route
from gateway.db.tables import decisions
from gateway.decision_log import MICROSECONDS_A_DAY, DecisionLog
from gateway.exchange import Exchange
from gateway.routing.choose import Knobs, choose
from gateway.routing.decision import Asked, decode
from gateway.routing.state import BackendState
from providers.types import Request
from tests.conftest import Database
from tests.routing.conftest import make_backend, make_features

NOW_US = 1_800_000_000_000_000
CATALOG = Catalog(version="v", backends={}, routes={"assistant": Route(name="assistant", backends=())})


def decided(made_at_us: int = NOW_US) -> Exchange:
    """A request whose choice was made."""
    features = make_features()
    who = Principal(org_id=1, team_id=7, key_id=3)
    x = Exchange(uuid4(), who, Request(dialect="openai_chat", fields={}, model="assistant"), CATALOG, features)
    x.started_us = made_at_us
    x.decision = choose(features, [BackendState(make_backend())], 0.0, 0.5, Knobs())[1]
    return x


async def kept(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(func.count()).select_from(decisions))).scalar_one())


async def test_a_record_is_written_as_it_was_and_one_without_a_choice_is_not(database: Database) -> None:
    log, x, cached = DecisionLog(database.engine, 10, 14), decided(), decided()
    cached.decision = None
    x.request.temperature, x.request.dropped, x.request.clamped, x.cache_why = 0.5, ("logit_bias",), 77, "temperature"
    log.put(x)
    log.put(cached)
    await log.flush()
    async with database.engine.connect() as connection:
        row = (await connection.execute(select(decisions))).one()
    assert (row.request_id, row.made_at_us, row.team_id, decode(bytes(row.record))) == (x.id, NOW_US, 7, x.decision)
    assert x.decision is not None and x.decision.asked == Asked((("temperature", 0.5),), ("logit_bias",), 77, "temperature")
    assert log.lost == 0


async def test_a_full_queue_loses_the_newest_and_says_how_many(database: Database) -> None:
    log = DecisionLog(database.engine, 2, 14)
    for _ in range(5):
        log.put(decided())
    await log.flush()
    assert (await kept(database), log.lost) == (2, 3)


async def test_what_the_database_does_not_take_is_lost_and_nothing_waits_for_it(database: Database) -> None:
    log = DecisionLog(database.engine, 10, 14)
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE decisions RENAME TO away"))
    log.put(decided())
    await log.flush()
    assert (log.lost, log.waiting) == (1, [])
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE away RENAME TO decisions"))
    log.put(decided())
    await log.flush()
    assert (await kept(database), log.lost) == (1, 1)


async def test_records_are_kept_for_their_days(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "EXPIRED_AT_ONCE", 3)
    log = DecisionLog(database.engine, 100, 14)
    old, young = NOW_US - 14 * MICROSECONDS_A_DAY - 1, NOW_US - 14 * MICROSECONDS_A_DAY
    for made_at_us in (*[old] * 7, *[young] * 2):
        log.put(decided(made_at_us))
    await log.flush()
    assert await log.expire(NOW_US) == 7, "some at a time, until none is left"
    assert (await kept(database), await log.expire(NOW_US)) == (2, 0)
