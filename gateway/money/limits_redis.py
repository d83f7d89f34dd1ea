"""Rate limits counted in Redis for all processes: one batch in flight, and what arrives meanwhile is the next.

While Redis is away, who asks is told to count by himself. Knows no limit's meaning; the rule is limits.lua.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
from redis.exceptions import NoScriptError, RedisError

from gateway.money.limits import Ask, Rule, Settle, Verdict
from gateway.redis_guard import PING_S, Away, RedisGuard

SCRIPT = (Path(__file__).parent / "limits.lua").read_bytes()
SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
PREFIX = "tollway:{limits}:"  # one hash tag: a script may touch only keys of one slot of a cluster
BATCH = 256  # operations of one call
WAITING = 10_000  # requests that may wait for a batch; beyond it they are counted by their process
OWED = 10_000  # ends of requests that Redis has not heard of; beyond it the oldest age out by themselves
CLOSE_S = 0.5  # for the last ends to be told

log = logging.getLogger("tollway.limits")

Waiting = tuple[Ask, "asyncio.Future[Verdict | None]"]


class RedisLimits:
    """The shared counts of `limits.Limits`. One per worker. Works with Redis absent at start."""

    def __init__(self, url: str, timeout_s: float = 0.05, ping_s: float = PING_S) -> None:
        without = "each process holds its part of the rate limits"
        self.guard = RedisGuard(url, timeout_s=timeout_s, connections=1, without=without, ping_s=ping_s)
        self._asks: deque[Waiting] = deque()
        self._tells: deque[Settle] = deque(maxlen=OWED)
        self._work = asyncio.Event()
        self.guard.closed_again = self._work.set
        self._calling = False
        self._batches: asyncio.Task[None] | None = None

    @property
    def degraded(self) -> bool:
        """Redis is not asked at present."""
        return self.guard.is_open

    async def start(self) -> None:
        self.guard.start()
        self._batches = asyncio.create_task(self._run(), name="limits")

    async def ask(self, ask: Ask) -> Verdict | None:
        """Waits at most for the batch before and its own. None: count it yourself; Redis has forgotten or will forget it."""
        if self.degraded or len(self._asks) >= WAITING:
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
                while (self._tells or self._calling) and not self.degraded and self._batches:  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.005)
        except TimeoutError:
            log.warning("%d ends of requests were not told to Redis and age out", len(self._tells))
        if self._batches is not None:
            self._batches.cancel()
            await asyncio.gather(self._batches, return_exceptions=True)
        self._answer_all()
        await self.guard.close()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while (self._asks or self._tells) and not self.degraded:
                await self._batch()
            self._answer_all()

    async def _batch(self) -> None:
        tells = [self._tells.popleft() for _ in range(min(BATCH, len(self._tells)))]
        waiting = [self._asks.popleft() for _ in range(min(BATCH, len(self._asks)))]
        asks = [one for one in waiting if not one[1].cancelled()]
        self._calling = True
        try:
            places, replies = await self.guard.call(self._call(tells, [ask for ask, _ in asks]))
        except Away:
            self._tells.extendleft(reversed(tells))  # a second time does nothing
            for ask, future in asks:
                self.tell(Settle(id=ask.id, delta=0, bucket=0, rules=ask.rules))  # it may have run: free its slot, its tokens age out
                if not future.cancelled():
                    future.set_result(None)
            return
        finally:
            self._calling = False
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
            reply = await self.guard.redis.execute_command("EVALSHA", SHA, *rest)  # type: ignore[no-untyped-call]
        except NoScriptError:
            reply = await self.guard.redis.execute_command("EVAL", SCRIPT, *rest)  # type: ignore[no-untyped-call]
        try:
            return list(keys), msgspec.msgpack.decode(reply, type=list[list[Any]])
        except msgspec.DecodeError as error:
            raise RedisError(f"the script's reply cannot be read: {error}") from None

    def _undo(self, ask: Ask, verdict: Verdict | None) -> None:
        """Nobody waits for this answer any more: its slot and its tokens go back, the request stays counted."""
        if verdict is not None and not verdict.kind:
            self.tell(Settle(id=ask.id, delta=-ask.tokens, bucket=verdict.bucket, rules=ask.rules))

    def _answer_all(self) -> None:
        while self._asks:
            future = self._asks.popleft()[1]
            if not future.cancelled():
                future.set_result(None)


def _place(keys: dict[int, int], rule: Rule) -> list[int]:
    return [keys.setdefault(rule.id, len(keys) + 1), rule.rpm, rule.tpm, rule.parallel]


def _verdict(places: list[int], reply: list[Any]) -> Verdict:
    if reply[0] == 1:
        return Verdict(bucket=reply[1], requests_left=reply[2], tokens_left=reply[3])
    kind = reply[2].decode() if isinstance(reply[2], bytes) else reply[2]
    return Verdict(kind=kind, rule=places[reply[1] - 1], retry_after_ms=reply[3], requests_left=reply[4], tokens_left=reply[5])
