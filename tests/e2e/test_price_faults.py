"""What others got wrong about prices, budgets and limits, by its number in the list of known faults, and alerts as a receiver gets them.

One gateway that says 429 where a budget refuses; test_budgets.py has the default, 402.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import BASIC, FLAT, Gateway, backend, route, running
from tests.fakes.upstream import FakeUpstream, body_reply, chat_answer, json_reply
from tests.fixtures.waiting import until_true

FREE = 'price = { input = "0", output = "0" }'
ASK = {"model": "basic", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 40}
BUDGETS = {"rich": "1000", "spent": "0.001", "negative": "0.01", "pictures": "0.05"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[FakeUpstream]:
    with FakeUpstream(body_reply(b"", 503), body_reply(b"")).threaded() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, receiver: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = (
        f'[alerts]\nevery_s = 0.5\nbackoff_s = 0.1\nwebhook_url = "{receiver.url}/hook"\nwebhook_secret = "env:HOOK_SECRET"\n'
        + backend("basic", upstream.url, price=BASIC)
        + backend("flat", upstream.url, model="m-flat", price=FLAT)
        + backend("secret-sauce", upstream.url, model="m-none", price="")
        + backend("house", upstream.url, model="m-house", price=FREE)
        + backend("vectors", upstream.url, model="m-vectors", price=BASIC, more='capabilities = ["embeddings"]')
        + "".join(route(name, name, more='cache = "never"') for name in ("basic", "flat", "secret-sauce", "house", "vectors"))
        + route("stops", "house", more='cache = "never"\nfree_when_spent = false')
    )
    with running(tmp_path_factory.mktemp("gateway"), config, server="over_budget_status = 429", HOOK_SECRET="hook-secret") as made:
        for team in ("alpha", *BUDGETS):
            made.key(team)
        for team, usd in BUDGETS.items():
            made.budget(usd, team=team)
        made.admin("PUT", "/admin/limits", {"scope_kind": "team", "scope": "alpha", "tpm": 10_000, "model": "basic"})
        time.sleep(2.2)  # the worker has polled all of it
        upstream.play(json_reply(chat_answer("all of it", usage=(10, 100))))
        assert ask(made, "spent", model="flat", max_tokens=100)[0] == 200
        until_true(lambda: spent(made, "spent") == 1_000_000, "the budget is spent to the end")
        yield made


@pytest.fixture(autouse=True)
def fresh(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.requests.clear()
    upstream.play()


def ask(gateway: Gateway, team: str, path: str = "/v1/chat/completions", **more: Any) -> tuple[int, Any, dict[str, str]]:
    status, answer, headers = gateway.call("POST", path, json.dumps(ASK | more).encode(), gateway.keys[team])
    return status, json.loads(answer), dict(headers)


def rows(gateway: Gateway, team: str) -> list[dict[str, Any]]:
    return gateway.rows("SELECT u.* FROM usage u JOIN teams t ON t.id = u.team_id WHERE t.name = :team ORDER BY started_at_us", team=team)


def last(gateway: Gateway, team: str, before: int) -> dict[str, Any]:
    """The newest row of a team, once it has more than `before`."""
    until_true(lambda: len(rows(gateway, team)) > before, "the row arrives")
    return rows(gateway, team)[-1]


def spent(gateway: Gateway, team: str) -> int:
    query = (
        "SELECT w.spent FROM budget_windows w JOIN budgets b ON b.id = w.budget_id JOIN teams t ON t.id = b.scope_id"
        " WHERE b.scope_kind = 'team' AND t.name = :team"
    )
    return sum(row["spent"] for row in gateway.rows(query, team=team))


def test_g03_an_unknown_price_is_refused_where_a_budget_is(gateway: Gateway, upstream: FakeUpstream) -> None:
    before = len(rows(gateway, "rich"))
    status, told, _ = ask(gateway, "rich", model="secret-sauce")
    assert (status, told["error"]["code"]) == (503, "price_unknown") and "price" in told["error"]["message"]
    assert upstream.requests == []
    assert last(gateway, "rich", before)["outcome"] == "refused"


def test_g03_an_unknown_price_is_unknown_not_zero(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer("well", usage=(1000, 1000))))
    before = len(rows(gateway, "alpha"))
    status, _, headers = ask(gateway, "alpha", model="secret-sauce")
    assert (status, headers["x-tollway-cost-usd"]) == (200, "unknown")
    assert last(gateway, "alpha", before)["cost"] is None
    report = json.loads(gateway.cli("report", "--by", "team,route", "--format", "json"))
    line = next(one for one in report["lines"] if (one["team"], one["route"]) == ("alpha", "secret-sauce"))
    assert line["unpriced"] == line["requests"] == 1
    late = {"vendor": "openai-compatible", "model": "m-none", "input": "1", "output": "2", "starts": "2020-01-01"}
    price = gateway.admin("PUT", "/admin/prices", late)
    gateway.cli("ledger", "reprice", "--since", "2020-01-01")
    found = json.loads(gateway.get(f"/v1/requests/{headers['x-tollway-request-id']}", gateway.keys["alpha"])[1])
    assert (found["cost_usd"], found["adjusted_usd"]) == ("unknown", "0.003000000"), "the row is never edited"
    report = gateway.admin("GET", "/admin/reports/spend?by=team,route", None)
    line = next(one for one in report["lines"] if (one["team"], one["route"]) == ("alpha", "secret-sauce"))
    assert (line["unpriced"], line["cost_usd"]) == (0, "0.003000000")
    gateway.admin("DELETE", f"/admin/prices?id={price['id']}", None)


def test_g03_a_price_of_zero_is_a_price(gateway: Gateway, upstream: FakeUpstream) -> None:
    """Allowed when the budget is used up, unless the route says otherwise."""
    before = len(rows(gateway, "spent"))
    assert ask(gateway, "spent")[0] == 429
    status, _, headers = ask(gateway, "spent", model="house")
    assert (status, headers["x-tollway-cost-usd"]) == (200, "0.000000000")
    assert [one["outcome"] for one in (last(gateway, "spent", before + 1), rows(gateway, "spent")[before])] == ["completed", "refused"]
    upstream.requests.clear()
    status, told, headers = ask(gateway, "spent", model="stops")
    assert (status, told["error"]["code"], headers["x-should-retry"]) == (429, "insufficient_quota", "false")
    assert upstream.requests == []
    assert ask(gateway, "rich", model="stops")[0] == 200
    assert ask(gateway, "alpha", model="stops")[0] == 200, "no budget, nothing to stop with"


SURFACES = {
    "/v1/chat/completions": {},
    "/v1/messages": {},
    "/v1/responses": {"input": "one two three", "messages": None, "max_tokens": None, "max_output_tokens": 40},
    "/v1/embeddings": {"model": "vectors", "input": "one two three", "messages": None, "max_tokens": None},
}


@pytest.mark.parametrize("path", sorted(SURFACES))
def test_seen_every_route_has_the_same_gate(gateway: Gateway, upstream: FakeUpstream, path: str) -> None:
    """bifrost#2873: pass-through routes skipped budgets. The refusal says all that one needs to know, and that trying again is no use."""
    body = {name: value for name, value in (ASK | SURFACES[path]).items() if value is not None}
    status, answer, headers = gateway.call("POST", path, json.dumps(body).encode(), gateway.keys["spent"])
    told = json.loads(answer)["error"]
    assert (status, headers["x-should-retry"]) == (429, "false"), answer
    assert "retry-after" not in headers
    for words in (
        "budget ",
        "0.001000000 USD per month (UTC)",
        "has 0.000000000 USD left",
        "may cost up to 0.000",
        "The budget resets: 20",
    ):
        assert words in told["message"], told
    assert upstream.requests == []


def test_g29_the_vendors_id_is_no_key(gateway: Gateway, upstream: FakeUpstream) -> None:
    before = len(rows(gateway, "rich"))
    cost = spent(gateway, "rich")
    for _ in range(50):
        assert ask(gateway, "rich", messages=[{"role": "user", "content": "again"}])[0] == 200
    upstream.play(json_reply(chat_answer("well", usage=(12, 3)) | {"id": ""}))
    assert ask(gateway, "rich")[0] == 200
    until_true(lambda: len(rows(gateway, "rich")) == before + 51, "every request has its row")
    made = rows(gateway, "rich")[before:]
    assert [one["provider_id"] for one in made] == ["chatcmpl-1"] * 50 + [""]
    assert {one["cost"] for one in made} == {18_000} and len({bytes(one["id"]) for one in made}) == 51
    until_true(lambda: spent(gateway, "rich") == cost + 51 * 18_000, "each is charged")


@pytest.mark.parametrize("usage", [(-1000, 3), (12, -500), (-5, -5)])
def test_seen_negative_usage_refills_no_budget(gateway: Gateway, upstream: FakeUpstream, usage: tuple[int, int]) -> None:
    """octopus#243: what the vendor says is dropped, the row is flagged, and our own count is charged."""
    upstream.play(json_reply(chat_answer("three words here", usage=usage)))
    before, charged = len(rows(gateway, "negative")), spent(gateway, "negative")
    assert ask(gateway, "negative")[0] == 200
    row = last(gateway, "negative", before)
    assert row["estimated"] and row["input_tokens"] > 0 and row["output_tokens"] > 0
    assert row["cost"] == row["input_tokens"] * 1000 + row["output_tokens"] * 2000
    until_true(lambda: spent(gateway, "negative") == charged + row["cost"], "it is charged")


def test_seen_a_token_limit_charges_tokens(gateway: Gateway, upstream: FakeUpstream) -> None:
    """api-platform#2932: it charged 1 for each request."""
    upstream.play(json_reply(chat_answer("well", usage=(1500, 500))))

    def left() -> int:
        return int(ask(gateway, "alpha", max_tokens=1)[2]["x-ratelimit-remaining-tokens"])

    first = left()
    assert first - left() == 2000
    status, told, headers = ask(gateway, "alpha", max_tokens=8000)
    assert (status, told["error"]["code"]) == (429, "rate_limit_exceeded") and 0 < int(headers["retry-after"]) <= 60
    assert headers["x-ratelimit-limit-tokens"] == "10000" and int(headers["x-ratelimit-remaining-tokens"]) < 8000


def test_an_image_counts_by_a_bounded_number_not_by_its_bytes(gateway: Gateway, upstream: FakeUpstream) -> None:
    """Two megabytes of base64 are one image: for a budget of 0.05 USD at 1 USD a million tokens, and for the answer's reservation."""
    data = base64.b64encode(bytes(1_500_000)).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}

    def look(count: int) -> int:
        content = [{"type": "text", "text": "what is this?"}, *[image] * count]
        return ask(gateway, "pictures", messages=[{"role": "user", "content": content}])[0]

    assert look(1) == 200
    assert look(9) == 429, "nine of them may be 54,000 tokens"
    worst = gateway.rows("SELECT a.worst FROM attempts a JOIN usage u ON u.id = a.request_id JOIN teams t ON t.id = u.team_id"
                         " WHERE t.name = 'pictures'")  # fmt: skip
    until_true(lambda: rows(gateway, "pictures"), "the row arrives")
    assert all(6_000_000 < row["worst"] < 7_000_000 for row in worst)


def test_alerts_arrive_signed_once_and_again_when_the_receiver_failed(gateway: Gateway, receiver: FakeUpstream) -> None:
    """The budget that the module's first request spent: 80 and 100, the first of them tried twice."""

    def told() -> list[dict[str, Any]]:
        return [found for got in receiver.requests if (found := json.loads(got.body))["budget"]["scope"] == "spent"]

    until_true(lambda: {one["percent"] for one in told()} == {80, 100} and len(receiver.requests) >= 3, "both thresholds are told")
    for got in receiver.requests:
        signed = got.headers["x-tollway-timestamp"].encode() + b"." + got.body
        assert got.headers["x-tollway-signature"] == "v1=" + hmac.new(b"hook-secret", signed, hashlib.sha256).hexdigest()
        assert got.target == "/hook" and got.headers["x-tollway-delivery"] == json.loads(got.body)["id"]
    assert len({one["id"] for one in told()}) == 2
    assert told()[0]["spent_usd"] == told()[0]["limit_usd"] == "0.001000000"
    assert "budget alert" in gateway.log and "hook-secret" not in gateway.log
    metrics = gateway.get("/metrics")[1].decode()
    assert 'tollway_budget_alerts_total{percent="100",scope="team"}' in metrics
