"""The hosted side dies under load: what was not committed fails over unseen, what was committed ends with one error; all is booked."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.harness import backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_chunks, sse_reply
from tests.fixtures.waiting import until_true

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
"""


def test_killing_the_hosted_side_mid_run(tmp_path: Path) -> None:
    hosted = FakeUpstream(sse_reply(chat_chunks(["tok "] * 60, usage=(10, 60)), first_s=0.15, delay_s=0.02))
    with hosted.threaded() as upstream:
        config = (
            "[routing]\nretry_budget_floor = 100\n"  # on a slow machine all forty may wait at once
            + backend("hosted", upstream.url, price='price = { input = "0.01", output = "0.01" }')
            + LOCAL
            + route("both", "hosted", "fallback")
        )
        with running(tmp_path, config) as gateway:
            key = gateway.key("alpha")
            body = json.dumps({"model": "both", "messages": [{"role": "user", "content": "go on"}], "stream": True}).encode()
            results: list[tuple[int, bytes, str]] = []

            def one(n: int) -> None:
                time.sleep(n * 0.03)
                status, raw, headers = gateway.call("POST", "/v1/chat/completions", body, key)
                results.append((status, raw, headers["x-tollway-request-id"]))

            def kill() -> None:
                until_true(lambda: len(hosted.requests) >= 12, "streams are under way")
                time.sleep(0.5)
                assert upstream._server is not None
                loop = upstream._server.get_loop()
                loop.call_soon_threadsafe(upstream._server.close)
                for connection in list(upstream._open):
                    loop.call_soon_threadsafe(connection._reset)

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


def cost_of(raw: bytes) -> int:
    line = next(line for line in raw.decode().splitlines() if line.startswith(": tollway-cost-usd "))
    whole, _, parts = line.split()[-1].partition(".")
    return int(whole) * 1_000_000_000 + int(parts)
