"""Keys and the admin API of a running gateway with two workers: a change through one is a change on all (G20)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import MISSING_S
from gateway.settings import Storage
from tests.e2e.harness import Gateway, backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, json_reply

ASK = json.dumps({"model": "single", "messages": [{"role": "user", "content": "hello"}]}).encode()
BOUND_S = 5.0  # within which every worker knows that a key is gone


@pytest.fixture
def gateway(storage: Storage, tmp_path: Path) -> Iterator[Gateway]:
    with FakeUpstream(json_reply(chat_answer("hello"))).threaded() as upstream:
        config = backend("one", upstream.url) + route("single", "one")
        with running(tmp_path, config, server="workers = 2", database_url=storage.database_url, state=storage.state_dir) as made:
            made.key("ops", "--admin")
            yield made


def statuses(gateway: Gateway, key: str) -> set[int]:
    """Of several calls, each on a connection of its own, so that both workers are among those who answer."""
    return set(Counter(gateway.call("POST", "/v1/chat/completions", ASK, key)[0] for _ in range(8)))


def ended(gateway: Gateway, key: str) -> int:
    """How often the key was still good before every worker refused it, within the bound."""
    good, end = 0, time.monotonic() + BOUND_S
    while True:
        began = time.monotonic()
        told = Counter(gateway.call("POST", "/v1/chat/completions", ASK, key)[0] for _ in range(8))
        good += told[200]
        if set(told) == {401}:
            return good
        assert set(told) <= {200, 401} and began < end, told


def begun(gateway: Gateway, key: str) -> int:
    """How often the key was good until every worker took it, within the bound and the time that a refusal is remembered."""
    good, end = 0, time.monotonic() + BOUND_S + MISSING_S
    while True:
        began = time.monotonic()
        told = Counter(gateway.call("POST", "/v1/chat/completions", ASK, key)[0] for _ in range(8))
        good += told[200]
        if set(told) == {200}:
            return good
        assert set(told) <= {200, 401} and began < end, told


def admin(gateway: Gateway, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    status, raw, _ = gateway.call(method, path, None if body is None else json.dumps(body).encode(), gateway.keys["ops"])
    return status, json.loads(raw) if raw else None


def test_g20_a_key_ends_on_every_worker(gateway: Gateway) -> None:
    assert admin(gateway, "POST", "/admin/teams", {"name": "alpha"})[0] == 201
    keys = [admin(gateway, "POST", "/admin/keys", {"team": "alpha"})[1]["secret"] for _ in range(2)]
    assert [statuses(gateway, key) for key in keys] == [{200}, {200}]  # at once: looked up, not waited for

    fresh = admin(gateway, "POST", f"/admin/keys/{keys[0][3:15]}/rotate", {"overlap": "1h"})[1]["secret"]
    assert [statuses(gateway, key) for key in (keys[0], fresh)] == [{200}, {200}]  # for an hour either secret is good
    assert admin(gateway, "PUT", f"/admin/keys/{fresh[3:15]}/block")[0] == 200
    late = ended(gateway, keys[0]) + ended(gateway, fresh)
    assert admin(gateway, "DELETE", f"/admin/keys/{fresh[3:15]}/block")[0] == 200
    late += 16 + begun(gateway, keys[0])

    assert admin(gateway, "DELETE", f"/admin/keys/{fresh[3:15]}")[0] == 200
    late += ended(gateway, keys[0])
    assert statuses(gateway, keys[1]) == {200}

    assert admin(gateway, "DELETE", "/admin/teams/alpha")[0] == 204
    late += ended(gateway, keys[1])
    assert_closed_and_documented(gateway)
    gateway.settled(24 + late)
    status, report = admin(gateway, "GET", "/admin/reports/spend?by=team")
    assert status == 200 and [(line["team"], line["requests"]) for line in report["lines"]] == [("alpha", 24 + late)]


def assert_closed_and_documented(gateway: Gateway) -> None:
    plain = gateway.cli("keys", "add", "--team", "ops", "--quiet").strip()
    for key, status in ((None, 401), (plain, 403), ("x" * 65536, 401), ("tw-x", 401)):
        assert gateway.call("GET", "/admin/teams", None, key)[0] == status, key and key[:20]
    paths = json.loads(gateway.get("/schema/openapi.json")[1])["paths"]
    assert {"/admin/teams", "/admin/keys", "/admin/budgets", "/admin/reports/spend"} <= set(paths)
    status, body = admin(gateway, "POST", "/admin/teams", {"name": "beta", "colour": "red"})
    assert (status, body["error"]["param"]) == (400, "colour")
