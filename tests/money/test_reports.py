"""Spend reports: to the nano-dollar what the rows say, whatever they are grouped by and wherever their days begin."""

from __future__ import annotations

import csv
import io
import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, select, update

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.db.rollup_tables import latency_rollups, rollups
from gateway.db.tables import attempts, usage
from gateway.errors import InvalidRequest, NotFound
from gateway.money import reports
from gateway.money.records import UsageRecord
from gateway.money.reports import Asked, Report, spend
from gateway.money.settling import settle
from gateway.money.windows import to_datetime, to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

NOVEMBER = to_us(datetime(2026, 11, 1, tzinfo=UTC))
DAY_US = 86_400_000_000


def cost_of(records: list[UsageRecord]) -> int:
    return sum(one.cost or 0 for one in records)


def by_group(report: Report) -> dict[tuple[str, ...], int]:
    return {line.group: line.cost for line in report.lines}


def assert_parts_make_the_whole(report: Report) -> None:
    for name in ("requests", "attempts", "cost", "saved", "adjusted", "unpriced", "estimated"):
        assert sum(getattr(line, name) for line in report.lines) == getattr(report.total, name), name
    for name in ("tokens", "outcomes"):
        columns = zip(*(getattr(line, name) for line in report.lines), strict=True)
        assert tuple(sum(column) for column in columns) == getattr(report.total, name), name


async def test_every_grouping_sums_to_what_the_rows_cost(database: Database) -> None:
    for name in ("search", "ads", "mail"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    records = mixed(300, NOVEMBER, NOVEMBER + 40 * DAY_US)
    await write(database.engine, records)
    outcomes = Counter(one.outcome for one in records)
    groupings: list[tuple[str, ...]] = [(), ("team", "backend"), ("org",), ("key", "tag", "route"), ("vendor", "model", "outcome")]
    groupings += [("day",), ("month", "team"), ("week", "outcome"), ("hour",)]
    for by in groupings:
        for timezone in ("UTC", "Asia/Kolkata", "America/St_Johns"):
            report = await spend(database.engine, Asked(by=by, timezone=timezone))
            assert_parts_make_the_whole(report)
            assert report.total.cost == cost_of(records)
            assert report.total.saved == sum(one.saved for one in records)
            assert report.total.requests == len(records)
            assert report.total.attempts == sum(len(one.attempts) for one in records)
            assert report.total.unpriced == sum(one.cost is None for one in records)
            assert dict(zip(reports.OUTCOMES, report.total.outcomes, strict=True)) == {name: outcomes[name] for name in reports.OUTCOMES}


async def test_an_attempts_cost_stands_at_its_own_backend(database: Database) -> None:
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    failover = record(NOVEMBER, [("smol", "failed", 3), ("openai", "completed", 52_000)])
    await write(database.engine, [failover, record(NOVEMBER, [("smol", "completed", 100)])])
    report = await spend(database.engine, Asked(by=("team", "backend")))
    rows = list(csv.DictReader(io.StringIO(reports.as_csv(report))))
    assert [(row["team"], row["backend"], row["requests"], row["attempts"], row["cost_usd"]) for row in rows] == [
        ("search", "openai", "1", "1", "0.000052000"),
        ("search", "smol", "1", "2", "0.000000103"),
    ]
    assert [(row["completed"], row["failed"]) for row in rows] == [("1", "0"), ("1", "0")]  # one logical request each


async def test_a_correction_is_in_the_cost_and_beside_it(database: Database) -> None:
    unknown = record(NOVEMBER, [("b", "unknown", 500)], outcome="unknown")
    late = replace(unknown, outcome="completed", cost=120, attempts=(replace(unknown.attempts[0], cost=120, outcome="completed"),))
    await write(database.engine, [unknown])
    await write(database.engine, [late])
    await write(database.engine, [late])
    report = await spend(database.engine, Asked(by=("outcome",)))
    assert by_group(report) == {("adjusted",): -380, ("unknown",): 500}
    assert (report.total.cost, report.total.adjusted, report.total.requests) == (120, -380, 1)


async def test_what_has_no_price_is_unknown_and_not_zero(database: Database) -> None:
    free = record(NOVEMBER, [("local", "completed", 0)])
    await write(database.engine, [record(NOVEMBER, [("new", "completed", None)]), free])
    report = await spend(database.engine, Asked(by=("backend",)))
    told = {row[0]: dict(zip(reports.columns(report), row, strict=True)) for row in map(reports.cells, report.lines)}
    assert (told["new"]["cost_usd"], told["new"]["unpriced"]) == ("unknown", 1)
    assert (told["local"]["cost_usd"], told["local"]["unpriced"]) == ("0.000000000", 0)
    assert report.total.unpriced == 1


async def test_names_are_those_of_people(database: Database) -> None:
    await people.add_team(database.engine, "search", "product", actor=COMMAND_LINE)
    _, key = await people.add_key(database.engine, b"s" * 32, people.NewKey(team="search"), actor=COMMAND_LINE)
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 5)], key_id=key.id)])
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 7)], team_id=99)])
    await people.delete_team(database.engine, "search", actor=COMMAND_LINE)
    report = await spend(database.engine, Asked(by=("org", "team", "key")))
    assert by_group(report) == {("product", "search", key.public): 5, ("product", "", ""): 7}


@pytest.mark.parametrize(
    ("timezone", "first"),
    [
        ("Europe/Berlin", "2026-10-23"),
        ("America/New_York", "2026-10-30"),
        ("Asia/Kolkata", "2026-10-23"),
        ("Australia/Lord_Howe", "2026-10-02"),
    ],
)
async def test_a_week_in_which_clocks_change_is_cut_at_local_midnight(database: Database, timezone: str, first: str) -> None:
    zone = ZoneInfo(timezone)
    start = datetime.fromisoformat(first).replace(tzinfo=zone)
    seeds = [start.astimezone(UTC) + timedelta(hours=hour, minutes=1) for hour in range(6 * 24)]
    await write(database.engine, [record(to_us(at), [("b", "completed", 1)]) for at in seeds])
    expected = Counter(at.astimezone(zone).date().isoformat() for at in seeds)
    report = await spend(database.engine, Asked(by=("day",), timezone=timezone))
    assert by_group(report) == {(day,): number for day, number in expected.items()}
    assert report.total.cost == len(seeds)
    hours = await spend(database.engine, Asked(by=("hour",), timezone=timezone))
    assert sum(by_group(hours).values()) == len(seeds)
    for day, number in expected.items():
        after = (datetime.fromisoformat(day) + timedelta(days=1)).date().isoformat()
        one = await spend(database.engine, Asked(by=(), since=day, until=after, timezone=timezone))
        assert one.total.cost == number, day


async def test_a_day_of_twenty_five_hours_has_them(database: Database) -> None:
    """G27: Europe/Amsterdam, 2026-10-25 is one day from 2026-10-24T22:00Z to 2026-10-25T23:00Z."""
    edges = ["2026-10-24T21:59:59", "2026-10-24T22:00:00", "2026-10-25T22:59:59", "2026-10-25T23:00:00"]
    instants = [to_us(datetime.fromisoformat(edge).replace(tzinfo=UTC)) for edge in edges]
    await write(database.engine, [record(at, [("b", "completed", 10**place)]) for place, at in enumerate(instants)])
    report = await spend(database.engine, Asked(by=("day",), timezone="Europe/Amsterdam"))
    assert by_group(report) == {("2026-10-24",): 1, ("2026-10-25",): 110, ("2026-10-26",): 1000}
    hours = await spend(database.engine, Asked(by=("hour",), timezone="Europe/Amsterdam", since="2026-10-25", until="2026-10-26"))
    assert by_group(hours) == {("2026-10-25T00:00+02:00",): 10, ("2026-10-25T23:00+01:00",): 100}


async def test_weeks_begin_on_monday_and_months_on_the_first(database: Database) -> None:
    for day, cost in ((1, 1), (2, 10), (8, 100), (30, 1000)):
        await write(database.engine, [record(NOVEMBER + (day - 1) * DAY_US, [("b", "completed", cost)])])
    await write(database.engine, [record(NOVEMBER + 30 * DAY_US, [("b", "completed", 10_000)])])
    weeks = await spend(database.engine, Asked(by=("week",)))
    assert by_group(weeks) == {("2026-10-26",): 1, ("2026-11-02",): 110, ("2026-11-30",): 11_000}
    months = await spend(database.engine, Asked(by=("month",)))
    assert by_group(months) == {("2026-11",): 1111, ("2026-12",): 10_000}


async def test_time_is_half_open_and_adjoining_reports_tile_it(database: Database) -> None:
    records = mixed(120, NOVEMBER, NOVEMBER + 2 * DAY_US, seed=2)
    await write(database.engine, records)
    for edge in ("2026-11-02", "2026-11-02T05:45:00Z", "2026-11-02T05:45:00+05:30"):
        before = await spend(database.engine, Asked(until=edge, timezone="Asia/Kathmandu"))
        after = await spend(database.engine, Asked(since=edge, timezone="Asia/Kathmandu"))
        assert before.until_us == after.since_us
        assert before.total.cost == cost_of([one for one in records if one.started_at_us < (before.until_us or 0)])
        assert before.total.cost + after.total.cost == cost_of(records)
        assert before.total.requests and after.total.requests


async def test_where_midnight_does_not_exist_the_day_begins_after_the_gap(database: Database) -> None:
    report = await spend(database.engine, Asked(since="2018-11-04", timezone="America/Sao_Paulo"))
    assert report.since_us == to_us(datetime(2018, 11, 4, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (Asked(by=("user",)), "by"),
        (Asked(by=("team", "team")), "by"),
        (Asked(timezone="Mars/Olympus"), "timezone"),
        (Asked(since="yesterday"), "since"),
        (Asked(since="2026-11-01T00:07:00Z"), "since"),
        (Asked(until="2026-11-31"), "until"),
        (Asked(until="9999-12-31"), "until"),
    ],
)
async def test_what_cannot_be_meant_is_refused(database: Database, asked: Asked, param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        await spend(database.engine, asked)
    assert told.value.param == param


async def test_an_empty_report_is_a_report(database: Database) -> None:
    report = await spend(database.engine, Asked(by=("team",)))
    assert report.lines == () and report.total.cost == 0
    assert reports.as_csv(report) == ",".join(reports.columns(report)) + "\n"


async def test_the_document_says_the_same_twice(database: Database) -> None:
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 1_234_567_890_123)])])
    document = reports.document(await spend(database.engine, Asked(by=("backend", "day"))))
    line = document["lines"][0]
    assert (line["backend"], line["day"], line["cost_usd"], line["cost_nanousd"]) == (
        "b",
        "2026-11-01",
        "1234.567890123",
        1_234_567_890_123,
    )
    assert document["total"]["cost_usd"] == "1234.567890123" and "backend" not in document["total"]


# ---- against values computed straight from the rows
def exact(values: list[int], share: float) -> int | None:
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1] if ordered else None


async def from_rows(database: Database, group: str, local: ZoneInfo) -> dict[str, dict[str, Any]]:
    """Requests, failed, failovers, shares and exact latencies of each group, from ledger rows and attempts alone."""
    found: dict[str, dict[str, Any]] = {}
    async with database.engine.connect() as connection:
        rows = (await connection.execute(select(usage))).mappings().all()
        tried = (await connection.execute(select(attempts))).mappings().all()
    for row in rows:
        at = to_datetime(row["started_at_us"]).astimezone(local)
        name = {"team": f"team-{row['team_id']}", "key": "", "day": at.date().isoformat(), "month": f"{at:%Y-%m}"}.get(group) or row.get(
            group
        )
        line = found.setdefault(str(name), {"requests": 0, "failed": 0, "failovers": 0, "estimated": 0, "ttft": [], "duration": []})
        line["requests"] += 1
        line["failed"] += row["outcome"] == "failed"
        line["estimated"] += row["estimated"]
        line["failovers"] += any(
            end["request_id"] == row["id"] and end["outcome"] == "failed" and end["backend"] != row["backend"] for end in tried
        )
        if row["outcome"] in ("completed", "cached"):
            line["duration"].append(row["duration_ms"])
            line["ttft"] += [] if row["ttft_ms"] is None else [row["ttft_ms"]]
    return found


@pytest.mark.parametrize(
    ("group", "timezone"),
    [
        ("team", "UTC"),
        ("team", "Asia/Kathmandu"),
        ("route", "UTC"),
        ("tag", "UTC"),
        ("day", "UTC"),
        ("day", "America/St_Johns"),
        ("month", "Europe/Berlin"),
    ],
)
async def test_latencies_and_rates_are_those_of_the_rows(database: Database, group: str, timezone: str) -> None:
    for number in (1, 2, 3):
        await people.add_team(database.engine, f"team-{number}", actor=COMMAND_LINE)
    chance = random.Random(5)
    records = [
        replace(
            one,
            ttft_ms=None if one.ttft_ms is None else int(chance.lognormvariate(6, 1)),
            duration_ms=int(chance.lognormvariate(8, 1)),
            usage=replace(one.usage, estimated=chance.random() < 0.2),
            outcome="failed" if one.outcome == "completed" and chance.random() < 0.2 else one.outcome,
        )
        for one in mixed(250, NOVEMBER - 3 * DAY_US, NOVEMBER + 4 * DAY_US, seed=6)
    ]
    await write(database.engine, records)
    report = await spend(database.engine, Asked(by=(group,), timezone=timezone))
    wanted = await from_rows(database, group, ZoneInfo(timezone))
    assert {line.group[0] for line in report.lines} == set(wanted)
    for line in report.lines:
        right = wanted[line.group[0]]
        failed = line.outcomes[reports.OUTCOMES.index("failed")]
        assert (line.requests, failed, line.failovers, line.estimated) == tuple(
            right[name] for name in ("requests", "failed", "failovers", "estimated")
        )
        _, estimated, errors, failovers = reports.shares(line)
        assert (estimated, errors, failovers) == tuple(right[name] / line.requests for name in ("estimated", "failed", "failovers"))
        for told, (metric, share) in zip(line.latencies, reports.LATENCIES, strict=True):
            true = exact(right[metric], share)
            assert (told is None) == (true is None)
            if told is not None and true is not None:
                assert abs(told - true) <= 0.0906 * true + 0.5, (line.group, metric, share)
    assert report.total.failovers > 5 and sum(line.latencies[3] is not None for line in report.lines) >= 2


async def test_a_month_by_team_reads_no_quarter_inside_of_it(database: Database) -> None:
    """What is by team comes from settled roll-ups, also at the edges, and what a quarter says there does not matter."""
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    records = [record(NOVEMBER + hour * DAY_US // 24, [("b", "completed", 10)]) for hour in range(-31, 60, 6)]
    await write(database.engine, records)
    await settle(database.engine)
    asked = Asked(by=("month", "team"), timezone="Europe/Berlin")
    before = await spend(database.engine, asked)
    assert by_group(before) == {("2026-10", "search"): 50, ("2026-11", "search"): 110}
    async with database.engine.begin() as connection:
        await connection.execute(update(rollups).values(cost=0))
        await connection.execute(delete(latency_rollups))
    assert (await spend(database.engine, asked)).lines == before.lines


async def test_one_team_alone(database: Database) -> None:
    for name in ("search", "ads"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    await write(database.engine, mixed(60, NOVEMBER, NOVEMBER + DAY_US))
    both = await spend(database.engine, Asked(by=("team", "backend")))
    for name in ("search", "ads"):
        alone = await spend(database.engine, Asked(by=("team", "backend"), team=name))
        assert alone.lines == tuple(line for line in both.lines if line.group[0] == name)
    with pytest.raises(NotFound, match="no team 'nobody'"):
        await spend(database.engine, Asked(team="nobody"))


async def test_a_report_that_is_too_long_says_so(database: Database) -> None:
    await write(database.engine, [record(NOVEMBER + n * reports.BUCKET_US, [("b", "completed", 1)]) for n in range(12)])
    assert len((await spend(database.engine, Asked(by=("hour",)), rows_max=3)).lines) == 3
    with pytest.raises(InvalidRequest, match="more than 2 rows") as told:
        await spend(database.engine, Asked(by=("hour",)), rows_max=2)
    assert told.value.param == "by"


async def test_foreign_text_is_no_formula(database: Database) -> None:
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 1)], tag="=cmd|' /C calc'!A0")])
    rows = list(csv.DictReader(io.StringIO(reports.as_csv(await spend(database.engine, Asked(by=("tag",)))))))
    assert rows[0]["tag"] == "'=cmd|' /C calc'!A0"
