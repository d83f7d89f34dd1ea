"""`tollway report`: the same figures as table, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.money.windows import to_us
from tests.cli.conftest import Tollway
from tests.fixtures.ledger import mixed, record, write

NOVEMBER = to_us(datetime(2026, 11, 1, tzinfo=UTC))


def test_csv_equals_the_rows_to_the_nano_dollar(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    tollway("teams", "add", "search")
    records = mixed(80, NOVEMBER, NOVEMBER + 86_400_000_000)
    on_database(lambda engine: write(engine, records))
    said = tollway("report", "--by", "team,backend", "--format", "csv")
    assert said.status == 0 and said.err == ""
    rows = list(csv.DictReader(io.StringIO(said.out)))
    priced = [Decimal(row["cost_usd"]) for row in rows if row["cost_usd"] != "unknown"]
    assert sum(priced) * 10**9 == sum(one.cost or 0 for one in records)
    assert {row["backend"] for row in rows if row["cost_usd"] == "unknown"} == {"c"}
    document = json.loads(tollway("report", "--by", "team,backend", "--format", "json").out)
    assert [line["cost_usd"] for line in document["lines"]] == [row["cost_usd"] for row in rows]
    assert document["total"]["cost_nanousd"] == sum(one.cost or 0 for one in records)


def test_the_table_has_a_total_and_no_empty_columns(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    tollway("teams", "add", "search")
    on_database(lambda engine: write(engine, [record(NOVEMBER, [("a", "failed", 3), ("b", "completed", 52_000)])]))
    head, *lines = [line.split() for line in tollway("report", "--by", "backend").lines]
    assert "cache_write_5m_tokens" not in head and "refused" not in head and "failed" not in head
    costs = [dict(zip(head, line, strict=True))["cost_usd"] for line in lines]
    assert costs == ["0.000000003", "0.000052000", "0.000052003"]
    assert [line[0] for line in lines] == ["a", "b", "total"]


def test_time_is_local(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    on_database(lambda engine: write(engine, [record(NOVEMBER - 1, [("b", "completed", 7)])]))
    berlin = ("report", "--by", "day", "--format", "csv", "--timezone", "Europe/Berlin")
    assert tollway(*berlin).lines[1].startswith("2026-11-01,1,")
    assert len(tollway(*berlin, "--since", "2026-11-02").lines) == 1
    assert len(tollway(*berlin, "--until", "2026-11-02").lines) == 2


def test_an_unknown_grouping_is_one_line(tollway: Tollway) -> None:
    refused = tollway("report", "--by", "colour")
    assert refused.status == 1 and "team, org, key, route" in refused.err and refused.out == ""


def test_a_statement_is_printed(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    tollway("teams", "add", "search")
    records = mixed(80, NOVEMBER, NOVEMBER + 86_400_000_000)
    on_database(lambda engine: write(engine, records))
    told = ("report", "statement", "--team", "search", "--month", "2026-11")
    *_, total = csv.DictReader(io.StringIO(tollway(*told).out))
    cost = sum(one.cost or 0 for one in records if one.team_id == 1)
    assert total["kind"] == "total" and Decimal(total["total_usd"]) * 10**9 == cost
    assert json.loads(tollway(*told, "--format", "json").out)["total"]["cost_nanousd"] == cost
    page = tollway(*told, "--format", "html").out
    assert page.startswith("<!doctype html>") and f"Total {Decimal(cost) / 10**9:.9f} USD" in page
    refused = tollway("report", "statement", "--team", "search", "--month", "11/2026")
    assert refused.status == 1 and refused.err.startswith("tollway: month: '11/2026'")


def test_what_is_to_come(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    tollway("teams", "add", "search")
    tollway("budgets", "set", "--team", "search", "--usd", "5", "--per", "month")
    on_database(lambda engine: write(engine, [record(NOVEMBER, [("b", "completed", 7)])]))
    head, *lines = tollway("report", "--forecast", "month", "--by", "team").lines
    assert head.split() == ["team", "spent_usd", "expected_usd", "low_usd", "high_usd", "method", "days"]
    assert lines[-2].split()[0] == "total"
    assert "total" in json.loads(tollway("report", "--forecast", "day", "--format", "json").out)
    assert tollway("report", "--forecast", "day", "--format", "csv").lines[0].startswith("team,spent_usd,")
    head, only = tollway("report", "budgets").lines
    assert dict(zip(head.split(), only.split(), strict=True))["limit_usd"] == "5.000000000"
    assert json.loads(tollway("report", "budgets", "--format", "json").out)[0]["scope"] == "search"
    refused = tollway("report", "--forecast", "month", "--since", "2026-11-01")
    assert refused.status == 1 and "--since" in refused.err


def test_one_team(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    for name in ("search", "ads"):
        tollway("teams", "add", name)
    on_database(lambda engine: write(engine, mixed(40, NOVEMBER, NOVEMBER + 86_400_000_000)))
    rows = list(csv.DictReader(io.StringIO(tollway("report", "--by", "team,route", "--team", "ads", "--format", "csv").out)))
    assert {row["team"] for row in rows} == {"ads"}
    assert tollway("report", "--team", "nobody").status == 1
