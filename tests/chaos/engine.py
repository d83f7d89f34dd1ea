"""A local engine that is killed and that hangs, again and again, under more requests than it can hold: every request ends, the engine comes
back, and the gateway answers its health check meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import Database
from tests.e2e.harness import Gateway, route, running
from tests.local_engine.tiny import make_model

ROUNDS = 6
CLIENTS = 24
ANSWER_S = 120.0  # for one request, on a machine that is busy with other things
BACK_S = 180.0
HEALTH_MS = 1000.0  # at worst, of the 99th percentile; what a quiet machine does is said
CONFIG = """
[local_engine]
threads = 1
max_sequences = 4
max_waiting = 8
silent_s = 5.0

[[backends]]
name = "tiny"
vendor = "local"
model = "tiny"
price = { input = "0.01", output = "0.01" }
""" + route("only", "tiny", more='cache = "never"')


async def run(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None]) -> None:
    make_model(folder / "models" / "tiny", max_position_embeddings=16384)
    (folder / "g").mkdir()
    await asyncio.to_thread(_run, folder, rng, say)


def _run(folder: Path, rng: random.Random, say: Callable[[str], None]) -> None:
    with running(folder / "g", CONFIG, server="workers = 2", TOLLWAY_MODELS=str(folder / "models"), OMP_NUM_THREADS="1") as gateway:
        gateway.key("alpha")
        back(gateway)
        for number in range(ROUNDS):
            how = signal.SIGKILL if number % 2 == 0 else signal.SIGSTOP
            ends, health_ms = asyncio.run(broken(gateway, how, rng.uniform(0.5, 3.0)))
            p99 = statistics.quantiles(health_ms, n=100)[98]
            took_s = back(gateway)
            say(f"{how.name}: {dict(ends)}, back after {took_s:.1f} s, health p99 {p99:.0f} ms of {len(health_ms)}")
            assert ends["lost"] == 0, "a request had no end"
            assert p99 < HEALTH_MS
        say(f"the engine was started {len(pids(gateway))} times")
        assert len(pids(gateway)) >= ROUNDS + 1


def pids(gateway: Gateway) -> list[int]:
    return [int(pid) for pid in re.findall(r'"child started", "child": "engine tiny", "pid": (\d+)', gateway.log)]


async def broken(gateway: Gateway, how: signal.Signals, after_s: float) -> tuple[Counter[str], list[float]]:
    """Requests until the engine is hit, and to their ends; how each ended, and health checks in ms."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CLIENTS + 1))  # the watcher never waits for a thread
    stop = asyncio.Event()
    health_ms: list[float] = []
    asking = [asyncio.create_task(asks(gateway, stop)) for _ in range(CLIENTS)]
    watching = asyncio.create_task(watches(gateway, stop, health_ms))
    await asyncio.sleep(after_s)
    os.kill(pids(gateway)[-1], how)
    await asyncio.sleep(1.0)
    stop.set()
    ends = sum(await asyncio.gather(*asking), Counter[str]())
    await watching
    return ends, health_ms


async def asks(gateway: Gateway, stop: asyncio.Event) -> Counter[str]:
    ends: Counter[str] = Counter()
    body = {"model": "only", "messages": [{"role": "user", "content": "the quick"}], "max_tokens": 60, "ignore_eos": True, "stream": True}
    while not stop.is_set():
        try:
            async with asyncio.timeout(ANSWER_S):
                status, said, _ = await asyncio.to_thread(
                    gateway.call, "POST", "/v1/chat/completions", json.dumps(body).encode(), gateway.keys["alpha"]
                )
        except TimeoutError:
            ends["lost"] += 1
            continue
        whole = b'"finish_reason":"length"' in said and b"[DONE]" in said
        ends["answered" if whole else "error event" if status == 200 and b'"error"' in said else str(status)] += 1
        ends["lost"] += status == 200 and not whole and b'"error"' not in said
    return ends


async def watches(gateway: Gateway, stop: asyncio.Event, health_ms: list[float]) -> None:
    while not stop.is_set() or len(health_ms) < 10:
        began = time.monotonic()
        await asyncio.to_thread(gateway.get, "/health/live")
        health_ms.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.01)


def back(gateway: Gateway) -> float:
    """Seconds until it answers again."""
    body = json.dumps({"model": "only", "messages": [{"role": "user", "content": "the"}], "max_tokens": 1}).encode()
    began = time.monotonic()
    while gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])[0] != 200:
        assert time.monotonic() - began < BACK_S, "the engine did not come back"
        time.sleep(0.1)
    return time.monotonic() - began
