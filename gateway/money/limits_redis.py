"""Rate limits counted in Redis for all processes: one batch in flight, and what arrives meanwhile is the next.

One timeout, or three errors in a row, and Redis is left alone until it answers pings again; who asks then is told to count by himself.
Knows no limit's meaning; the rule is limits.lua.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import redis.asyncio as redis
from redis.exceptions import NoScriptError, RedisError

from gateway.money.limits import Ask, Rule, Settle, Verdict

SCRIPT = (Path(__file__).parent / "limits.lua").read_bytes()
SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
PREFIX = "tollway:{limits}:"  # one hash tag: a script may touch only keys of one slot of a cluster
BATCH = 256  # operations of one call
WAITING = 10_000  # requests that may wait for a batch; beyond it they are counted by their process
OWED = 10_000  # ends of requests that Redis has not heard of; beyond it the oldest age out by themselves
ERRORS_OPEN = 3  # in a row; one timeout opens at once
PINGS_CLOSE = 3  # good ones in a row
PING_S = 1.0
CLOSE_S = 0.5  # for the last ends to be told

log = logging.getLogger("tollway.limits")

Waiting = tuple[Ask, "asyncio.Future[Verdict | None]"]


class RedisLimits:
    """The shared counts of `limits.Limits`. One per worker. Works with Redis absent at start."""

    def __init__(self, url: str, timeout_s: float = 0.05, ping_s: float = PING_S) -> None:
        self._timeout_s = timeout_s
        self._ping_s = ping_s
        pool = redis.ConnectionPool.from_url(
            url,
            max_connections=2,  # the batch and the watch
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=None,  # the default tries ten times
            driver_info=None,
        )
        self._redis = redis.Redis.from_pool(pool)
        self._asks: deque[Waiting] = deque()
        self._tells: deque[Settle] = deque(maxlen=OWED)
        self._work = asyncio.Event()
        self._errors = 0
        self._open = False
        self._calling = False
        self._tasks: list[asyncio.Task[None]] = []
        self.errors = 0  # monotonic
        self.opened = 0

    @property
    def degraded(self) -> bool:
        """Redis is not asked at present."""
        return self._open

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(), name="limits"), asyncio.create_task(self._watch(), name="limits watch")]

    async def ask(self, ask: Ask) -> Verdict | None:
        """Waits at most for the batch before and its own. None: count it yourself; Redis has forgotten or will forget it."""
        if self._open or len(self._asks) >= WAITING:
            return None
        future: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        self._asks.append((ask, future))
        self._work.set()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # answered, and its client left in the same moment
                self._undo(ask, future.result())
            raise

    def tell(self, settle: Settle) -> None:
        """Rides along with a batch; waits for Redis to come back, bounded. Applied once however often it is sent."""
        self._tells.append(settle)
        self._work.set()

    async def close(self) -> None:
        """Tell what is owed, as far as it goes at once. What is lost ages out: tokens within 70 s, a slot at its own expiry."""
        try:
            async with asyncio.timeout(CLOSE_S):
                while (self._tells or self._calling) and not self._open and self._tasks:  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.005)
        except TimeoutError:
            log.warning("%d ends of requests were not told to Redis and age out", len(self._tells))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._answer_all()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    # ---- batches
    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while (self._asks or self._tells) and not self._open:
                await self._batch()
            self._answer_all()

    async def _batch(self) -> None:
        tells = [self._tells.popleft() for _ in range(min(BATCH, len(self._tells)))]
        waiting = [self._asks.popleft() for _ in range(min(BATCH, len(self._asks)))]
        asks = [one for one in waiting if not one[1].cancelled()]
        self._calling = True
        try:
            async with asyncio.timeout(self._timeout_s):
                places, replies = await self._call(tells, [ask for ask, _ in asks])
        except (RedisError, OSError, msgspec.DecodeError) as error:  # TimeoutError is an OSError
            self._tells.extendleft(reversed(tells))  # a second time does nothing
            for ask, future in asks:
                self.tell(Settle(id=ask.id, delta=0, bucket=0, rules=ask.rules))  # it may have run: free its slot, its tokens age out
                if not future.cancelled():
                    future.set_result(None)
            self._failed(error)
            return
        finally:
            self._calling = False
        self._errors = 0
        for (ask, future), reply in zip(asks, replies[len(tells) :], strict=True):
            verdict = _verdict(places, reply)
            if future.cancelled():
                self._undo(ask, verdict)
            else:
                future.set_result(verdict)

    async def _call(self, tells: list[Settle], asks: list[Ask]) -> tuple[list[int], list[list[Any]]]:
        """(ids of rules in the order of KEYS, a reply for each end and each ask)"""
        keys: dict[int, int] = {}  # id of a rule -> its place among KEYS, from 1
        ops: list[list[Any]] = [
            ["s", one.id, one.delta, one.bucket, [[keys.setdefault(rule.id, len(keys) + 1)] for rule in one.rules]] for one in tells
        ]
        ops += [["a", one.id, one.tokens, one.slot_s, [_place(keys, rule) for rule in one.rules]] for one in asks]
        if not ops:
            return [], []
        rest = (len(keys), *(f"{PREFIX}{name}" for name in keys), b"0", msgspec.msgpack.encode(ops))
        try:
            reply = await self._redis.execute_command("EVALSHA", SHA, *rest)  # type: ignore[no-untyped-call]
        except NoScriptError:
            reply = await self._redis.execute_command("EVAL", SCRIPT, *rest)  # type: ignore[no-untyped-call]
        return list(keys), msgspec.msgpack.decode(reply, type=list[list[Any]])

    def _undo(self, ask: Ask, verdict: Verdict | None) -> None:
        """Nobody waits for this answer any more: its slot and its tokens go back, the request stays counted."""
        if verdict is not None and not verdict.kind:
            self.tell(Settle(id=ask.id, delta=-ask.tokens, bucket=verdict.bucket, rules=ask.rules))

    def _answer_all(self) -> None:
        while self._asks:
            future = self._asks.popleft()[1]
            if not future.cancelled():
                future.set_result(None)

    # ---- the breaker
    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._errors += 1
        timed_out = isinstance(error, TimeoutError | redis.TimeoutError)
        if not self._open and (timed_out or self._errors >= ERRORS_OPEN):
            self._open = True
            self.opened += 1
            log.warning("Redis fails (%s): each process holds its part of the rate limits", str(error) or type(error).__name__)

    async def _watch(self) -> None:
        """While the breaker is open, ping; after PINGS_CLOSE good ones in a row, close it."""
        good = 0
        while True:
            await asyncio.sleep(self._ping_s)
            if not self._open:
                good = 0
                continue
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._redis.ping()
            except (RedisError, OSError):
                self.errors += 1
                good = 0
                continue
            good += 1
            if good >= PINGS_CLOSE:
                self._open = False
                self._errors = good = 0
                self._work.set()
                log.warning("Redis answers again: rate limits are shared")


def _place(keys: dict[int, int], rule: Rule) -> list[int]:
    return [keys.setdefault(rule.id, len(keys) + 1), rule.rpm, rule.tpm, rule.parallel]


def _verdict(places: list[int], reply: list[Any]) -> Verdict:
    if reply[0] == 1:
        return Verdict(bucket=reply[1], requests_left=reply[2], tokens_left=reply[3])
    kind = reply[2].decode() if isinstance(reply[2], bytes) else reply[2]
    return Verdict(kind=kind, rule=places[reply[1] - 1], retry_after_ms=reply[3], requests_left=reply[4], tokens_left=reply[5])
