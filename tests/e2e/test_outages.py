"""Postgres frozen, gone and back; a start without it; a stop with rows that wait; a full disk: no row is lost, no status is wrong."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import BASIC, FLAT, ROOT, Gateway, backend, route, running
from tests.e2e.test_serve import children
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, json_reply, sse_reply
from tests.fixtures.services import Postgres

WITHIN_S = 60.0  # for what must come to be true, on a machine that is busy with other things


@pytest.fixture
def server() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    if made.process.poll() is None:
        made.stop()


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream(json_reply(chat_answer("well", usage=(12, 3)))).threaded() as made:
        yield made


def until(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + WITHIN_S
    while not (found := true()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.2)
    return found


def ask(gateway: Gateway, model: str, key: str, **more: Any) -> tuple[int, str, dict[str, str]]:
    """Status, code of the error, headers."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "go"}]} | more).encode()
    status, answer, headers = gateway.call("POST", "/v1/chat/completions", body, key)
    return status, "" if status == 200 else json.loads(answer)["error"]["code"], dict(headers)


def test_g13_postgres_frozen_stopped_and_back(server: Postgres, upstream: FakeUpstream, tmp_path: Path) -> None:
    config = (
        "[money]\nidle_return_s = 600.0\n"
        + backend("basic", upstream.url, price=BASIC)
        + backend("flat", upstream.url, model="m-flat", price=FLAT, more="max_output_tokens = 30000")
        + route("basic", "basic")
        + route("flat", "flat")
    )
    upstream.play(lambda received: json_reply(chat_answer("well", usage=(12, received.json().get("max_tokens", 3)))))
    with running(tmp_path, config, database_url=server.url) as gateway:
        free, rich = gateway.key("alpha"), gateway.key("rich")
        gateway.budget("10000", team="rich")
        served = 0

        def good(model: str, key: str, **more: Any) -> tuple[int, str, dict[str, str]]:
            nonlocal served
            told = ask(gateway, model, key, **more)
            served += told[0] == 200
            return told

        until(lambda: good("flat", rich)[0] == 200 and gateway.rows("SELECT 1 FROM budget_windows"))
        assert good("basic", free)[0] == 200
        for name, freeze, back in (("A", server.freeze, server.thaw), ("B", server.end, server.start)):
            unknown = free[:-8] + name * 8  # another one each time: that a key is unknown is remembered
            freeze()
            try:
                assert good("basic", free)[0] == 200, "a known key goes on"
                status, code, headers = ask(gateway, "basic", unknown)
                assert (status, code) == (503, "keys_unavailable") and int(headers["retry-after"]) >= 1
                assert gateway.get("/health/live")[0] == 200
                for _ in range(1000):  # until the slice is used up
                    status, code, headers = good("flat", rich, max_tokens=30_000)
                    if status != 200:
                        break
                assert (status, code) == (503, "budget_unavailable") and int(headers["retry-after"]) >= 1
                assert metric(gateway, "tollway_ledger_queue_rows") > 0
            finally:
                back()
            until(lambda: completed(gateway) == served)
            until(lambda: ask(gateway, "basic", unknown)[0] == 401)  # noqa: B023
            assert until(lambda: good("flat", rich)[0] == 200)
        assert gateway.stop() == 0
        assert completed(gateway) == served
        assert "every invariant holds" in gateway.cli("ledger", "verify")
        starts_without(server, gateway, free)


def starts_without(server: Postgres, gateway: Gateway, key: str) -> None:
    """Alive, not ready, and 503 for everybody; by itself ready when the database is there."""
    server.end()
    with (gateway.folder / "log").open("ab") as log:
        command = [sys.executable, "-m", "gateway", "--config", str(gateway.folder / "tollway.toml"), "serve"]
        gateway.process = subprocess.Popen(command, cwd=ROOT, env=gateway.environ, stdout=log, stderr=log, start_new_session=True)
    until(lambda: answers(gateway, "/health/live"))
    assert gateway.get("/health/ready")[0] == 503
    status, _, headers = ask(gateway, "basic", key)
    assert status == 503 and "retry-after" in headers
    server.start()
    until(lambda: answers(gateway, "/health/ready"))
    assert until(lambda: ask(gateway, "basic", key)[0] == 200)


def answers(gateway: Gateway, path: str) -> bool:
    try:
        return gateway.get(path)[0] == 200
    except OSError:
        return False


def rows(gateway: Gateway) -> list[dict[str, Any]]:
    return gateway.rows("SELECT status, outcome, cost FROM usage")


def completed(gateway: Gateway) -> int:
    return sum(row["status"] == 200 for row in rows(gateway))


def metric(gateway: Gateway, name: str) -> float:
    lines = gateway.get("/metrics")[1].decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


def test_g11_rows_that_wait_are_written_at_the_stop(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Two hundred requests, a flush every minute, SIGTERM: two hundred rows, the sum exact."""
    config = (
        "[money]\ntick_s = 60.0\nheartbeat_s = 60.0\n[cache]\nenabled = false\n" + backend("basic", upstream.url) + route("basic", "basic")
    )
    with running(tmp_path, config) as gateway:
        key = gateway.key("alpha")
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda _: ask(gateway, "basic", key), range(200)))
        assert {status for status, _, _ in told} == {200}
        assert len(rows(gateway)) < 200, "they wait"
        assert gateway.stop() == 0
        found = rows(gateway)
        assert (len(found), sum(row["cost"] for row in found)) == (200, 200 * 18_000)


def test_a_full_disk_stops_admission_and_loses_nothing(upstream: FakeUpstream, tmp_path: Path) -> None:
    """No file of the worker may grow: no new journal segment, no row in SQLite. A stream that runs is served to its end."""
    config = "[money]\nsegment_bytes = 65536\n[cache]\nenabled = false\n" + backend("basic", upstream.url) + route("basic", "basic")
    with running(tmp_path, config) as gateway:
        key = gateway.key("alpha")
        assert ask(gateway, "basic", key)[0] == 200
        assert gateway.process is not None
        worker = children(gateway.process.pid)[0]
        _, hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)
        upstream.play(sse_reply(chat_chunks(["x"] * 40, usage=(12, 40)), first_s=0.5, delay_s=0.05), json_reply(chat_answer(usage=(12, 3))))
        with ThreadPoolExecutor(1) as pool:
            running_one = pool.submit(stream, gateway, key)
            until(lambda: len(upstream.requests) == 2)
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (8192, hard))
            served = 2
            for _ in range(2000):
                status, code, headers = ask(gateway, "basic", key)
                if status != 200:
                    break
                served += 1
            assert (status, code) == (503, "journal_full") and int(headers["retry-after"]) >= 1
            assert gateway.get("/health/ready")[0] == 503
            assert running_one.result(WITHIN_S).endswith(b"data: [DONE]\n\n")
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: ask(gateway, "basic", key)[0] == 200)
        until(lambda: len(rows(gateway)) == served + 1)
        assert gateway.get("/health/ready")[0] == 200
        assert gateway.stop() == 0
        assert "every invariant holds" in gateway.cli("ledger", "verify")


def stream(gateway: Gateway, key: str) -> bytes:
    body = json.dumps({"model": "basic", "stream": True, "messages": [{"role": "user", "content": "go"}]}).encode()
    return gateway.call("POST", "/v1/chat/completions", body, key)[1]
