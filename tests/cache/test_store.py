from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest
import redis.asyncio as redis

from gateway.cache.response import Entry, encode
from gateway.cache.store import PREFIX, TOGETHER, MemoryStore, RedisStore, open_store
from gateway.settings import CacheSettings
from tests.fixtures.waiting import until

MakeEntry = Callable[..., Entry]
KEY = b"k" * 24


class Server(Protocol):
    url: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


@pytest.fixture
async def shared(valkey: Server) -> AsyncIterator[RedisStore]:
    valkey.start()
    # the limit of the product is 50 ms; a busy test machine may stall longer than that without Redis being at fault
    store = RedisStore(valkey.url, CacheSettings(redis_timeout_s=0.5), ping_s=0.05)
    await store.start()
    yield store
    await store.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def memory(**limits: int) -> tuple[MemoryStore, Clock]:
    clock = Clock()
    return MemoryStore(CacheSettings(**limits), clock), clock


async def test_memory_gives_back_until_the_time_is_over(entry: MakeEntry) -> None:
    store, clock = memory()
    stored = entry()
    assert await store.get(KEY) is None
    store.put(KEY, stored, 60)
    assert await store.get(KEY) == stored
    clock.now += 59.9
    assert await store.get(KEY) == stored
    clock.now += 0.1
    assert await store.get(KEY) is None
    assert (store.counters.hits, store.counters.misses, store.counters.stored) == (2, 2, 1)


async def test_memory_respects_the_age_a_client_asks_for(entry: MakeEntry) -> None:
    store, clock = memory()
    store.put(KEY, entry(created=clock.now), 600)
    clock.now += 30
    assert await store.get(KEY, max_age_s=30) is not None
    assert await store.get(KEY, max_age_s=29) is None
    assert await store.get(KEY) is not None, "too old for one client is not gone for the others"


async def test_memory_forgets_the_least_recently_used(entry: MakeEntry) -> None:
    store, _ = memory(max_entries=2)
    for name in (b"a", b"b"):
        store.put(name, entry(), 60)
    await store.get(b"a")
    store.put(b"c", entry(), 60)
    assert [await store.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


async def test_memory_is_bounded_in_bytes(entry: MakeEntry) -> None:
    size = len(encode(entry("x" * 1000)))
    store, _ = memory(max_bytes=3 * size)
    for i in range(10):
        store.put(b"%d" % i, entry("x" * 1000), 60)
    assert [i for i in range(10) if await store.get(b"%d" % i) is not None] == [7, 8, 9]
    store.put(b"9", entry("x" * 1000), 60)
    assert await store.get(b"8") is not None, "writing again does not count twice"


async def test_memory_refuses_what_is_too_large_or_already_over(entry: MakeEntry) -> None:
    store, _ = memory(max_answer_bytes=500)
    assert not store.put(KEY, entry("x" * 2000), 60)
    assert not store.put(KEY, entry(), 0)
    assert await store.get(KEY) is None
    assert store.counters.dropped == 2


async def test_settings_choose_the_form() -> None:
    assert isinstance(open_store(CacheSettings(), ""), MemoryStore)
    store = open_store(CacheSettings(), "redis://127.0.0.1:1/0")
    assert isinstance(store, RedisStore)
    await store.close()


async def test_redis_shares_between_workers(shared: RedisStore, valkey: Server, entry: MakeEntry) -> None:
    stored = entry()
    assert await shared.get(KEY) is None
    shared.put(KEY, stored, 60)
    assert await shared.get(KEY) == stored, "readable at once, before it is written"
    await until(lambda: shared.counters.stored == 1)
    other = RedisStore(valkey.url, CacheSettings(redis_timeout_s=0.5))
    assert await other.get(KEY) == stored
    assert await other.get(KEY, max_age_s=-1) is None
    await other.close()
    client = redis.Redis.from_url(valkey.url)
    assert 0 < await client.ttl(PREFIX + KEY) <= 60
    await client.aclose()


async def test_redis_passes_over_what_it_cannot_read(shared: RedisStore, valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = redis.Redis.from_url(valkey.url)
    await client.set(PREFIX + KEY, b"\x00 not an entry")
    await client.aclose()
    assert await shared.get(KEY) is None
    assert "cannot be read" in caplog.text
    assert not shared.degraded


async def test_many_at_once_share_few_connections(shared: RedisStore, entry: MakeEntry) -> None:
    for i in range(200):
        shared.put(b"%d" % i, entry(str(i)), 60)
    await until(lambda: shared.counters.stored == 200)
    found = await asyncio.gather(*(shared.get(b"%d" % i) for i in range(200)))
    assert all(e is not None for e in found)
    assert shared.guard.errors == 0


async def test_g12_a_frozen_redis_costs_one_timeout_and_comes_back(valkey: Server, entry: MakeEntry) -> None:
    valkey.start()
    store = RedisStore(valkey.url, CacheSettings(redis_timeout_s=0.2), ping_s=0.05)
    await store.start()
    try:
        store.put(KEY, entry(), 600)
        await until(lambda: store.counters.stored == 1)
        assert await store.get(KEY) is not None
        valkey.freeze()
        began = time.monotonic()
        assert await asyncio.gather(*(store.get(b"%d" % i) for i in range(100))) == [None] * 100
        assert time.monotonic() - began < 10, "all that were under way wait together, once"
        waited = []
        for _ in range(20):
            began = time.monotonic()
            assert await store.get(b"other") is None
            waited.append(time.monotonic() - began)
        assert sum(waited) < 3, "the breaker is open: nothing is asked"
        assert store.degraded
        assert store.guard.opened == 1
        began = time.monotonic()
        store.put(b"new", entry(), 600)
        assert time.monotonic() - began < 1
        assert store.counters.dropped == 1
        valkey.thaw()
        await until(lambda: not store.degraded)
        found = await asyncio.gather(*(store.get(KEY) for _ in range(25)))
        assert None not in found, "no connection was lost to the timeouts"
    finally:
        valkey.thaw()
        await store.close()


def test_the_timeout_that_ships_is_fifty_milliseconds() -> None:
    assert CacheSettings().redis_timeout_s == 0.05


async def test_redis_absent_at_the_start_and_there_later(valkey: Server, entry: MakeEntry) -> None:
    store = RedisStore(valkey.url, CacheSettings(redis_timeout_s=0.5), ping_s=0.05)
    await store.start()
    for _ in range(3):
        assert not store.degraded
        assert await store.get(KEY) is None
    assert store.degraded, "three errors in a row"
    valkey.start()
    await until(lambda: not store.degraded)
    store.put(KEY, entry(), 60)
    await until(lambda: store.counters.stored == 1)
    await store.close()


async def test_redis_killed_while_in_use(shared: RedisStore, valkey: Server, entry: MakeEntry) -> None:
    shared.put(KEY, entry(), 60)
    await until(lambda: shared.counters.stored == 1)
    valkey.stop()
    for _ in range(6):
        assert await shared.get(KEY) is None
    assert shared.degraded
    valkey.start()
    await until(lambda: not shared.degraded)
    assert await shared.get(KEY) is None


async def test_what_waits_to_be_written_is_bounded(entry: MakeEntry) -> None:
    store = RedisStore("redis://127.0.0.1:1/0", CacheSettings(max_answer_bytes=8 * 1024 * 1024))
    for i in range(5):
        store.put(b"%d" % i, entry("x" * 5_000_000), 60)
    assert store.counters.dropped == 2
    store.put(b"0", entry("y"), 60)
    found = await store.get(b"0")
    assert found is not None and found.frames[0].events[0] == entry("y").frames[0].events[0]
    await store.close()


async def test_many_at_once(valkey: Server, entry: MakeEntry) -> None:
    """In memory and in Redis alike: each key by itself, those not yet written too, and more than go in one round trip."""
    known = {f"key {n}".encode(): entry(f"answer {n}") for n in range(TOGETHER + 3)}
    asked = [b"unknown", *known, b"also unknown"]
    valkey.start()
    shared = RedisStore(valkey.url, CacheSettings(redis_timeout_s=30.0))  # of what is tested here, no time is
    await shared.start()
    try:
        for store in (memory()[0], shared):
            for name, stored in known.items():
                store.put(name, stored, 60)
            assert await store.get_many(asked) == [None, *known.values(), None]
        await until(lambda: shared.counters.stored == len(known), "all are stored")
        assert await shared.get_many(asked) == [None, *known.values(), None]
        assert shared.counters.misses == 4 and shared.counters.hits == 2 * len(known)
    finally:
        await shared.close()


async def test_many_at_once_without_redis_are_misses(shared: RedisStore, valkey: Server) -> None:
    valkey.stop()
    assert await shared.get_many([b"a", b"b"]) == [None, None]
