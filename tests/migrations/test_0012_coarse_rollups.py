"""What only roll-ups by team still know of pruned time is carried over; everything later is left to be added up from its quarters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from tests.migrations.test_0003_retention import to

HOUR, DAY, QUARTER = 3_600_000_000, 86_400_000_000, 900_000_000
START = 20_000 * DAY
WORDS = {"route": "r", "backend": "b", "vendor": "v", "tag": "t"}


def filled(connection: Connection, pruned_us: int) -> None:
    """Two teams' requests in each of 30 hours; latencies by quarter are gone before pruned_us."""
    for hour in range(30):
        for team in (1, 2):
            at_us = START + hour * HOUR + QUARTER
            key = {"bucket_us": at_us, "org_id": 1, "team_id": team, "key_id": team, **WORDS, "model": f"m{team}", "outcome": "completed"}
            put(connection, "rollups", {**key, "requests": 1, "cost": 10**team})
            for span in (HOUR, DAY):
                there = {"span_us": span, "bucket_us": at_us - at_us % span, "org_id": 1, "team_id": team, "outcome": "completed"}
                add(connection, "team_rollups", there, {"requests": 1, "cost": 10**team})
                add(connection, "team_latency_rollups", {**there, "metric": "ttft", "octave": 3}, {"n1": 1})
            if at_us >= pruned_us:
                put(connection, "latency_rollups", {**key, "metric": "ttft", "octave": 3, "n1": 1})
    connection.execute(text(f"UPDATE retention SET pruned_until_us = {pruned_us}"))


def put(connection: Connection, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(row)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})"), row)


def add(connection: Connection, table: str, key: dict[str, Any], values: dict[str, int]) -> None:
    where = " AND ".join(f"{name} = :{name}" for name in key)
    more = ", ".join(f"{name} = {name} + {value}" for name, value in values.items())
    if not connection.execute(text(f"UPDATE {table} SET {more} WHERE {where}"), key).rowcount:
        put(connection, table, key | values)


def sums(connection: Connection, table: str, value: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(cut, span) -> (rows, sum of a value)"""
    rows = connection.execute(text(f"SELECT cut, span_us, count(*), sum({value}) FROM {table} GROUP BY cut, span_us"))
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


@pytest.mark.parametrize("pruned_us", [0, START + 26 * HOUR + 2 * QUARTER])
def test_pruned_time_is_carried_over(tmp_path: Path, pruned_us: int) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0011")
        filled(connection, pruned_us)
        to(connection, "0012")
        until_us = connection.execute(text("SELECT until_us FROM settled")).scalar_one()
        left = {row[0] for row in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'"))}
        assert "team_rollups" not in left and "team_latency_rollups" not in left
        costs, bins = sums(connection, "coarse_rollups", "cost"), sums(connection, "coarse_latency_rollups", "n1")
        if not pruned_us:
            assert (until_us, costs, bins) == (0, {}, {})
            return
        assert until_us == START + 27 * HOUR, "the hour that was pruned in part is carried over whole"
        hours, day = 27 * 110, 24 * 110
        assert costs == {
            ("all", HOUR): (27, hours),
            ("team", HOUR): (54, hours),
            ("place", HOUR): (54, hours),
            ("all", DAY): (1, day),
            ("team", DAY): (2, day),
            ("place", DAY): (2, day),
            ("who", DAY): (2, day),
            ("both", DAY): (2, day),
        }
        assert bins == {("all", HOUR): (27, 54), ("team", HOUR): (54, 54), ("all", DAY): (1, 48), ("team", DAY): (2, 48)}
    engine.dispose()


def test_what_was_pruned_within_the_last_hour_is_not_taken_for_settled(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0011")
        now_us = connection.execute(text("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000")).scalar_one()
        filled(connection, now_us)
        to(connection, "0012")
        until_us = connection.execute(text("SELECT until_us FROM settled")).scalar_one()
        assert now_us - 2 * HOUR <= until_us <= now_us - HOUR + 60_000_000
    engine.dispose()
