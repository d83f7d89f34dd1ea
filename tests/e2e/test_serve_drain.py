"""SIGTERM with streams running, on both servers: those that end in time are whole, the rest end with one error event, all are booked."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.harness import Gateway, route, running

STREAMS = 20
SCRIPTED = """
[[backends]]
name = "{name}"
vendor = "scripted"
model = "m"
price = {{ input = "1", output = "2" }}
script = '''
tokens = {tokens}
tpot_s = 0.02
'''
"""
CONFIG = (
    SCRIPTED.format(name="long", tokens=3000) + SCRIPTED.format(name="short", tokens=60) + route("long", "long") + route("short", "short")
)


async def stream(client: httpx.AsyncClient, url: str, key: str, model: str, begun: asyncio.Semaphore) -> list[str]:
    """The data of every event of one stream."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    found: list[str] = []
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                if not found:
                    begun.release()
                found.append(line.removeprefix("data: "))
    return found


async def drained(gateway: Gateway, model: str) -> tuple[list[list[str]], int, float]:
    """STREAMS streams, SIGTERM when all have begun: what each was sent, the exit status, and how long the end took."""
    assert gateway.process is not None
    begun = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=STREAMS)
    async with httpx.AsyncClient(timeout=30, limits=limits) as client:
        tasks = [asyncio.create_task(stream(client, gateway.url, gateway.keys["alpha"], model, begun)) for _ in range(STREAMS)]
        for _ in range(STREAMS):
            await asyncio.wait_for(begun.acquire(), 20)
        gateway.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        await asyncio.sleep(0.5)
        assert not listening(gateway.port), "no new connection while draining"
        found = await asyncio.gather(*tasks)
        status = await asyncio.to_thread(gateway.process.wait, 30)
    return found, status, time.monotonic() - started


def listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def reasons(events: list[str]) -> list[Any]:
    """Every finish_reason that was said."""
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    return [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", ()) if choice.get("finish_reason")]


@pytest.mark.parametrize("server", ["granian", "uvicorn"])
async def test_streams_beyond_the_drain_time_end_with_one_error_event(server: str, tmp_path: Path) -> None:
    with running(tmp_path, CONFIG, server=f'server = "{server}"\ndrain_s = 1') as gateway:
        gateway.key()
        found, status, took_s = await drained(gateway, "long")
        assert status == 0
        assert 1 <= took_s < 8
        for events in found:
            errors = [json.loads(event)["error"] for event in events if event != "[DONE]" and "error" in json.loads(event)]
            assert [error["code"] for error in errors] == ["draining"]
            assert "error" in json.loads(events[-1])
            assert reasons(events) == []
        rows = await gateway._rows("SELECT outcome, output_tokens, cost FROM usage", {})
        assert [row["outcome"] for row in rows] == ["failed"] * STREAMS
        assert all(row["output_tokens"] > 0 and row["cost"] > 0 for row in rows)
        assert await gateway._rows("SELECT * FROM budget_leases", {}) == []


@pytest.mark.parametrize("server", ["granian", "uvicorn"])
async def test_streams_that_end_in_time_are_whole(server: str, tmp_path: Path) -> None:
    with running(tmp_path, CONFIG, server=f'server = "{server}"\ndrain_s = 20') as gateway:
        gateway.key()
        found, status, took_s = await drained(gateway, "short")
        assert status == 0
        assert took_s < 18, "nobody waits for drain_s when nothing runs any more"
        assert [(reasons(events), events[-1]) for events in found] == [(["stop"], "[DONE]")] * STREAMS
        rows = await gateway._rows("SELECT outcome, output_tokens FROM usage", {})
        assert [(row["outcome"], row["output_tokens"]) for row in rows] == [("completed", 60)] * STREAMS


async def test_a_second_signal_hurries(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG, server="drain_s = 60") as gateway:
        gateway.key()
        assert gateway.process is not None
        begun = asyncio.Semaphore(0)
        async with httpx.AsyncClient(timeout=30) as client:
            task = asyncio.create_task(stream(client, gateway.url, gateway.keys["alpha"], "long", begun))
            await asyncio.wait_for(begun.acquire(), 20)
            gateway.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            assert not task.done()
            started = time.monotonic()
            gateway.process.send_signal(signal.SIGTERM)
            events = await task
        assert await asyncio.to_thread(gateway.process.wait, 20) == 0
        assert time.monotonic() - started < 15
        assert json.loads(events[-1])["error"]["code"] == "draining"
