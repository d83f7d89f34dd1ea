"""Postgres behind it, Valkey for the cache, two workers: one ledger, one cache, one set of books."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.settings import Storage
from tests.e2e.harness import backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, json_reply, sse_reply


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
def test_workers_share_answers_and_books(storage: Storage, valkey_url: str, tmp_path: Path) -> None:
    with FakeUpstream(json_reply(chat_answer("shared", usage=(100, 10)))).threaded() as upstream:
        config = backend("one", upstream.url) + route("one", "one") + "[cache]\nredis_timeout_s = 10.0\n"  # a busy machine is no outage
        options = {"database_url": storage.database_url, "redis_url": valkey_url, "state": storage.state_dir}
        with running(tmp_path, config, server="workers = 2", **options) as gateway:
            key = gateway.key("alpha")
            ask = {"model": "one", "messages": [{"role": "user", "content": "the same"}], "temperature": 0}
            told = []
            for _ in range(12):  # a connection each: the kernel spreads them over the workers
                status, body, headers = gateway.call("POST", "/v1/chat/completions", json.dumps(ask).encode(), key)
                assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "shared"
                told.append((headers["x-tollway-cache"], headers["x-tollway-cost-usd"]))
            assert len(upstream.requests) == 1
            assert told == [("miss", "0.000120000")] + [("hit", "0.000000000")] * 11
            upstream.play(sse_reply(chat_chunks(["a", "b"], usage=(100, 2))))
            for n in range(8):
                other = {"model": "one", "messages": [{"role": "user", "content": f"stream {n}"}], "stream": True}
                assert gateway.call("POST", "/v1/chat/completions", json.dumps(other).encode(), key)[0] == 200

            rows = gateway.settled(20)
            assert len({row["process_id"] for row in rows}) == 2, "both workers served"
            assert sorted(row["outcome"] for row in rows) == ["cached"] * 11 + ["completed"] * 9
            spent = sum(row["cost"] for row in rows)
            assert spent == 120_000 + 8 * 104_000
            assert sum(row["saved"] for row in rows) == 11 * 120_000
            assert gateway.rows("SELECT sum(cost) AS cost FROM rollups")[0]["cost"] == spent
            served = json.loads(gateway.cli("report", "--by", "team", "--format", "json"))["total"]
            assert served["cost_nanousd"] == spent and served["requests"] == 20
