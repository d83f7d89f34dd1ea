"""Nothing that a client or a backend sends may hold up the ledger: not a number too large, not a NUL, not a text without end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Storage
from tests.e2e.harness import backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, json_reply, sse_reply

CREDENTIAL = "0f3c9a77d2e14b6688aa"


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)  # the stricter one of texts and numbers
def test_what_others_send_reaches_the_ledger_or_nothing(storage: Storage, tmp_path: Path) -> None:
    long_id = [{**event, "id": "\0" + "i" * 2_000_000} for event in chat_chunks(["a"], usage=(1, 1))]
    replies = [
        (200, json_reply({**chat_answer(usage=(1, 1)), "id": "a\0b"})),
        (200, sse_reply(long_id)),
        (200, json_reply({**chat_answer(), "usage": {"prompt_tokens": 10**30, "completion_tokens": 1}})),
        (200, json_reply({**chat_answer(), "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost_in_usd_ticks": 10**25}})),
        (400, json_reply({"error": {"message": f"no: {CREDENTIAL}", "code": "a\0b" * 5000, "param": CREDENTIAL}}, 400)),
        (400, json_reply({"error": {"message": "no", "code": CREDENTIAL}}, 400)),
    ]
    with FakeUpstream(*[reply for _, reply in replies]).threaded() as upstream:
        config = backend("one", upstream.url, more='api_key = "env:UPSTREAM_KEY"') + route("one", "one", more="max_attempts = 1")
        where = {"database_url": storage.database_url, "state": storage.state_dir}
        with running(tmp_path, config, UPSTREAM_KEY=CREDENTIAL, **where) as gateway:
            key = gateway.key("alpha")

            def ask(**members: Any) -> tuple[int, bytes]:
                body = {"model": "one", "messages": [{"role": "user", "content": "\0"}], **members}
                return gateway.call("POST", "/v1/chat/completions", json.dumps(body).encode(), key, {"x-tollway-tag": "caf\xe9"})[:2]

            for limit in (10**40, 2**63, 2**62):
                status, told = ask(max_tokens=limit)
                assert (status, json.loads(told)["error"]["param"]) == (400, "max_tokens")
            answers = [ask() for _ in replies]

            assert [status for status, _ in answers] == [status for status, _ in replies]
            assert ask(max_tokens=10**9)[0] == 400, "the last reply once more"
            rows = gateway.settled(len(replies) + 1)
            assert [row["outcome"] for row in rows] == ["completed"] * 4 + ["failed"] * 3
            assert [row["error"] for row in rows] == [""] * 4 + ["invalid_request_error"] * 3
            assert all(len(row["provider_id"]) <= 256 for row in rows)
            seen = b"".join(told for _, told in answers) + gateway.get("/metrics")[1] + gateway.log.encode()
            assert CREDENTIAL.encode() not in seen
        assert gateway.process is not None and gateway.process.returncode == 0
