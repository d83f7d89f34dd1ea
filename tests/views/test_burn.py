"""How fast a month's errors are used up: the paces are those of the alerts, and what is read is what was written."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from gateway.views import burn
from gateway.views.burn import ALLOWED, FEWEST, PACES, Counts
from tests.conftest import Database
from tests.fixtures.ledger import record, write

MINUTE_US = 60_000_000
ALERTS = Path(__file__).resolve().parents[2] / "dashboards" / "prometheus" / "alerts.yml"
NAMES = {"5m": 5, "30m": 30, "1h": 60, "6h": 360}


def test_the_level_and_the_paces_are_those_of_the_alerts() -> None:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"] if rule.get("alert", "").startswith("SloBurns")]
    said = []
    for rule in rules:
        terms = re.findall(r"failed_share:rate(\w+) > ([\d.]+) \* ([\d.]+)", rule["expr"])
        (long, factor, allowed), (short, *same) = terms
        assert same == [factor, allowed] and float(allowed) == ALLOWED
        said.append((NAMES[long] * MINUTE_US, NAMES[short] * MINUTE_US, float(factor), rule["labels"]["severity"] == "page"))
    assert said == [(pace.long_us, pace.short_us, pace.factor, pace.bad) for pace in PACES]


def counted(**failed_of_1000: int) -> Counts:
    """Of one team: failed of a thousand requests in each window."""
    return {NAMES[name[1:]] * MINUTE_US: {1: (1000, failed)} for name, failed in failed_of_1000.items()}


@pytest.mark.parametrize(
    ("failed", "pace"),
    [
        (counted(_5m=73, _30m=73, _1h=73, _6h=73), 0),  # 14.4 times 0.5 % are 7.2 %
        (counted(_5m=72, _30m=72, _1h=72, _6h=72), 1),
        (counted(_5m=0, _30m=73, _1h=73, _6h=73), 1),  # it does not go on
        (counted(_5m=500, _30m=10, _1h=20, _6h=10), None),  # it does not matter yet
        (counted(_5m=0, _30m=31, _1h=0, _6h=31), 1),  # 6 times 0.5 % are 3 %
        (counted(_5m=30, _30m=30, _1h=30, _6h=30), None),
    ],
)
def test_both_windows_of_a_pace_must_pass_it(failed: Counts, pace: int | None) -> None:
    found = burn.burn(failed, None)
    assert (None if found is None else found.pace) == (None if pace is None else PACES[pace])
    assert burn.burn(failed, frozenset((2,))) is None, "of a team that did nothing"


def test_it_says_for_how_long_a_month_s_errors_last() -> None:
    found = burn.burn(counted(_5m=100, _30m=100, _1h=100, _6h=100), frozenset((1,)))
    assert found is not None and found.share == 0.1 and found.hours == pytest.approx(30 * 24 / 20)  # twenty times what is allowed


def test_a_few_failures_are_no_pace() -> None:
    def of(failed: int) -> Counts:
        return {us: {1: (failed + 1, failed)} for pace in PACES for us in (pace.long_us, pace.short_us)}

    assert burn.burn(of(FEWEST - 1), None) is None and burn.burn(of(FEWEST), None) is not None
    assert burn.burn({us: {} for pace in PACES for us in (pace.long_us, pace.short_us)}, None) is None


async def test_what_is_read_is_what_was_written(database: Database) -> None:
    now_us = time.time_ns() // 1000
    rows = [
        *(record(now_us - 60 * 1_000_000, [("a", "failed", None)], outcome="failed", team_id=1) for _ in range(3)),
        *(record(now_us - 60 * 1_000_000, [("a", "completed", 5)], team_id=1) for _ in range(2)),
        record(now_us - 50 * MINUTE_US, [("a", "failed", None)], outcome="failed", team_id=1),
        record(now_us - 5 * 60 * MINUTE_US, [("a", "completed", 5)], team_id=2),
        record(now_us - 7 * 60 * MINUTE_US, [("a", "failed", None)], outcome="failed", team_id=2),
    ]
    await write(database.engine, rows)
    found = await burn.read(database.engine)
    assert found[5 * MINUTE_US] == {1: (5, 3)} or not found[5 * MINUTE_US], "a minute ago, unless this machine stood still for four"
    assert found[60 * MINUTE_US] == {1: (6, 4)} and found[360 * MINUTE_US] == {1: (6, 4), 2: (1, 0)}
    assert found[30 * MINUTE_US] == {1: (5, 3)}
