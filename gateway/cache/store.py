"""Where answers are kept: in this process, or in Redis for all workers. Neither can make a request fail or wait for long.

Knows keys and bytes; what they mean is response.py's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec
import redis.asyncio as redis
from redis.exceptions import RedisError

from gateway.cache.response import VERSION, Entry, decode, encode
from gateway.settings import CacheSettings

PREFIX = b"tollway:cache:" + VERSION + b":"
ERRORS_OPEN = 3  # in a row; one timeout opens at once
PINGS_CLOSE = 3  # good ones in a row
PING_S = 1.0
CONNECTIONS = 32  # per worker, for reads
PENDING_BYTES = 16 * 1024 * 1024  # written, but not yet in Redis

log = logging.getLogger("tollway.cache")


class Counters(msgspec.Struct):
    """Monotonic, for metrics."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    dropped: int = 0  # not stored: too large, queue full, or Redis away
    errors: int = 0  # of Redis, timeouts among them
    opened: int = 0  # times the breaker opened


class Store(Protocol):
    """`get` waits at most the Redis timeout; `put` never waits."""

    counters: Counters

    @property
    def degraded(self) -> bool: ...
    async def start(self) -> None: ...
    async def get(self, key: bytes, max_age_s: float | None = None) -> Entry | None: ...
    def put(self, key: bytes, entry: Entry, ttl_s: float) -> None: ...
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

    def put(self, key: bytes, entry: Entry, ttl_s: float) -> None:
        data = encode(entry)
        if ttl_s <= 0 or len(data) > min(self._settings.max_answer_bytes, self._settings.max_bytes):
            self.counters.dropped += 1
            return
        if key in self._entries:
            self._remove(key)
        self._entries[key] = (self._clock() + ttl_s, data)
        self._bytes += len(data)
        self.counters.stored += 1
        while len(self._entries) > self._settings.max_entries or self._bytes > self._settings.max_bytes:
            self._remove(next(iter(self._entries)))

    async def close(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def _remove(self, key: bytes) -> None:
        self._bytes -= len(self._entries.pop(key)[1])


class RedisStore:
    """Shared by all workers. One timeout, or three errors in a row, and Redis is left alone until it answers pings again."""

    def __init__(self, url: str, settings: CacheSettings, ping_s: float = PING_S) -> None:
        self._settings = settings
        self._timeout_s = settings.redis_timeout_s
        self._ping_s = ping_s
        pool = redis.ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS + 2,  # the writer and the watch need one each
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            retry=None,  # the default tries ten times
            driver_info=None,
        )
        self._redis = redis.Redis.from_pool(pool)
        # redis-py's own waiting for a connection may swallow a cancellation, a timeout's as well as a client's: wait here instead
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._pending: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()  # key -> (data, ttl in seconds), also read by `get`
        self._pending_bytes = 0
        self._work = asyncio.Event()
        self._errors = 0
        self._open = False
        self._tasks: list[asyncio.Task[None]] = []
        self.counters = Counters()

    @property
    def degraded(self) -> bool:
        """Redis is not asked at present: every request is a miss."""
        return self._open

    async def start(self) -> None:
        """Begin to write and to watch; works with Redis absent."""
        self._tasks = [asyncio.create_task(self._write(), name="cache writer"), asyncio.create_task(self._watch(), name="cache watch")]

    async def get(self, key: bytes, max_age_s: float | None = None) -> Entry | None:
        pending = self._pending.get(key)
        data = pending[0] if pending is not None else await self._fetch(key)
        entry = None if data is None else _usable(data, time.time(), max_age_s)
        if entry is None:
            self.counters.misses += 1
        else:
            self.counters.hits += 1
        return entry

    def put(self, key: bytes, entry: Entry, ttl_s: float) -> None:
        data = encode(entry)
        fits = len(data) <= self._settings.max_answer_bytes and self._pending_bytes + len(data) <= PENDING_BYTES
        if self._open or ttl_s < 1 or not fits:
            self.counters.dropped += 1
            return
        self._forget(key)
        self._pending[key] = (data, int(ttl_s))
        self._pending_bytes += len(data)
        self._work.set()

    async def close(self) -> None:
        """Stop; what is not yet written is lost, which costs a miss."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _fetch(self, key: bytes) -> bytes | None:
        if self._open:
            return None
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                if self.degraded:  # it opened while this request waited for its turn
                    return None
                data = await self._redis.get(PREFIX + key)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
            return None
        self._errors = 0
        return data if isinstance(data, bytes) else None

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            while self._pending:
                key, (data, ttl_s) = next(iter(self._pending.items()))
                if self._open:
                    self.counters.dropped += 1
                else:
                    await self._set(key, data, ttl_s)
                if self._pending.get(key, (None,))[0] is data:  # else a newer one took its place meanwhile
                    self._forget(key)
            self._work.clear()

    async def _set(self, key: bytes, data: bytes, ttl_s: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._redis.set(PREFIX + key, data, ex=ttl_s)
        except (RedisError, OSError) as error:
            self.counters.dropped += 1
            self._failed(error)
        else:
            self.counters.stored += 1
            self._errors = 0

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
                self.counters.errors += 1
                good = 0
                continue
            good += 1
            if good >= PINGS_CLOSE:
                self._open = False
                self._errors = good = 0
                log.warning("Redis answers again: the response cache is in use")

    def _failed(self, error: Exception) -> None:
        self.counters.errors += 1
        self._errors += 1
        timed_out = isinstance(error, TimeoutError | redis.TimeoutError)
        if not self._open and (timed_out or self._errors >= ERRORS_OPEN):
            self._open = True
            self.counters.opened += 1
            log.warning("Redis fails (%s): requests go on without the response cache", str(error) or type(error).__name__)

    def _forget(self, key: bytes) -> None:
        old = self._pending.pop(key, None)
        if old is not None:
            self._pending_bytes -= len(old[0])
