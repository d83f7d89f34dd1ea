"""Hard budgets under concurrency, on both databases, with one and two workers (G02, G26)."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.settings import Storage
from tests.e2e.harness import FLAT, Gateway, backend, free_port, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, json_reply

ASK = json.dumps({"model": "flat", "messages": [{"role": "user", "content": "spend"}], "max_tokens": 30_000}).encode()


@pytest.mark.parametrize(("storage", "workers"), [("sqlite", 1), ("sqlite", 2), ("postgres", 2)], indirect=["storage"])
def test_g02_exactly_three_of_ten(storage: Storage, tmp_path: Path, workers: int) -> None:
    answer = json_reply(chat_answer("spent", usage=(10, 30_000)), delay_s=0.5)
    with FakeUpstream(answer).threaded() as upstream:
        config = backend("flat", upstream.url, model="m-flat", price=FLAT, more="max_output_tokens = 30000") + route("flat", "flat")
        with running(
            tmp_path, config, server=f"workers = {workers}", database_url=storage.database_url, state=storage.state_dir
        ) as gateway:
            key = gateway.key("alpha")
            gateway.budget("1.00")
            time.sleep(2.2)  # every worker has polled the budget

            with ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(lambda _: gateway.call("POST", "/v1/chat/completions", ASK, key), range(10)))

            assert sorted(status for status, _, _ in answers) == [200] * 3 + [402] * 7
            assert len(upstream.requests) == 3
            refused = next((json.loads(body)["error"], headers) for status, body, headers in answers if status == 402)
            assert refused[0]["code"] == "insufficient_quota" and refused[1]["x-should-retry"] == "false"
            assert "0.300" in refused[0]["message"], "it says what the request may cost"
            rows = gateway.settled(10)
            assert sorted(row["cost"] for row in rows) == [0] * 7 + [300_000_000] * 3
            assert sorted(row["outcome"] for row in rows) == ["completed"] * 3 + ["refused"] * 7
            windows(gateway, spent=900_000_000)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)  # tests/money holds the same of Postgres
def test_g26_what_a_request_did_not_use_comes_back(storage: Storage, tmp_path: Path) -> None:
    """Held money is given back by settling: a cheap answer, an upstream error and a refused connection leave nothing reserved."""
    with FakeUpstream(json_reply(chat_answer("cheap", usage=(10, 100)))).threaded() as upstream:
        gone = f"http://127.0.0.1:{free_port()}"
        config = (
            backend("flat", upstream.url, model="m-flat", price=FLAT, more="max_output_tokens = 30000")
            + backend("gone", gone, model="m-flat", price=FLAT, more="max_output_tokens = 30000")
            + route("flat", "flat", more="max_attempts = 1")
            + route("gone", "gone", more="max_attempts = 1")
        )
        with running(tmp_path, config, database_url=storage.database_url, state=storage.state_dir) as gateway:
            key = gateway.key("alpha")
            gateway.budget("0.31", "day", timezone="Asia/Shanghai")
            time.sleep(1.5)
            assert gateway.call("POST", "/v1/chat/completions", ASK.replace(b'"flat"', b'"gone"'), key)[0] == 503
            upstream.play(json_reply({"error": {"message": "broken"}}, 500))
            assert gateway.call("POST", "/v1/chat/completions", ASK, key)[0] >= 500
            upstream.play(json_reply(chat_answer("cheap", usage=(10, 100))))
            assert gateway.call("POST", "/v1/chat/completions", ASK, key)[0] == 200
            assert gateway.call("POST", "/v1/chat/completions", ASK, key)[0] == 200, "0.309 USD are left, 0.300 may be reserved"
            windows(gateway, spent=2_000_000)


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
def test_a_budget_may_lower_what_a_request_asks_for(storage: Storage, tmp_path: Path) -> None:
    """Only where its header allows it; the backend is told, the answer says so, and it is not kept for others."""
    with FakeUpstream(json_reply(chat_answer("short", usage=(10, 4_000)))).threaded() as upstream:
        config = backend("flat", upstream.url, model="m-flat", price=FLAT, more="max_output_tokens = 30000") + route("flat", "flat")
        with running(tmp_path, config, database_url=storage.database_url, state=storage.state_dir) as gateway:
            key = gateway.key("alpha")
            gateway.budget("0.10")
            time.sleep(2.2)
            ask = json.dumps(json.loads(ASK) | {"temperature": 0}).encode()
            assert gateway.call("POST", "/v1/chat/completions", ask, key)[0] == 402

            def clamped(word: str = "allow") -> tuple[int, str | None]:
                status, _, headers = gateway.call("POST", "/v1/chat/completions", ask, key, {"x-tollway-clamp": word})
                return status, headers.get("x-tollway-clamped")

            assert clamped("yes") == (400, None)
            assert clamped() == (200, "10000"), "0.10 USD at 10 USD a million"
            assert json.loads(upstream.requests[-1].body)["max_tokens"] == 10_000
            time.sleep(0.5)
            assert clamped() == (200, "6000"), "asked upstream again: a shortened answer is not cached"
            assert len(upstream.requests) == 2
            windows(gateway, spent=80_000_000)
            upstream.play(json_reply(chat_answer("last", usage=(10, 1_990))))
            assert clamped() == (200, "2000")
            windows(gateway, spent=99_900_000)
            assert clamped() == (402, None), "ten tokens are no answer"


def windows(gateway: Gateway, *, spent: int) -> None:
    """Spent is exact and, a moment after the last answer, nothing is leased."""
    end = time.monotonic() + 8
    while True:
        rows = gateway.rows("SELECT spent, leased FROM budget_windows WHERE spent > 0 OR leased > 0")
        if rows == [{"spent": spent, "leased": 0}]:
            return
        assert time.monotonic() < end, rows
        time.sleep(0.2)
