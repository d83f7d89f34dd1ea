"""Rate limits as a client meets them: in memory and over Valkey, with one and two workers (G25)."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.harness import Gateway, backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, json_reply
from tests.fixtures.services import Valkey

# counted as 10: 3 for the prompt's end, 4 for a message, 3 for its words
ASK = {"model": "basic", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 40}
BODY = json.dumps(ASK).encode()
SEEN_S = 2.2  # every worker has polled the change


def post(gateway: Gateway, key: str, **more: object) -> tuple[int, bytes, dict[str, str]]:
    status, body, headers = gateway.call("POST", "/v1/chat/completions", json.dumps(ASK | more).encode(), key)
    return status, body, dict(headers)


def limit(gateway: Gateway, **most: int) -> None:
    gateway.admin("PUT", "/admin/limits", {"scope_kind": "team", "scope": "alpha", **most})


@pytest.mark.parametrize(("shared", "workers"), [(False, 1), (False, 2), (True, 2)], ids=["memory-1", "memory-2", "valkey-2"])
def test_g25_exactly_two_of_ten(tmp_path: Path, request: pytest.FixtureRequest, workers: int, shared: bool) -> None:
    url = request.getfixturevalue("valkey_url") if shared else ""
    with FakeUpstream(json_reply(chat_answer("well", usage=(10, 5)), delay_s=0.5)).threaded() as upstream:
        config = "[cache]\nredis_timeout_s = 10.0\n" + backend("basic", upstream.url) + route("basic", "basic")
        with running(tmp_path, config, server=f"workers = {workers}", redis_url=url) as gateway:
            key = gateway.key("alpha")
            limit(gateway, tpm=100)
            time.sleep(SEEN_S)
            with ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(lambda _: post(gateway, key), range(10)))
                if workers == 2 and not shared and sum(status == 200 for status, _, _ in answers) == 1:
                    answers += list(pool.map(lambda _: post(gateway, key), range(20)))  # the kernel gave one worker all of the first ten
            admitted = [headers for status, _, headers in answers if status == 200]
            refused = [(json.loads(body)["error"], headers) for status, body, headers in answers if status == 429]
            assert (len(admitted), len(refused)) == (2, len(answers) - 2)
            assert len(upstream.requests) == 2
            for error, headers in refused:
                assert error["code"] == "rate_limit_exceeded" and "team 'alpha'" in error["message"]
                assert 0 < int(headers["retry-after"]) <= 60
                assert headers["x-ratelimit-limit-tokens"] == ("100" if shared or workers == 1 else "50")
            rows = gateway.settled(len(answers))
            assert sorted({row["outcome"] for row in rows}) == ["completed", "refused"]
            if shared or workers == 1:
                status, _, headers = post(gateway, key, max_tokens=60)
                assert (status, headers["x-ratelimit-remaining-tokens"]) == (200, "0"), "30 used, 70 reserved"


def test_every_end_of_a_request_frees_its_slot(tmp_path: Path, valkey_url: str) -> None:
    """Completed, failed, refused by a budget, client gone: a limit of one at once never stays taken. The cache's hit is a request too."""
    with FakeUpstream(json_reply(chat_answer("well", usage=(10, 5)))).threaded() as upstream:
        config = "[cache]\nredis_timeout_s = 10.0\n" + backend("basic", upstream.url) + route("basic", "basic", more="max_attempts = 1")
        with running(tmp_path, config, redis_url=valkey_url) as gateway:
            key = gateway.key("alpha")
            limit(gateway, parallel=1, rpm=7)
            time.sleep(SEEN_S)
            status, _, headers = post(gateway, key, temperature=0)
            assert (status, headers["x-ratelimit-remaining-requests"]) == (200, "6")
            status, _, headers = post(gateway, key, temperature=0)
            assert (status, headers["x-tollway-cache"], headers["x-ratelimit-remaining-requests"]) == (200, "hit", "5")
            upstream.play(json_reply({"error": {"message": "broken"}}, 500))
            assert until_free(lambda: post(gateway, key)) >= 500
            upstream.play(json_reply(chat_answer("late", usage=(10, 5)), delay_s=5))
            leave(gateway, key)
            upstream.play(json_reply(chat_answer("well", usage=(10, 5))))
            assert until_free(lambda: post(gateway, key)) == 200
            gateway.budget("0", "total")
            time.sleep(SEEN_S)
            assert until_free(lambda: post(gateway, key)) == 402
            limit(gateway, tpm=20)
            time.sleep(SEEN_S)
            status, body, headers = post(gateway, key)
            assert (status, json.loads(body)["error"]["code"]) == (400, "request_exceeds_limit") and "retry-after" not in headers


def test_g12_a_frozen_redis_delays_little_and_shows(tmp_path: Path) -> None:
    """Twenty requests while Redis is stopped: all answered, one short wait at most, degraded in the metrics; shared again afterwards."""
    server = Valkey()
    try:
        with FakeUpstream(json_reply(chat_answer("well", usage=(10, 5)))).threaded() as upstream:
            config = backend("basic", upstream.url) + route("basic", "basic")
            with running(tmp_path, config, redis_url=server.url) as gateway:
                key = gateway.key("alpha")
                limit(gateway, rpm=1000, tpm=1000000)
                time.sleep(SEEN_S)
                assert post(gateway, key)[0] == 200
                os.kill(server.process.pid, signal.SIGSTOP)
                waits = []
                for _ in range(20):
                    began = time.monotonic()
                    assert post(gateway, key)[0] == 200
                    waits.append(time.monotonic() - began)
                assert max(waits) < 1.0
                assert sorted(waits)[10] < 0.5, "the breaker is open: nothing is asked"
                assert degraded(gateway, 1.0, within_s=20)
                os.kill(server.process.pid, signal.SIGCONT)
                assert degraded(gateway, 0.0, within_s=30)
                assert post(gateway, key)[0] == 200
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        server.stop()


def degraded(gateway: Gateway, wanted: float, within_s: float) -> bool:
    """Whether the metrics come to say so."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        lines = gateway.get("/metrics")[1].decode().splitlines()
        if f"tollway_limits_degraded {wanted}" in lines:
            return True
        time.sleep(0.2)
    return False


def until_free(call: Callable[[], tuple[int, bytes, dict[str, str]]]) -> int:
    """The status, once it is not 429 for the slot: an end is told to Redis a moment after the answer."""
    end = time.monotonic() + 3
    while True:
        status, body, _ = call()
        if status != 429:
            return status
        assert b"at once" in body, body
        assert time.monotonic() < end, body
        time.sleep(0.05)


def leave(gateway: Gateway, key: str) -> None:
    """Ask and hang up before there is an answer."""
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {len(BODY)}\r\n\r\n"
        link.sendall(head.encode() + BODY)
        time.sleep(0.3)
