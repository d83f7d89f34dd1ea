"""`/admin/backends`, `/admin/routes`, `/admin/reload`, `/admin/config` over a whole worker in process: what is asked for is in force
at once on the worker that answers, and its answer says what it is like."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway import people, reloads
from gateway.access import COMMAND_LINE
from gateway.app import Application, build
from gateway.auth import ensure_secret
from gateway.board import Board, Told
from gateway.db.engine import make_engine
from gateway.routing.features import Features
from gateway.settings import BackendSettings, PriceSettings, RouteSettings, Settings, Storage
from gateway.views.backends import told
from providers.errors import ServerFailed
from providers.figures import Figures
from providers.limit_headers import Limits
from tests.routing.conftest import make_features

PRICE = PriceSettings(input="1", output="2")
A = BackendSettings(name="a", vendor="scripted", model="m", price=PRICE, parallel=9)
DEAR = BackendSettings(name="dear", vendor="scripted", model="m", price=PriceSettings(input="10", output="20"), labels={"residency": "eu"})
BODY = {"vendor": "scripted", "model": "m2", "price": {"input": "0.1", "output": "0.1"}}


class Ops:
    """A worker, a client with an admin key, and keys of other roles."""

    def __init__(self, application: Application, client: httpx.AsyncClient, keys: dict[str, str]) -> None:
        self.application = application
        self.parts = application.parts
        self.client = client
        self.keys = keys

    async def call(self, method: str, path: str, body: Any = None, role: str = "admin") -> tuple[int, Any]:
        answer = await self.client.request(method, path, json=body, headers={"authorization": f"Bearer {self.keys[role]}"})
        return answer.status_code, answer.json() if answer.content else None

    async def rows(self) -> dict[str, Any]:
        return {row["backend"]: row for row in (await self.call("GET", "/admin/backends"))[1]["data"]}

    async def ask(self, route: str) -> httpx.Response:
        body = {"model": route, "messages": [{"role": "user", "content": "hello"}]}
        return await self.client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {self.keys['inference']}"})


@pytest.fixture
async def ops(storage: Storage) -> AsyncIterator[Ops]:
    routes = RouteSettings(name="r", backends=("a", "dear"), ttft_ms=2000.0), RouteSettings(name="only", backends=("dear",))
    settings = Settings(storage=storage, backends=(A, DEAR), routes=routes)
    engine = make_engine(storage)
    accepted = await ensure_secret(settings, engine)
    await people.add_team(engine, "t", actor=COMMAND_LINE)
    keys = {
        scope: (await people.add_key(engine, accepted[0], people.NewKey(team="t", scopes=(scope,)), actor=COMMAND_LINE))[0]
        for scope in ("admin", "finance", "team_admin", "inference")
    }
    await engine.dispose()
    made = await build(settings, "0")
    await made.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(made.asgi), base_url="http://gateway") as client:  # type: ignore[arg-type]
        yield Ops(made, client, keys)
    made.begin_drain()
    await made.finish()


async def test_a_backend_and_a_route_that_the_api_makes_answer_at_once(ops: Ops) -> None:
    assert (await ops.ask("s")).status_code == 404
    assert await ops.call("PUT", "/admin/backends/b", BODY) == (200, {"name": "b", "new": True})
    assert await ops.call("PUT", "/admin/routes/s", {"backends": ["b", "dear"], "ttft_ms": 900}) == (200, {"name": "s", "new": True})
    answer = await ops.ask("s")
    assert (answer.status_code, answer.headers["x-tollway-backend"]) == (200, "b")
    rows = await ops.rows()
    assert {name: row["source"] for name, row in rows.items()} == {"a": "file", "dear": "file", "b": "api"}
    assert (rows["b"]["model"], rows["b"]["routes"], rows["b"]["objective_ms"]) == ("m2", ["s"], 900.0)
    (route,) = [row for row in (await ops.call("GET", "/admin/routes"))[1]["data"] if row["name"] == "s"]
    assert route == (await ops.call("GET", "/admin/routes/s"))[1]
    assert (route["source"], route["open"], route["settings"]["ttft_ms"], route["problem"]) == ("api", 2, 900.0, None)
    assert (await ops.call("DELETE", "/admin/backends/b"))[1]["error"]["code"] == "in_use"
    assert (await ops.call("DELETE", "/admin/routes/s"))[0] == 204
    assert (await ops.call("DELETE", "/admin/backends/b"))[0] == 204
    assert (await ops.ask("s")).status_code == 404 and set(await ops.rows()) == {"a", "dear"}
    status, body = await ops.call("PUT", "/admin/backends/a", BODY)
    assert (status, body["error"]["code"]) == (409, "in_the_file") and "tollway.toml" in body["error"]["message"]


async def test_a_drained_backend_gets_no_request_and_says_so_everywhere(ops: Ops) -> None:
    assert (await ops.ask("r")).headers["x-tollway-backend"] == "a"
    status, body = await ops.call("POST", "/admin/backends/a/drain", {"note": "kernel"})
    assert (status, body) == (200, {"backend": "a", "drained": True, "in_flight": 0, "routes_without_backend": []})
    answer = await ops.ask("r")
    assert answer.headers["x-tollway-backend"] == "dear"
    row = (await ops.rows())["a"]
    assert (row["state"], row["drain"]["by"].split()[0], row["drain"]["note"]) == ("drained", "key", "kernel")
    page = ops.parts.telemetry.exposition().decode()
    for line in ('backend_drained{backend="a"} 1.0', 'backend_drained{backend="dear"} 0.0', 'route_backends{route="r"} 1.0'):
        assert f"tollway_{line}\n" in page
    trial = (await ops.call("POST", "/admin/route", {"route": "r", "prompt": "x"}))[1]
    assert {c["backend"]: c["reason"] for c in trial["decision"]["candidates"]} == {"a": "drained", "dear": ""}
    assert "set aside: drained" in trial["explanation"] and trial["explanation"].endswith("agrees")
    status, body = await ops.call("POST", "/admin/backends/dear/drain", {})
    assert (status, body["error"]["code"]) == (409, "routes_emptied") and "the routes only, r" in body["error"]["message"]
    body = (await ops.call("POST", "/admin/backends/dear/drain", {"empty_routes": True}))[1]
    assert body["routes_without_backend"] == ["only", "r"]
    answer = await ops.ask("r")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "backends_drained") and answer.headers["retry-after"] == "30"
    assert {row["name"]: row["open"] for row in (await ops.call("GET", "/admin/routes"))[1]["data"]} == {"r": 0, "only": 0}
    assert (await ops.call("POST", "/admin/backends/a/undrain"))[1]["drained"] is False
    assert (await ops.ask("r")).headers["x-tollway-backend"] == "a"
    assert (await ops.call("POST", "/admin/backends/x/drain", {}))[0] == 404


async def test_a_probe_ends_an_ejection(ops: Ops) -> None:
    state = ops.parts.router.states(ops.parts.catalog)["a"]
    for _ in range(4):
        for _ in range(3):
            state.started(time.monotonic(), make_features()).failed(time.monotonic(), ServerFailed("500", answered=True))
        state.health.ejected_until = time.monotonic() + 600.0
    row = (await ops.rows())["a"]
    assert row["state"] == "ejected" and row["ready_in_s"] > 500 and row["failure_odds"] > 0.2
    assert (await ops.call("POST", "/admin/backends/a/probe"))[1] == {"backend": "a", "answers": True, "problem": None}
    assert (await ops.rows())["a"]["state"] == "ready"
    assert (await ops.ask("r")).headers["x-tollway-backend"] == "a", "the next request is the probe"


async def test_what_is_seen_of_a_backend_is_told_over_all_workers(ops: Ops) -> None:
    for _ in range(2):
        await ops.ask("r")
    call = ops.parts.router.state(ops.parts.catalog.backends["a"]).started(time.monotonic(), make_features())
    call.told(time.monotonic(), Limits(requests=(7.0, 600.0), output=(0.0, 600.0)))
    now = time.time()
    word = told(ops.parts, ops.parts.router.snapshot(time.monotonic()), now)
    views = [replace(view, state="ejected", ready_in_s=12.0, in_flight=5) if view.backend == "a" else view for view in word.views]
    other = Told(worker="1", at=now, settings="h", since=now, catalog="c", views=views, minutes=word.minutes, events=word.events)
    Board(ops.parts.board.folder, "1").leave(other, ops.parts.watch)
    row = (await ops.rows())["a"]
    assert (row["in_flight"], row["state"], row["ready_in_s"]) == (6, "ejected", 12.0)
    assert [(one["worker"], one["state"], one["in_flight"]) for one in row["workers"]] == [("0", "ready", 1), ("1", "ejected", 5)]
    assert (row["attempts"], row["failed"], row["errors"], row["parallel"]) == (4, 0, {}, 9)
    assert row["requests_per_min"] > 0 and row["usd_per_million"] is not None and row["unpriced"] == 0
    assert row["left"] == {"requests": 7.0, "tokens": None, "input": None, "output": 0.0}
    assert row["engine"] is None and row["hourly_usd"] is None
    call.left(time.monotonic())


async def test_what_an_engine_says_of_itself_is_told(ops: Ops) -> None:
    await ops.call("PUT", "/admin/backends/own", {"vendor": "vllm", "model": "m", "base_url": "http://127.0.0.1:9/v1"})
    state = ops.parts.router.states(ops.parts.catalog)["own"]
    now = time.monotonic()
    state.engine.said(now, now + 600.0, Figures(waiting=2, running=8, kv_share=0.5), (0, 0))
    state.engine.failed("HTTP 500 from /metrics")
    engine = (await ops.rows())["own"]["engine"]
    assert engine["age_s"] >= 0.0 and engine["problem"] == "HTTP 500 from /metrics"
    assert {name: value for name, value in engine["figures"].items() if value is not None} == {"waiting": 2, "running": 8, "kv_share": 0.5}


async def test_people_of_teams_see_state_and_latency_alone(ops: Ops) -> None:
    rows = (await ops.call("GET", "/admin/backends", role="team_admin"))[1]["data"]
    assert [set(row) for row in rows] == [{"backend", "model", "state", "ready_in_s", "first_token"}] * 2
    assert (await ops.call("GET", "/admin/routes", role="team_admin"))[0] == 200
    assert (await ops.call("GET", "/admin/backends", role="finance"))[0] == 403
    for method, path in (
        ("PUT", "/admin/routes/s"),
        ("POST", "/admin/backends/a/drain"),
        ("POST", "/admin/reload"),
        ("GET", "/admin/config"),
    ):
        for role in ("team_admin", "finance", "inference"):
            status, _ = await ops.call(method, path, {} if method != "GET" else None, role)
            assert status == 403, (method, path, role)


async def test_a_reload_is_asked_of_the_supervisor_and_answered_when_it_is_in_force(ops: Ops) -> None:
    parts, state = ops.parts, ops.parts.file.state
    assert (await ops.call("POST", "/admin/reload"))[1]["error"]["code"] == "no_supervisor"
    fresh = replace(parts.file, backends=(*parts.file.backends, replace(A, name="new")))
    tasks: list[asyncio.Task[None]] = []

    def supervise(request: str) -> None:  # what the supervisor does with the line, but for its own checks
        outcome = reloads.Outcome(source=reloads.Source(), settings=fresh.hash, since=time.time(), tried=time.time(), ids=(request,))
        reloads.write(state, outcome)
        tasks.append(asyncio.create_task(ops.application.reload(fresh)))

    parts.standing.ask_reload = supervise
    status, body = await ops.call("POST", "/admin/reload")
    assert (status, body["complete"], body["settings"]) == (200, True, fresh.hash), body
    assert [(one["worker"], one["in_force"]) for one in body["workers"]] == [("0", True)] and "new" in await ops.rows()

    def refuse(request: str) -> None:
        before = reloads.read(state)
        assert before is not None
        reloads.write(state, replace(before, refused="server.prt: unknown setting.", tried=time.time(), ids=(request,)))

    parts.standing.ask_reload = refuse
    status, body = await ops.call("POST", "/admin/reload")
    assert (status, body["error"]["code"]) == (422, "reload_refused") and body["error"]["message"].startswith(
        "server.prt: unknown setting."
    )
    config = (await ops.call("GET", "/admin/config"))[1]
    assert (config["settings"], config["reload"]["refused"]) == (fresh.hash, "server.prt: unknown setting.")
    await ops.application._leave_word()
    assert "tollway_config_refused 1.0" in parts.telemetry.exposition().decode()
    await asyncio.gather(*tasks)


async def test_a_catalog_that_changes_under_a_plan_is_no_harm(ops: Ops) -> None:
    asked = Features(route="r", dialect="openai_chat", input_tokens=10, input_tokens_upper=20, expected_output_tokens=5)
    catalog = ops.parts.catalog
    await ops.call("PUT", "/admin/backends/b", BODY)
    assert ops.parts.catalog is not catalog
    choice = ops.parts.router.plan(asked, catalog.routes["r"], catalog, time.monotonic(), 0.5)
    assert [one.name for one in choice.plan] == ["a", "dear"], "a request keeps the catalog that it began with"
