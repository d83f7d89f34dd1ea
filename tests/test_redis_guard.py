"""gateway.redis_guard: the breaker over a port that refuses, and what a caller is told."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from redis.exceptions import RedisError

from gateway.redis_guard import ERRORS_OPEN, PINGS_CLOSE, Away, RedisGuard, end
from tests.fixtures.waiting import until


def guard(url: str) -> RedisGuard:
    return RedisGuard(url, timeout_s=2, connections=1, without="nothing is lost", ping_s=0.01)


async def fails() -> None:
    raise RedisError("out of memory")


async def test_three_errors_in_a_row_open_it_and_a_good_call_starts_anew(valkey_url: str) -> None:
    made = guard(valkey_url)
    for _ in range(ERRORS_OPEN - 1):
        with pytest.raises(Away, match="out of memory"):
            await made.call(fails())
    assert await made.call(made.redis.execute_command("ECHO", "here")) == b"here"
    for n in range(ERRORS_OPEN):
        assert not made.is_open, n
        with pytest.raises(Away):
            await made.call(fails())
    assert made.is_open and (made.opened, made.errors) == (1, 2 * ERRORS_OPEN - 1)
    await made.close()


async def test_one_timeout_opens_it_and_good_pings_close_it(valkey_url: str) -> None:
    made = RedisGuard(valkey_url, timeout_s=0.5, connections=1, without="nothing is lost", ping_s=0.01)
    told = asyncio.Event()
    made.closed_again = told.set
    with pytest.raises(Away):
        await made.call(asyncio.sleep(60))
    assert made.is_open and made.opened == 1
    made.start()
    await until(told.is_set)
    assert not made.is_open
    await made.close()


async def test_it_stays_open_while_nobody_listens() -> None:
    made = guard("redis://127.0.0.1:1/0")
    for _ in range(ERRORS_OPEN):
        with pytest.raises(Away):
            await made.call(made.redis.execute_command("PING"))
    made.start()
    await until(lambda: made.errors >= ERRORS_OPEN + PINGS_CLOSE)
    assert made.is_open
    await made.close()


async def test_a_task_that_swallows_a_cancellation_is_ended_all_the_same() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end(task, 0.01)
    assert task.cancelled()
    await end(task, 0.01)
