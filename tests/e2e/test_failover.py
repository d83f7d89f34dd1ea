"""The hosted side dies under load: what was not committed fails over unseen, what was committed ends with one error; all is booked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.harness import Gateway, backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_chunks, json_reply, sse_reply
from tests.fixtures.waiting import until_true

FLOOR = 100
LOCAL = """
[[backends]]
name = "fallback"
vendor = "scripted"
model = "scripted"
price = { input = "0.02", output = "0.06" }
script = '''
text = "the fallback answered "
ttft_s = 0.02
'''

[[backends]]
name = "dear"
vendor = "scripted"
model = "scripted"
price = { input = "30", output = "600" }
"""


@pytest.fixture(scope="module")
def hosted() -> Iterator[FakeUpstream]:
    with FakeUpstream(sse_reply(chat_chunks(["tok "] * 60, usage=(10, 60)), first_s=0.15, delay_s=0.02)).threaded() as made:
        yield made


@pytest.fixture(scope="module")
def broken() -> Iterator[FakeUpstream]:
    with FakeUpstream(json_reply({"error": {"message": "it broke"}}, 500)).threaded() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(hosted: FakeUpstream, broken: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = (
        f"[routing]\nretry_budget_floor = {FLOOR}\n"  # on a slow machine all forty may wait at once
        + backend("hosted", hosted.url, price='price = { input = "0.01", output = "0.01" }')
        + LOCAL
        + route("both", "hosted", "fallback")
        + backend("broken", broken.url)
        + route("broken", "broken")
        + backend("cheap-and-broken", broken.url, price='price = { input = "0.01", output = "0.01" }')
        + route("dear-then", "cheap-and-broken", "dear")
    )
    with running(tmp_path_factory.mktemp("gateway"), config) as made:
        made.key("alpha")
        yield made


def test_killing_the_hosted_side_mid_run(gateway: Gateway, hosted: FakeUpstream) -> None:
    body = json.dumps({"model": "both", "messages": [{"role": "user", "content": "go on"}], "stream": True}).encode()
    results: list[tuple[int, bytes, str]] = []
    killed = threading.Event()

    def one(n: int) -> None:
        if n >= 30:
            killed.wait()
        status, raw, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
        results.append((status, raw, headers["x-tollway-request-id"]))

    def under_way() -> bool:
        return sum(asked.sent >= 25 and asked.ended_at is None for asked in hosted.requests) >= 5

    def kill() -> None:
        try:
            until_true(under_way, "streams are under way")
            assert hosted._server is not None
            loop = hosted._server.get_loop()
            loop.call_soon_threadsafe(hosted._server.close)
            for connection in list(hosted._open):
                loop.call_soon_threadsafe(connection._reset)
        finally:
            killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(one, range(40)))
    killer.join()

    assert {status for status, _, _ in results} == {200}, "no client sees an error before its first token"
    broken = [raw for _, raw, _ in results if b'"error"' in raw]
    served = [raw for _, raw, _ in results if b'"error"' not in raw]
    assert broken and served
    for raw in broken:
        events = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]
        assert "error" in events[-1] and sum("error" in event for event in events) == 1
        assert all(choice.get("finish_reason") is None for event in events for choice in event.get("choices", []))
    assert any(b"fallback" in raw for raw in served)

    rows = {str(row["id"]): row for row in gateway.settled(40)}
    assert len(rows) == 40
    told = sum(cost_of(raw) for raw in served)
    answered = sum(row["cost"] for row in rows.values() if row["outcome"] == "completed")
    assert told == answered
    failed = sum(row["cost"] for row in rows.values() if row["outcome"] == "failed")
    report = gateway.cli("report", "--by", "team,backend,outcome", "--format", "json")
    booked = sum(line["cost_nanousd"] for line in json.loads(report)["lines"])
    assert booked == answered + failed


def test_a_dear_second_attempt_is_paid_by_a_budget_that_has_plenty(gateway: Gateway, broken: FakeUpstream) -> None:
    """What a process leased for the cheap first attempt is not all that the budget has left."""
    body = json.dumps({"model": "dear-then", "messages": [{"role": "user", "content": "go on"}], "max_tokens": 1000}).encode()
    teams = ("beta", "gamma", "delta")  # each with fresh leases
    for team in teams:
        gateway.key(team)
        gateway.budget("10", team=team)
    until_true(lambda: '"budgets": 3' in gateway.log, "the worker knows the budgets")
    for team in teams:
        status, answer, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys[team])
        assert (status, headers.get("x-tollway-backend")) == (200, "dear"), answer


def test_a_storm_of_failures_is_not_multiplied(gateway: Gateway, broken: FakeUpstream) -> None:
    """Each of seventy could be tried three times; the gateway's budget for more than one call stops that, whoever asks."""
    body = json.dumps({"model": "broken", "messages": [{"role": "user", "content": "go on"}]}).encode()
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda _: gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])[0], range(70)))
    spans = 1 + int((time.monotonic() - began) / 9.0)  # of ten seconds, of which no two share a whole one
    assert set(told) == {503}
    assert 70 < len(broken.requests) <= 70 + FLOOR * spans


def cost_of(raw: bytes) -> int:
    line = next(line for line in raw.decode().splitlines() if line.startswith(": tollway-cost-usd "))
    whole, _, parts = line.split()[-1].partition(".")
    return int(whole) * 1_000_000_000 + int(parts)
