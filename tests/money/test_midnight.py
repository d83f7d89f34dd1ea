"""Days of a week in which clocks change, in budgets and reports alike; requests open across midnight count once, where they began."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from gateway.money.accounts import Accounts, Hold, Scope
from gateway.money.audit import audit
from gateway.money.reports import Asked, spend
from gateway.money.windows import to_datetime, to_us
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.money import CENT, add_budget, intent_of, patiently, record_of

SCOPE = Scope(1, 1, 1, "assistant")
STREAMS = 100


@pytest.mark.parametrize(
    ("storage", "timezone", "change"),
    [
        ("sqlite", "Europe/Amsterdam", "2026-10-25"),  # a day of 25 hours
        ("postgres", "Australia/Lord_Howe", "2026-10-04"),  # half an hour is skipped
        ("sqlite", "Asia/Kolkata", "2026-10-25"),  # half an hour off UTC, no change
    ],
    indirect=["storage"],
)
async def test_budgets_and_reports_agree_on_every_day(database: Database, tmp_path: Path, timezone: str, change: str) -> None:
    zone, rng = ZoneInfo(timezone), random.Random(7)
    accounts = await Accounts.open(database.engine, Money(tick_s=0.02, segment_bytes=1 << 20), tmp_path / "journal")
    accounts.set_budgets([await add_budget(database.engine, limit=100_000 * CENT, period="day", timezone=timezone)])
    first = datetime.fromisoformat(change).replace(tzinfo=zone) - timedelta(days=3)
    hours = [to_us(first.astimezone(UTC) + timedelta(hours=hour, minutes=29)) for hour in range(0, 7 * 24, 2)]
    midnight = to_us((datetime.fromisoformat(change) + timedelta(days=1)).replace(tzinfo=zone))
    last_second = [midnight - 1 - rng.randrange(1_000_000) for _ in range(STREAMS)]
    costs: dict[UUID, tuple[int, int]] = {}

    async def begin(at_us: int) -> tuple[UUID, Hold, int]:
        request_id = accounts.new_request_id()
        got = await patiently(accounts, SCOPE, CENT, at_us)
        assert isinstance(got, Hold), got
        accounts.intent(intent_of(request_id, at_us, got, CENT))
        return request_id, got, at_us

    began = await asyncio.gather(*(begin(at_us) for at_us in [*hours, *last_second, midnight]))
    for request_id, hold, at_us in began:  # the streams end an hour after midnight
        cost = rng.randint(1, CENT)
        costs[request_id] = at_us, cost
        accounts.settle(hold, record_of(request_id, at_us, hold, cost))
    await accounts.close(wait_s=30.0)

    expected: dict[str, int] = {}
    for at_us, cost in costs.values():
        day = to_datetime(at_us).astimezone(zone).date().isoformat()
        expected[day] = expected.get(day, 0) + cost
    async with database.engine.connect() as connection:
        windows = (await connection.execute(text("SELECT starts_at_us, ends_at_us, spent FROM budget_windows ORDER BY 1"))).all()
    assert {to_datetime(row[0]).astimezone(zone).date().isoformat(): row[2] for row in windows} == expected
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(windows)), "no two days overlap"
    report = await spend(database.engine, Asked(by=("day",), timezone=timezone))
    assert {line.group[0]: line.cost for line in report.lines} == expected
    assert report.total.cost == sum(row[2] for row in windows) == sum(cost for _, cost in costs.values())
    assert report.total.requests == len(costs)
    assert (await audit(database.engine)).broken == []
    assert len(expected) == 7
