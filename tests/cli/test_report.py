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
