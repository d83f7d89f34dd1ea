"""One look a second at every live request: who is cancelled and why, who hears a keep-alive; chores that cannot hurt each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.auth import Principal
from gateway.catalog import Catalog, Route
from gateway.exchange import Exchange
from gateway.routing.features import Features
from gateway.telemetry import Telemetry
from gateway.ticker import Ticker
from providers.types import Request

KEEP_ALIVE_S, STALLED_S = 10.0, 60.0
CATALOG = Catalog(version="1", backends={}, routes={"r": Route(name="r", backends=())})


def exchange() -> Exchange:
    features = Features(route="r", dialect="openai_chat", input_tokens=1, input_tokens_upper=1, expected_output_tokens=1)
    return Exchange(
        uuid4(), Principal(org_id=1, team_id=1, key_id=1), Request(dialect="openai_chat", fields={}, model="r"), CATALOG, features
    )


def ticker(folder: Path, *live: Exchange) -> Ticker:
    return Ticker(live, KEEP_ALIVE_S, STALLED_S, Telemetry(folder, "0"))


async def running(x: Exchange) -> asyncio.Task[None]:
    x.task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return x.task


async def outcome(x: Exchange) -> str:
    """Why its task was cancelled; empty when it goes on."""
    task = x.task
    assert task is not None
    done, _ = await asyncio.wait({task}, timeout=0.05)
    if not done:
        task.cancel()
        return ""
    return x.cancel_reason


@pytest.mark.parametrize(("now", "reason"), [(100.0, ""), (100.1, "deadline")])
async def test_a_passed_deadline_ends_a_request(tmp_path: Path, now: float, reason: str) -> None:
    x = exchange()
    await running(x)
    x.deadline_at = 100.0
    ticker(tmp_path, x).look(now)
    assert await outcome(x) == reason


@pytest.mark.parametrize(("now", "reason"), [(160.0, ""), (160.1, "stalled")])
async def test_a_client_that_does_not_read_is_cut(tmp_path: Path, now: float, reason: str) -> None:
    x = exchange()
    await running(x)
    x.sending_since = 100.0
    ticker(tmp_path, x).look(now)
    assert await outcome(x) == reason


async def test_a_settled_request_is_left_alone(tmp_path: Path) -> None:
    x = exchange()
    await running(x)
    x.deadline_at, x.outcome = 100.0, "completed"
    ticker(tmp_path, x).look(200.0)
    assert await outcome(x) == ""


@pytest.mark.parametrize("before", ["", "deadline"])
async def test_a_client_that_does_not_read_the_last_words_of_a_settled_request_is_cut_once(tmp_path: Path, before: str) -> None:
    x = exchange()
    task = await running(x)
    x.outcome, x.cancel_reason, x.sending_since, x.deadline_at = "completed", before, 100.0, 100.0
    one = ticker(tmp_path, x)
    one.look(160.1)
    one.look(161.1)
    assert (await outcome(x), task.cancelling()) == ("stalled", 1)


async def test_a_silent_stream_hears_one_keep_alive_per_silence(tmp_path: Path) -> None:
    x, heard = exchange(), 0

    def keep_alive() -> None:
        nonlocal heard
        heard += 1

    x.keep_alive, x.last_sent = keep_alive, 100.0
    one = ticker(tmp_path, x)
    counts = []
    for now in (110.0, 110.5, 111.5, 120.4, 120.6):
        one.look(now)
        counts.append(heard)
    assert counts == [0, 1, 1, 1, 2]


async def test_a_stream_whose_send_is_blocked_gets_no_keep_alive(tmp_path: Path) -> None:
    x = exchange()
    await running(x)
    x.keep_alive, x.last_sent, x.sending_since = lambda: pytest.fail("sent into a blocked stream"), 100.0, 130.0
    ticker(tmp_path, x).look(131.0)
    assert await outcome(x) == ""


async def test_a_chore_that_fails_is_counted_and_the_others_go_on(tmp_path: Path) -> None:
    one, done = ticker(tmp_path), asyncio.Event()

    async def broken() -> None:
        raise ZeroDivisionError

    async def works() -> None:
        done.set()

    one.every("broken", 60.0, broken)
    one.every("works", 60.0, works)
    one.start()
    try:
        await asyncio.wait_for(done.wait(), 30.0)
        await asyncio.sleep(0)
        assert one.telemetry.numbers.counters["tollway_faults_total"] == {("ZeroDivisionError",): 1}
    finally:
        await one.stop()


async def test_a_tick_that_fails_does_not_end_the_ticking(tmp_path: Path) -> None:
    x = exchange()
    await running(x)
    one, failed = ticker(tmp_path, x), asyncio.Event()

    def broken() -> dict[str, float]:
        failed.set()
        raise ZeroDivisionError

    one.telemetry.gauges = broken
    one.start()
    try:
        await asyncio.wait_for(failed.wait(), 30.0)
        x.deadline_at = 0.0
        assert x.task is not None
        await asyncio.wait({x.task}, timeout=5.0)
        assert x.cancel_reason == "deadline"
    finally:
        await one.stop()


async def test_a_slow_chore_is_not_started_again(tmp_path: Path) -> None:
    one, starts = ticker(tmp_path), 0

    async def slow() -> None:
        nonlocal starts
        starts += 1
        await asyncio.Event().wait()

    one.every("slow", 0.001, slow)
    one.start()
    await asyncio.sleep(2.5)
    await one.stop()
    assert starts == 1
