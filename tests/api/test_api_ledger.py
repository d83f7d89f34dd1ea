"""The ledger over HTTP: its rows as a file, and what a person says about a request whose end is not known."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import msgspec
import pytest

from gateway.money.corrections import unknowns
from tests.api.test_admin import NOVEMBER, Admin, ops  # noqa: F401  (a fixture)
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

DAY_US = 86_400_000_000


async def test_rows_leave_as_a_file(ops: Admin, database: Database) -> None:  # noqa: F811
    records = mixed(60, NOVEMBER, NOVEMBER + 2 * DAY_US)
    await write(database.engine, records)
    whole = list(csv.DictReader(io.StringIO((await ops.call("GET", "/admin/ledger/rows.csv"))[1])))
    assert sorted(row["id"] for row in whole) == sorted(str(one.id) for one in records)
    answer = await ops.client.get(
        "/admin/ledger/rows.jsonl?since=2026-11-02&until=2026-11-03", headers={"authorization": f"Bearer {ops.key}"}
    )
    assert answer.headers["content-disposition"] == 'attachment; filename="tollway-ledger.jsonl"'
    later = [one for one in records if one.started_at_us >= NOVEMBER + DAY_US]
    told = [msgspec.json.decode(line) for line in answer.text.splitlines()]
    assert {row["id"]: row["cost_nanousd"] for row in told} == {str(one.id): one.cost for one in later}


async def test_an_unknown_request_is_resolved_once_and_that_is_told(ops: Admin, database: Database) -> None:  # noqa: F811
    lost = record(NOVEMBER, [("b", "unknown", 500)], outcome="unknown")
    await write(database.engine, [lost, record(NOVEMBER, [("b", "completed", 7)])])
    status, told = await ops.call("GET", "/admin/ledger/unknowns")
    assert status == 200 and [(one["id"], one["backend"], one["worst_usd"]) for one in told["data"]] == [(str(lost.id), "b", "0.000000500")]
    path = f"/admin/ledger/unknowns/{lost.id}"
    status, told = await ops.call("POST", path, {"usd": "0.00000012"})
    assert (status, told["usd"], Decimal(told["adjusted_usd"])) == (200, "0.000000120", Decimal("-0.00000038"))
    assert await unknowns(database.engine) == []
    status, told = await ops.call("POST", path, {"usd": "1"})
    assert status == 400 and "resolved already" in told["error"]["message"]
    rows = (await ops.call("GET", "/admin/audit?action=ledger.resolve"))[1]["data"]
    assert [(one["ident"], one["before"], one["after"]) for one in rows] == [(str(lost.id), {"usd": "0.000000500"}, {"usd": "0.000000120"})]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("GET", "/admin/ledger/rows.csv?format=jsonl", None, 400, "format"),
        ("GET", "/admin/ledger/rows.csv?since=soon", None, 400, "since"),
        ("GET", "/admin/ledger/rows.csv?since=2026-11-03&until=2026-11-02", None, 400, "since"),
        ("GET", "/admin/ledger/rows.csv?team=a", None, 400, "team"),
        ("GET", "/admin/ledger/unknowns?limit=3", None, 400, "limit"),
        ("POST", "/admin/ledger/unknowns/none", {"usd": "1"}, 400, "id"),
        ("POST", "/admin/ledger/unknowns/00000000-0000-7000-8000-000000000001", {"usd": "a lot"}, 400, "usd"),
        ("POST", "/admin/ledger/unknowns/00000000-0000-7000-8000-000000000001", {"usd": "1"}, 404, "id"),
    ],
)
async def test_what_is_asked_wrongly_is_named(
    ops: Admin,  # noqa: F811
    method: str,
    path: str,
    body: dict[str, str] | None,
    status: int,
    param: str,
) -> None:
    got, told = await ops.call(method, path, body)
    assert (got, told["error"]["param"]) == (status, param)
