"""Reports over HTTP: the figures of the reports, each format by its type, and every wrong question named."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.api import reports as api
from gateway.money.reports import Asked, spend
from tests.api.test_admin import NOVEMBER, Admin, ops  # noqa: F401  (a fixture)
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write


@pytest.fixture
async def filled(ops: Admin, database: Database) -> int:  # noqa: F811
    """Three teams' requests; what `search` spent in November."""
    for name in ("search", "ads"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    records = mixed(120, NOVEMBER, NOVEMBER + 86_400_000_000)
    await write(database.engine, records)
    return sum(one.cost or 0 for one in records if one.team_id == 2)  # the first is `ops`


async def test_spend_tells_money_twice_and_latencies(ops: Admin, filled: int, database: Database) -> None:  # noqa: F811
    status, told = await ops.call("GET", "/admin/reports/spend?by=team,model&team=search")
    assert status == 200 and told["total"]["cost_nanousd"] == filled
    assert Decimal(told["total"]["cost_usd"]) * 10**9 == filled and len(told["total"]["cost_usd"].split(".")[1]) == 9
    assert told["total"]["duration_p95_ms"] > 0 and 0 <= told["total"]["error_rate"] <= 1
    report = await spend(database.engine, Asked(by=("team", "model"), team="search"))
    assert [line["failover_rate"] for line in told["lines"]] == [
        None if line.requests == 0 else round(line.failovers / line.requests, 6) for line in report.lines
    ]


async def test_a_statement_in_each_format(ops: Admin, filled: int) -> None:  # noqa: F811
    path = "/admin/reports/statement?team=search&month=2026-11"
    assert (await ops.call("GET", path))[1]["total"]["cost_nanousd"] == filled
    *_, total = csv.DictReader(io.StringIO((await ops.call("GET", f"{path}&format=csv"))[1]))
    assert Decimal(total["total_usd"]) * 10**9 == filled
    answer = await ops.client.get(f"{path}&format=html", headers={"authorization": f"Bearer {ops.key}"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<h1>Statement of search, 2026-11</h1>" in answer.text


async def test_what_is_to_come(ops: Admin, filled: int, database: Database) -> None:  # noqa: F811
    status, told = await ops.call("GET", "/admin/reports/forecast?by=team,model&per=week&timezone=Asia/Kolkata")
    assert status == 200 and told["per"] == "week" and set(told["total"]) >= {"spent_nanousd", "expected_usd", "low_usd", "method"}
    assert (await ops.call("GET", "/admin/reports/forecast?format=csv"))[1].startswith("team,spent_usd,")
    await people.set_budget(
        database.engine, people.NewBudget(scope_kind="team", scope="search", limit_nanousd=5, period="day"), actor=COMMAND_LINE
    )
    status, told = await ops.call("GET", "/admin/reports/budgets")
    assert status == 200 and [(one["scope"], one["limit_nanousd"]) for one in told["data"]] == [("search", 5)]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("spend?by=colour", "by"),
        ("spend?team=nobody", "team"),
        ("spend?since=soon", "since"),
        ("spend?colour=red", "colour"),
        ("statement?team=search", "month"),
        ("statement?month=2026-11", "team"),
        ("statement?team=search&month=11", "month"),
        ("statement?team=search&month=2026-11&format=pdf", "format"),
        ("statement?team=search&month=2026-11&timezone=Nowhere", "timezone"),
        ("forecast?per=year", "per"),
        ("forecast?by=day", "by"),
        ("forecast?since=2026-11-01", "since"),
        ("budgets?format=csv", "format"),
    ],
)
async def test_a_wrong_question_names_the_field(ops: Admin, filled: int, path: str, param: str) -> None:  # noqa: F811
    status, told = await ops.call("GET", f"/admin/reports/{path}")
    assert status in (400, 404) and told["error"]["param"] == param


async def test_an_answer_has_a_limit(ops: Admin, filled: int, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(api, "LINES_MAX", 2)
    status, told = await ops.call("GET", "/admin/reports/spend?by=hour,backend")
    assert (status, told["error"]["param"]) == (400, "by") and "more than 2 rows" in told["error"]["message"]
