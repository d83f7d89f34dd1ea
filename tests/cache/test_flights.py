from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from gateway.cache.flights import Flights, Subscription
from providers.errors import Cut, ServerFailed
from providers.types import Finished, Frame, TextDelta


class Upstream:
    """A scripted call: says what was started, closed and read."""

    def __init__(self, texts: int = 3, error: Exception | None = None, size: int = 1) -> None:
        self.texts = texts
        self.error = error
        self.size = size
        self.started = self.closed = self.sent = 0
        self.go = asyncio.Event()
        self.go.set()

    async def call(self) -> AsyncGenerator[Frame, None]:
        self.started += 1
        try:
            for i in range(self.texts):
                await self.go.wait()
                self.sent += 1
                yield Frame(events=[TextDelta(text=str(i) * self.size)])
                await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
            yield Frame(events=[Finished(reason="stop")])
        finally:
            self.closed += 1


async def read(subscription: Subscription) -> list[str]:
    try:
        return [event.text if isinstance(event, TextDelta) else "end" async for frame in subscription for event in frame.events]
    finally:
        subscription.leave()


async def test_a_hundred_identical_requests_make_one_call() -> None:
    flights, upstream = Flights(10_000), Upstream()
    joined = [flights.join(b"k", upstream.call) for _ in range(100)]
    answers = await asyncio.gather(*(read(subscription) for subscription, _ in joined))
    assert answers == [["0", "1", "2", "end"]] * 100
    assert [leader for _, leader in joined].count(True) == 1
    assert (upstream.started, upstream.closed, flights.shared, len(flights)) == (1, 1, 99, 0)


async def test_other_keys_and_later_requests_make_their_own() -> None:
    flights, upstream = Flights(10_000), Upstream()
    await asyncio.gather(read(flights.join(b"k", upstream.call)[0]), read(flights.join(b"other", upstream.call)[0]))
    subscription, leader = flights.join(b"k", upstream.call)
    assert leader
    await read(subscription)
    assert upstream.started == 3


async def test_who_comes_late_hears_it_from_the_beginning() -> None:
    flights, upstream = Flights(10_000), Upstream()
    first, _ = flights.join(b"k", upstream.call)
    assert (await anext(first)).events == [TextDelta(text="0")]
    upstream.go.clear()
    late, leader = flights.join(b"k", upstream.call)
    assert not leader
    assert (await anext(late)).events == [TextDelta(text="0")]
    upstream.go.set()
    assert await read(first) == ["1", "2", "end"]
    assert await read(late) == ["1", "2", "end"]


async def test_the_leaders_leaving_does_not_end_the_call_and_the_last_ones_does() -> None:
    flights, upstream = Flights(10_000), Upstream()
    leader, _ = flights.join(b"k", upstream.call)
    follower, _ = flights.join(b"k", upstream.call)
    await anext(leader)
    upstream.go.clear()
    leader.leave()
    leader.leave()
    await asyncio.sleep(0.01)
    assert upstream.closed == 0
    upstream.go.set()
    await anext(follower)
    upstream.go.clear()
    await follower.aclose()
    await asyncio.sleep(0.01)
    assert upstream.closed == 1
    assert len(flights) == 0
    _, leads = flights.join(b"k", upstream.call)
    assert leads, "a call that is being cancelled takes nobody in"
    await flights.close()


async def test_a_listener_knows_whether_others_listen() -> None:
    flights, upstream = Flights(10_000), Upstream()
    first, _ = flights.join(b"k", upstream.call)
    assert first.alone
    second, _ = flights.join(b"k", upstream.call)
    assert not first.alone
    second.leave()
    assert first.alone
    await flights.close()


async def test_leaving_before_the_call_began_starts_nothing() -> None:
    flights, upstream = Flights(10_000), Upstream()
    subscription, _ = flights.join(b"k", upstream.call)
    subscription.leave()
    await asyncio.sleep(0.01)
    assert (upstream.started, len(flights)) == (0, 0)


async def test_a_cancelled_leader_leaves_in_its_finally() -> None:
    flights, upstream = Flights(10_000), Upstream()
    upstream.go.clear()
    task = asyncio.create_task(read(flights.join(b"k", upstream.call)[0]))
    follower = asyncio.create_task(read(flights.join(b"k", upstream.call)[0]))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    upstream.go.set()
    assert await follower == ["0", "1", "2", "end"]


@pytest.mark.parametrize("texts", [0, 2])
async def test_an_error_reaches_everyone_after_what_came_before(texts: int) -> None:
    flights, upstream = Flights(10_000), Upstream(texts, ServerFailed("broken"))
    subscriptions = [flights.join(b"k", upstream.call)[0] for _ in range(3)]
    for subscription in subscriptions:
        for _ in range(texts):
            await anext(subscription)
        with pytest.raises(ServerFailed, match="broken"):
            await anext(subscription)
        subscription.leave()
    assert (upstream.started, upstream.closed, len(flights)) == (1, 1, 0)


async def test_memory_is_bounded_by_the_slowest_listener_and_nobody_joins_too_late() -> None:
    flights, upstream = Flights(2_000), Upstream(texts=100, size=100)
    slow, _ = flights.join(b"k", upstream.call)
    quick, _ = flights.join(b"k", upstream.call)
    reading = asyncio.create_task(read(quick))
    await asyncio.sleep(0.05)
    assert upstream.sent <= 2_000 // 164 + 2, "the call waits for the slow one"
    _, leader = flights.join(b"k", Upstream().call)
    assert leader, "the beginning may be gone: nobody joins"
    assert len(await read(slow)) == 101
    assert len(await reading) == 101
    await flights.close()


async def test_a_slow_listener_that_leaves_lets_the_others_go_on() -> None:
    flights, upstream = Flights(2_000), Upstream(texts=100, size=100)
    slow, _ = flights.join(b"k", upstream.call)
    quick, _ = flights.join(b"k", upstream.call)
    reading = asyncio.create_task(read(quick))
    await asyncio.sleep(0.05)
    assert not reading.done()
    slow.leave()
    assert len(await asyncio.wait_for(reading, 30)) == 101


async def test_closing_cancels_calls_and_tells_listeners() -> None:
    flights, upstream = Flights(10_000), Upstream()
    subscription, _ = flights.join(b"k", upstream.call)
    await anext(subscription)
    upstream.go.clear()
    await flights.close()
    assert upstream.closed == 1
    with pytest.raises(Cut):
        await anext(subscription)
