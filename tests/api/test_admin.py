"""`/admin/…`: closed to everybody but admin keys, strict about what it is sent, and saying what the commands say."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from litestar import Litestar
from litestar.exceptions import HTTPException
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import errors, people
from gateway.access import COMMAND_LINE
from gateway.api import admin, budgets
from gateway.app import tell, tell_http
from gateway.auth import Keyring, ensure_secret
from gateway.backend_watch import BackendWatch
from gateway.board import Board
from gateway.catalog import Backend, Catalog, Price, Route
from gateway.exchange import Exchange
from gateway.money.budgets import BudgetRow
from gateway.money.journal_search import Told
from gateway.money.windows import to_us
from gateway.parts import Standing
from gateway.routing.router import Router
from gateway.settings import Settings
from gateway.snapshot import Snapshot
from gateway.views.attention import Attention
from providers.errors import ServerFailed
from providers.types import Provider
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write
from tests.routing.conftest import make_features

NOVEMBER = to_us(datetime(2026, 11, 1, tzinfo=UTC))
CATALOG = Catalog(
    version="v",
    backends={
        "cheap": Backend(name="cheap", vendor="vllm", model="m", dialect="openai_chat", own=True, price=Price(id="p", input=1, output=1)),
        "dear": Backend(name="dear", vendor="openai", model="m", dialect="openai_chat", price=Price(id="q", input=10**9, output=10**9)),
    },
    routes={"r": Route(name="r", backends=("cheap", "dear"), ttft_ms=2000.0)},
)


class Untold:
    """Takes budgets and does nothing with them; wrote nothing down."""

    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None:
        pass

    async def journalled(self, request_id: UUID) -> list[Told]:
        return []


class Idle(Struct, frozen=True):
    """Serves nobody."""

    in_flight: tuple[Exchange, ...] = ()


class Needed(Struct):
    """The parts of a worker that these calls use."""

    settings: Settings
    file: Settings
    engine: AsyncEngine
    keyring: Keyring
    router: Router
    catalog: Catalog
    snapshot: Snapshot
    board: Board
    accounts: Untold
    attention: Attention
    pipeline: Idle = Idle()
    standing: Standing = Standing("h")
    watch: BackendWatch = BackendWatch()
    providers: dict[str, Provider] = {}


class Admin:
    """A client with an admin key, and one key without the scope."""

    router: Router

    def __init__(self, app: Litestar, client: httpx.AsyncClient, key: str, plain: str) -> None:
        self.app = app
        self.client = client
        self.key = key
        self.plain = plain

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None, **more: Any) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self.key if key is None else key}"}
        answer = await self.client.request(method, path, json=body, headers=headers, **more)
        text = answer.text
        return answer.status_code, answer.json() if answer.headers.get("content-type", "").startswith("application/json") else text


@pytest.fixture
async def ops(database: Database, tmp_path: Path) -> AsyncIterator[Admin]:
    settings = Settings(storage=database.storage)
    accepted = await ensure_secret(settings, database.engine)
    await people.add_team(database.engine, "ops", actor=COMMAND_LINE)
    key, _ = await people.add_key(database.engine, accepted[0], people.NewKey(team="ops", scopes=("admin",)), actor=COMMAND_LINE)
    plain, _ = await people.add_key(database.engine, accepted[0], people.NewKey(team="ops"), actor=COMMAND_LINE)
    ring = Keyring(accepted, database.engine)
    untold = Untold()
    snapshot, board = Snapshot(database.engine, ring, untold), Board(tmp_path / "board", "0")
    parts = Needed(settings, settings, database.engine, ring, Router(), CATALOG, snapshot, board, untold, Attention(database.engine, board))
    app = Litestar(
        route_handlers=admin.handlers(parts),
        exception_handlers={errors.GatewayError: tell, HTTPException: tell_http},
        logging_config=None,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:  # type: ignore[arg-type]
        made = Admin(app, client, key, plain)
        made.router = parts.router
        yield made


async def test_where_a_request_would_go_is_told_by_what_was_learnt(ops: Admin) -> None:
    asked = {"route": "r", "prompt": "hello there", "max_tokens": 50}
    status, told = await ops.call("POST", "/admin/route", asked)
    assert (status, told["plan"], told["refusal"]) == (200, ["cheap", "dear"], None)
    assert told["explanation"].endswith("recomputed: agrees")
    assert [c["backend"] for c in told["decision"]["candidates"]] == ["cheap", "dear"]
    state = ops.router.states(CATALOG)["cheap"]
    for _ in range(3):
        state.started(time.monotonic(), make_features()).failed(time.monotonic(), ServerFailed("500", answered=True))
    status, told = await ops.call("POST", "/admin/route", asked)
    assert (told["plan"], told["decision"]["candidates"][0]["reason"]) == (["dear"], "ejected")
    assert state.in_flight == 0, "nobody is called, and nothing is learnt"
    status, told = await ops.call("POST", "/admin/route", {**asked, "labels": {"residency": "eu"}})
    assert status == 200 and told["plan"] == [] and "residency=eu" in told["refusal"]
    for wrong, param in (
        ({**asked, "route": "banana"}, "route"),
        ({**asked, "ttft_ms": 0}, "ttft_ms"),
        ({**asked, "priority": "urgent"}, "priority"),
        ({**asked, "labels": {"a,b": "c"}}, "labels"),
        ({**asked, "banana": 1}, "banana"),
        ({"route": "r"}, "prompt"),
    ):
        status, told = await ops.call("POST", "/admin/route", wrong)
        assert 400 <= status < 500 and told["error"]["param"] == param, told


async def test_teams(ops: Admin, database: Database) -> None:
    status, made = await ops.call("POST", "/admin/teams", {"name": "search", "org": "product"})
    assert (status, made["name"], made["org"]) == (201, "search", "product")
    assert [team["name"] for team in (await ops.call("GET", "/admin/teams"))[1]["data"]] == ["ops", "search"]
    again, body = await ops.call("POST", "/admin/teams", {"name": "search"})
    assert (again, body["error"]["code"], body["error"]["param"]) == (409, "already_exists", "name")
    assert made["labels"] == {}
    assert await ops.call("PUT", "/admin/teams/search/labels", {"labels": {"residency": "eu"}}) == (200, {"labels": {"residency": "eu"}})
    assert (await ops.call("GET", "/admin/teams"))[1]["data"][1]["labels"] == {"residency": "eu"}
    status, told = await ops.call("PUT", "/admin/teams/search/labels", {"labels": {"residency": "e u"}})
    assert (status, told["error"]["param"]) == (400, "labels")
    assert (await ops.call("DELETE", "/admin/teams/search"))[0] == 204
    assert (await ops.call("DELETE", "/admin/teams/search"))[0] == 404
    assert [team.name for team in await people.list_teams(database.engine)] == ["ops"]


async def test_a_key_made_here_works_and_is_shown_once(database: Database, ops: Admin) -> None:
    status, made = await ops.call("POST", "/admin/keys", {"team": "ops", "models": ["assistant"], "expires": "2d", "scopes": ["admin"]})
    assert status == 201 and made["key"]["models"] == ["assistant"]
    assert (await ops.call("GET", "/admin/teams", key=made["secret"]))[0] == 200
    _, listed = await ops.call("GET", "/admin/keys?team=ops")
    assert [key["public"] for key in listed["data"]][-1] == made["key"]["public"]
    assert made["secret"][16:] not in str(listed)
    assert {key["last_used_us"] for key in listed["data"]} == {None} == {key["last_used_grain_us"] for key in listed["data"]}
    now_us = time.time_ns() // 1000
    await write(database.engine, [record(now_us, [("dear", "completed", 5)], key_id=made["key"]["id"])])
    last = (await ops.call("GET", "/admin/keys"))[1]["data"][-1]
    assert (last["last_used_us"], last["last_used_grain_us"]) == (now_us - now_us % 900_000_000, 900_000_000)
    status, ended = await ops.call("DELETE", f"/admin/keys/{made['key']['public']}")
    assert status == 200 and ended["revoked_at_us"] is not None


async def test_budgets(ops: Admin) -> None:
    new = {"scope_kind": "team", "scope": "ops", "usd": "12.50", "per": "month", "timezone": "Europe/Berlin"}
    status, made = await ops.call("PUT", "/admin/budgets", new)
    assert (status, made["limit_usd"], made["spent_usd"]) == (200, "12.500000000", "0.000000000")
    _, changed = await ops.call("PUT", "/admin/budgets", new | {"usd": "1"})
    assert changed["id"] == made["id"]
    _, listed = await ops.call("GET", "/admin/budgets")
    assert [(one["scope"], one["limit_usd"]) for one in listed["data"]] == [("ops", "1.000000000")]
    assert (await ops.call("DELETE", f"/admin/budgets/{made['id']}"))[0] == 204
    assert (await ops.call("GET", "/admin/budgets"))[1] == {"data": []}


async def test_an_override_is_a_limit_for_a_while(ops: Admin) -> None:
    _, made = await ops.call("PUT", "/admin/budgets", {"scope_kind": "team", "scope": "ops", "usd": "1", "per": "month"})
    path = f"/admin/budgets/{made['id']}/override"
    status, raised = await ops.call("PUT", path, {"usd": "5", "until": "2d"})
    assert (status, raised["limit_usd"], raised["override_usd"]) == (200, "1.000000000", "5.000000000")
    assert raised["override_until_us"] > 1_700_000_000_000_000
    assert (await ops.call("PUT", path, {"usd": "5", "until": "2020-01-01"}))[0] == 400
    assert (await ops.call("DELETE", path))[0] == 204
    shown = (await ops.call("GET", "/admin/budgets"))[1]["data"][0]
    assert (shown["limit_usd"], shown["override_usd"], shown["override_until_us"], shown["alerts"]) == (
        "1.000000000",
        None,
        None,
        [80, 100],
    )
    again = {"scope_kind": shown["scope_kind"], "scope": shown["scope"], "usd": "1", "per": shown["per"], "alerts": [10]}
    assert (await ops.call("PUT", "/admin/budgets", again))[1]["alerts"] == [10]
    assert (await ops.call("PUT", "/admin/budgets", again | {"alerts": [0]}))[1]["error"]["param"] == "alerts"
    assert (await ops.call("PUT", "/admin/budgets/99/override", {"usd": "5", "until": "2d"}))[0] == 404


async def test_seen_every_field_of_a_budget_is_stored_or_refused(ops: Admin) -> None:
    """bifrost#5673: a budget's field was accepted and not stored."""
    given = {
        "scope_kind": "team",
        "scope": "ops",
        "usd": "1.5",
        "per": "week",
        "timezone": "Asia/Kolkata",
        "model": "assistant",
        "alerts": [7],
    }
    assert set(given) == {field.name for field in msgspec.structs.fields(budgets.NewBudget)}
    await ops.call("PUT", "/admin/budgets", given)
    stored = (await ops.call("GET", "/admin/budgets"))[1]["data"][0]
    assert {name: stored[name] for name in given if name != "usd"} == {name: given[name] for name in given if name != "usd"}
    assert stored["limit_usd"] == "1.500000000"
    status, told = await ops.call("PUT", "/admin/budgets", given | {"hard": True})
    assert (status, told["error"]["param"]) == (400, "hard")


async def test_prices(ops: Admin) -> None:
    new = {"vendor": "openai", "model": "gpt-4o-mini", "input": "0.15", "output": "0.60"}
    status, made = await ops.call("PUT", "/admin/prices", new)
    assert (status, made["state"], made["usd"]) == (200, "in force", {"input": "0.150000000", "output": "0.600000000"})
    await ops.call("PUT", "/admin/prices", new | {"output": "0.70"})
    _, listed = await ops.call("GET", "/admin/prices")
    assert [one["usd"]["output"] for one in listed["data"]] == ["0.700000000"]
    assert len((await ops.call("GET", "/admin/prices?everything=true"))[1]["data"]) == 2
    assert (await ops.call("PUT", "/admin/prices", new | {"vendor": "acme"}))[1]["error"]["param"] == "vendor"
    tier = {"above": 1000, "input": "1", "output": "2", "cache_read": "0.5"}
    longer = (await ops.call("PUT", "/admin/prices", new | {"tiers": [tier], "batch_discount": "0.5", "output_image": "3"}))[1]
    assert longer["tiers"] == [{"above": 1000, "usd": {name: f"{float(tier[name]):.9f}" for name in ("input", "output", "cache_read")}}]
    assert (longer["batch_discount"], longer["usd"]["output_image"]) == ("0.5", "3.000000000")
    for wrong, param in (
        ({"tiers": [tier | {"output": "x"}]}, "output"),
        ({"batch_discount": "3"}, "batch_discount"),
        ({"tiers": [{}]}, "above"),
    ):
        assert param in (await ops.call("PUT", "/admin/prices", new | wrong))[1]["error"]["param"]
    status, gone = await ops.call("DELETE", f"/admin/prices?id={longer['id']}")
    assert (status, gone["state"]) == (200, "withdrawn")
    assert (await ops.call("DELETE", "/admin/prices?id=nothing"))[0] == 404
    assert (await ops.call("GET", "/admin/prices"))[1]["data"][0]["usd"]["output"] == "0.700000000"
    _, checked = await ops.call("GET", "/admin/prices/check")
    assert isinstance(checked["data"], list)


async def test_limits(ops: Admin) -> None:
    status, made = await ops.call("PUT", "/admin/limits", {"scope_kind": "team", "scope": "ops", "rpm": 60, "model": "assistant"})
    wanted = {"id": made["id"], "scope_kind": "team", "scope": "ops", "model": "assistant", "rpm": 60, "tpm": None, "parallel": None}
    assert (status, made) == (200, wanted)
    assert (await ops.call("GET", "/admin/limits"))[1] == {"data": [wanted]}
    assert (await ops.call("DELETE", f"/admin/limits/{made['id']}"))[0] == 204
    assert (await ops.call("DELETE", f"/admin/limits/{made['id']}"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/admin/teams", {"name": "a", "nmae": "b"}, "nmae"),
        ("POST", "/admin/teams", {"org": "b"}, "name"),
        ("POST", "/admin/teams", {"name": 3}, "name"),
        ("POST", "/admin/teams", {"name": "a b"}, "name"),
        ("POST", "/admin/teams", [], None),
        ("POST", "/admin/keys", {"team": "ops", "budget": 1}, "budget"),
        ("POST", "/admin/keys", {"team": "ops", "scopes": ["root"]}, "scopes"),
        ("PUT", "/admin/budgets", {"scope_kind": "team", "scope": "ops", "usd": 1.5, "per": "day"}, "usd"),
        ("PUT", "/admin/budgets", {"scope_kind": "team", "scope": "ops", "usd": "many", "per": "day"}, "usd"),
        ("PUT", "/admin/budgets", {"scope_kind": "team", "scope": "ops", "usd": "1", "per": "fortnight"}, "per"),
        ("PUT", "/admin/budgets", {"scope_kind": "team", "scope": "ops", "usd": "1", "per": "day", "rpm": 5}, "rpm"),
        ("PUT", "/admin/limits", {"scope_kind": "team", "scope": "ops"}, "rpm"),
        ("PUT", "/admin/limits", {"scope_kind": "team", "scope": "ops", "rpm": "many"}, "rpm"),
        ("GET", "/admin/budgets?team=ops", None, "team"),
        ("GET", "/admin/reports/spend?by=colour", None, "by"),
        ("GET", "/admin/reports/spend?form=csv", None, "form"),
        ("GET", "/admin/reports/spend?format=xml", None, "format"),
    ],
)
async def test_what_is_not_understood_is_named(ops: Admin, method: str, path: str, body: Any, param: str | None) -> None:
    status, told = await ops.call(method, path, body)
    assert (status, told["error"]["type"], told["error"]["param"]) == (400, "invalid_request_error", param)
    assert told["error"]["message"]


async def test_bodies_that_are_no_json(ops: Admin) -> None:
    headers = {"authorization": f"Bearer {ops.key}", "content-type": "application/json"}
    for content in (b"", b"{bad", b"\xff\xfe", b"null"):
        answer = await ops.client.post("/admin/teams", content=content, headers=headers)
        assert answer.status_code == 400, content
        assert answer.json()["error"]["message"]
    broken = (await ops.client.post("/admin/teams", content=b'{"name": "\\ud800"}', headers=headers)).json()["error"]
    assert broken["code"] == "invalid_json" and broken["message"].endswith("Send one JSON object in UTF-8.")


async def test_numbers_and_texts_that_no_row_can_have_are_not_faults(ops: Admin) -> None:
    for path in ("budgets/99999999999999999999", "budgets/99999999999999999999/override", "limits/99999999999999999999", "keys/%00"):
        status, told = await ops.call("DELETE", f"/admin/{path}")
        assert (status, told["error"]["code"]) == (404, "not_found"), path
    assert (await ops.call("DELETE", "/admin/prices?id=%00"))[0] == 404


async def test_the_report_is_the_one_of_the_command(ops: Admin, database: Database) -> None:
    records = mixed(60, NOVEMBER, NOVEMBER + 86_400_000_000)
    await write(database.engine, records)
    path = "/admin/reports/spend?by=team,backend&since=2026-11-01&until=2026-11-02"
    _, document = await ops.call("GET", path)
    assert document["total"]["cost_nanousd"] == sum(one.cost or 0 for one in records)
    _, text = await ops.call("GET", path + "&format=csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["cost_usd"] for row in rows] == [line["cost_usd"] for line in document["lines"]]
    assert (await ops.call("GET", "/admin/reports/spend?until=2026-11-01"))[1]["total"]["requests"] == 0


async def test_the_calls_are_documented(ops: Admin) -> None:
    document = ops.app.openapi_schema.to_schema()
    assert {path.split("/{")[0] for path in document["paths"]} >= {"/admin/teams", "/admin/keys", "/admin/budgets", "/admin/reports/spend"}
    assert "forbid" not in str(document["components"]) and "NewBudget" in str(document["components"])


async def test_owned_hardware(ops: Admin) -> None:
    assert await ops.call("GET", "/admin/reports/owned?since=2026-11-01") == (200, {"backends": []})
    status, body = await ops.call("GET", "/admin/reports/owned?until=soon")
    assert (status, body["error"]["param"]) == (400, "until")
    assert (await ops.call("GET", "/admin/reports/owned?timezone=UTC"))[0] == 400
