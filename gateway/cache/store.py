"""Where answers are kept: in this process, or in Redis for all workers. Neither can make a request fail or wait for long.

Knows keys and bytes; what they mean is response.py's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.cache.response import VERSION, Entry, decode, encode
from gateway.redis_guard import PING_S, Away, RedisGuard, end
from gateway.settings import CacheSettings

PREFIX = b"tollway:cache:" + VERSION + b":"
TOGETHER = 64  # keys in one round trip: what they hold must fit into the timeout
CONNECTIONS = 32  # per worker, for reads
PENDING_BYTES = 16 * 1024 * 1024  # written, but not yet in Redis

log = logging.getLogger("tollway.cache")


class Counters(msgspec.Struct):
    """Monotonic, for metrics."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    dropped: int = 0  # not stored: too large, queue full, or Redis away


class Store(Protocol):
    """`get` waits at most the Redis timeout; `put` never waits."""

    counters: Counters

    @property
    def degraded(self) -> bool: ...
    async def start(self) -> None: ...
    async def get(self, key: bytes, max_age_s: float | None = None) -> Entry | None: ...
    async def get_many(self, keys: Sequence[bytes], max_age_s: float | None = None) -> list[Entry | None]: ...
    def put(self, key: bytes, entry: Entry, ttl_s: float) -> bool:
        """Whether it was taken."""
        ...

    async def close(self) -> None: ...


def open_store(settings: CacheSettings, redis_url: str) -> Store:
    """The store that the settings name; `start` it inside the event loop."""
    return RedisStore(redis_url, settings) if redis_url else MemoryStore(settings)


def _usable(data: bytes, now: float, max_age_s: float | None) -> Entry | None:
    try:
        entry = decode(data)
    except msgspec.MsgspecError:  # written by another version under the same key version, or damaged
        log.warning("a cached answer cannot be read and is passed over")
        return None
    return entry if max_age_s is None or now - entry.created <= max_age_s else None


class MemoryStore:
    """Least recently used, bounded by entries and bytes, each with its own time to live. Kept as bytes: exact to count, nothing to scan."""

    degraded = False

    def __init__(self, settings: CacheSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock  # Unix seconds
        self._entries: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()  # key -> (until, data)
        self._bytes = 0
        self.counters = Counters()

    async def start(self) -> None:
        """Nothing to do."""

    async def get(self, key: bytes, max_age_s: float | None = None) -> Entry | None:
        now = self._clock()
        found = self._entries.get(key)
        entry = None
        if found is not None:
            if found[0] <= now:
                self._remove(key)
            else:
                self._entries.move_to_end(key)
                entry = _usable(found[1], now, max_age_s)
        if entry is None:
            self.counters.misses += 1
        else:
            self.counters.hits += 1
        return entry

    async def get_many(self, keys: Sequence[bytes], max_age_s: float | None = None) -> list[Entry | None]:
        return [await self.get(key, max_age_s) for key in keys]

    def put(self, key: bytes, entry: Entry, ttl_s: float) -> bool:
        data = encode(entry)
        if ttl_s <= 0 or len(data) > min(self._settings.max_answer_bytes, self._settings.max_bytes):
            self.counters.dropped += 1
            return False
        if key in self._entries:
            self._remove(key)
        self._entries[key] = (self._clock() + ttl_s, data)
        self._bytes += len(data)
        self.counters.stored += 1
        while len(self._entries) > self._settings.max_entries or self._bytes > self._settings.max_bytes:
            self._remove(next(iter(self._entries)))
        return True

    async def close(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def _remove(self, key: bytes) -> None:
        self._bytes -= len(self._entries.pop(key)[1])


class RedisStore:
    """Shared by all workers; while Redis is away every request is a miss."""

    def __init__(self, url: str, settings: CacheSettings, ping_s: float = PING_S) -> None:
        self._settings = settings
        self.guard = RedisGuard(
            url,
            timeout_s=settings.redis_timeout_s,
            connections=CONNECTIONS + 1,  # the writer's
            without="requests go on without the response cache",
            ping_s=ping_s,
        )
        # redis-py's own waiting for a connection may swallow a cancellation, a timeout's as well as a client's: wait here instead
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._pending: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()  # key -> (data, ttl in seconds), also read by `get`
        self._pending_bytes = 0
        self._work = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self.counters = Counters()

    @property
    def degraded(self) -> bool:
        """Redis is not asked at present: every request is a miss."""
        return self.guard.is_open

    async def start(self) -> None:
        """Begin to write and to watch; works with Redis absent."""
        self.guard.start()
        self._writing = asyncio.create_task(self._write(), name="cache writer")

    async def get(self, key: bytes, max_age_s: float | None = None) -> Entry | None:
        pending = self._pending.get(key)
        data = pending[0] if pending is not None else await self._fetch(key)
        entry = None if data is None else _usable(data, time.time(), max_age_s)
        if entry is None:
            self.counters.misses += 1
        else:
            self.counters.hits += 1
        return entry

    async def get_many(self, keys: Sequence[bytes], max_age_s: float | None = None) -> list[Entry | None]:
        """All of them, TOGETHER in a round trip."""
        known: dict[bytes, bytes | None] = {key: self._pending[key][0] for key in keys if key in self._pending}
        asked = [key for key in keys if key not in known]
        for first in range(0, len(asked), TOGETHER):
            some = asked[first : first + TOGETHER]
            known |= zip(some, await self._fetch_many(some), strict=True)
        now, found = time.time(), list[Entry | None]()
        for key in keys:
            data = known[key]
            found.append(None if data is None else _usable(data, now, max_age_s))
        hits = sum(entry is not None for entry in found)
        self.counters.hits += hits
        self.counters.misses += len(found) - hits
        return found

    def put(self, key: bytes, entry: Entry, ttl_s: float) -> bool:
        data = encode(entry)
        fits = len(data) <= self._settings.max_answer_bytes and self._pending_bytes + len(data) <= PENDING_BYTES
        if self.degraded or ttl_s < 1 or not fits:
            self.counters.dropped += 1
            return False
        self._forget(key)
        self._pending[key] = (data, int(ttl_s))
        self._pending_bytes += len(data)
        self._work.set()
        return True

    async def close(self) -> None:
        """Stop; what is not yet written is lost, which costs a miss."""
        if self._writing is not None:
            await end(self._writing, self._settings.redis_timeout_s)
        await self.guard.close()

    async def _fetch(self, key: bytes) -> bytes | None:
        if self.degraded:
            return None
        try:
            return await self.guard.call(self._in_turn(key))
        except Away:
            return None

    async def _in_turn(self, key: bytes) -> bytes | None:
        async with self._slots:
            if self.degraded:  # it opened while this request waited
                return None
            data = await self.guard.redis.get(PREFIX + key)
        return data if isinstance(data, bytes) else None

    async def _fetch_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.degraded:
            return [None] * len(keys)
        try:
            return await self.guard.call(self._many_in_turn(keys))
        except Away:
            return [None] * len(keys)

    async def _many_in_turn(self, keys: Sequence[bytes]) -> list[bytes | None]:
        async with self._slots:
            if self.degraded:
                return [None] * len(keys)
            found = await self.guard.redis.mget([PREFIX + key for key in keys])
        return [data if isinstance(data, bytes) else None for data in found]

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            while self._pending:
                key, (data, ttl_s) = next(iter(self._pending.items()))
                if self.degraded:
                    self.counters.dropped += 1
                else:
                    await self._set(key, data, ttl_s)
                if self._pending.get(key, (None,))[0] is data:  # else a newer one took its place meanwhile
                    self._forget(key)
            self._work.clear()

    async def _set(self, key: bytes, data: bytes, ttl_s: int) -> None:
        try:
            await self.guard.call(self._set_now(key, data, ttl_s))
        except Away:
            self.counters.dropped += 1
        else:
            self.counters.stored += 1

    async def _set_now(self, key: bytes, data: bytes, ttl_s: int) -> None:
        await self.guard.redis.set(PREFIX + key, data, ex=ttl_s)

    def _forget(self, key: bytes) -> None:
        old = self._pending.pop(key, None)
        if old is not None:
            self._pending_bytes -= len(old[0])
