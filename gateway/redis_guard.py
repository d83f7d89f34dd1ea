"""A Redis client that cannot hold anybody up: every call has a timeout, and a Redis that fails is left alone until it answers pings again.

Knows no command but PING; who calls says what is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import redis.asyncio as redis
from redis.exceptions import RedisError

ERRORS_OPEN = 3  # in a row; one timeout opens at once
PINGS_CLOSE = 3  # good ones in a row
PING_S = 1.0

Result = TypeVar("Result")
log = logging.getLogger("tollway.redis")


class Away(Exception):
    """Redis did not answer, or not in time, or is not asked at present."""


async def end(task: asyncio.Task[Any], every_s: float) -> None:
    """Cancel a task that talks to Redis until it has ended: redis-py, waiting for a connection, may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=every_s)


class RedisGuard:
    """One pool of connections with a circuit breaker. Works with Redis absent at start; `start` and `close` inside the event loop."""

    def __init__(self, url: str, *, timeout_s: float, connections: int, without: str, ping_s: float = PING_S) -> None:
        """connections: for callers; the ping has one more. without: for the log, what requests have to do without Redis."""
        self.timeout_s = timeout_s
        self.without = without
        self.ping_s = ping_s
        self.closed_again: Callable[[], None] = lambda: None  # called when Redis is asked again
        self.is_open = False  # the breaker: Redis is not asked
        self.errors = 0  # monotonic, timeouts among them
        self.opened = 0
        self._in_a_row = 0
        pool = redis.ConnectionPool.from_url(
            url,
            max_connections=connections + 1,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=None,  # the default tries ten times
            driver_info=None,
        )
        self.redis = redis.Redis.from_pool(pool)
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = asyncio.create_task(self._watch(), name="redis watch")

    async def close(self) -> None:
        if self._watching is not None:
            await end(self._watching, self.timeout_s)
        await self.redis.aclose()
        await self.redis.connection_pool.disconnect()

    async def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns, within the timeout. Raises Away, which has been counted."""
        try:
            async with asyncio.timeout(self.timeout_s):
                done = await work
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
            raise Away(str(error) or type(error).__name__) from None
        self._in_a_row = 0
        return done

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._in_a_row += 1
        timed_out = isinstance(error, TimeoutError | redis.TimeoutError)
        if not self.is_open and (timed_out or self._in_a_row >= ERRORS_OPEN):
            self.is_open = True
            self.opened += 1
            log.warning("Redis fails (%s): %s", str(error) or type(error).__name__, self.without)

    async def _watch(self) -> None:
        good = 0
        while True:
            await asyncio.sleep(self.ping_s)
            if not self.is_open:
                good = 0
                continue
            try:
                async with asyncio.timeout(self.timeout_s):
                    await self.redis.ping()
            except (RedisError, OSError):
                self.errors += 1
                good = 0
                continue
            good += 1
            if good >= PINGS_CLOSE:
                self.is_open = False
                self._in_a_row = good = 0
                log.warning("Redis answers again: no longer %s", self.without)
                self.closed_again()
