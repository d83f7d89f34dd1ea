"""Single flight: identical requests that are in flight at once share one upstream call.

The call runs as a task of its own, so that the client who caused it may leave while others wait; with the last of them it is cancelled.
Knows no key's meaning, no price and no wire format.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from gateway.cache.response import weight
from providers.errors import Cut
from providers.types import Frame

Start = Callable[[], AsyncGenerator[Frame, None]]


class Flight:
    """One upstream call and everyone who listens. Frames are kept for those who come late, until they weigh more than `max_bytes`:
    then nobody new may join, what all have read is dropped, and the call waits for the slowest listener."""

    def __init__(self, start: Start, max_bytes: int, forget: Callable[[Flight], None]) -> None:
        self._max_bytes = max_bytes
        self._forget = forget
        self._frames: list[Frame] = []
        self._first = 0  # number of the frame that stands first in _frames
        self._bytes = 0
        self._open = True  # to new listeners
        self._listeners: set[Subscription] = set()
        self._news: list[asyncio.Future[None]] = []
        self._room: asyncio.Future[None] | None = None
        self._ended = False
        self._error: BaseException | None = None
        self.task = asyncio.create_task(self._run(start), name="shared upstream call")
        self.task.add_done_callback(self._done)

    @property
    def joinable(self) -> bool:
        return self._open and bool(self._listeners)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def subscribe(self) -> Subscription:
        subscription = Subscription(self)
        self._listeners.add(subscription)
        return subscription

    async def next(self, subscription: Subscription) -> Frame:
        """The listener's next frame; raises StopAsyncIteration at the end, or the call's own error once its frames are read."""
        while True:
            index = subscription.position - self._first
            if index < len(self._frames):
                frame = self._frames[index]
                subscription.position += 1
                if not self._open:
                    self._trim()
                return frame
            if self._ended:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                raise StopAsyncIteration
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.append(news)
            await news

    def leave(self, subscription: Subscription) -> None:
        self._listeners.discard(subscription)
        if self._listeners:
            self._trim()
        else:
            self._close()
            self.task.cancel()

    async def _run(self, start: Start) -> None:
        frames = start()
        try:
            async for frame in frames:
                self._frames.append(frame)
                self._bytes += weight(frame)
                self._tell()
                if self._bytes > self._max_bytes:
                    await self._drain()
        finally:
            await frames.aclose()

    async def _drain(self) -> None:
        self._close()
        self._trim()
        while self._bytes > self._max_bytes:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _trim(self) -> None:
        """Drop what every listener has read; only when nobody can join any more."""
        if self._open:
            return
        read = min((s.position for s in self._listeners), default=self._first) - self._first
        if read > 0:
            self._bytes -= sum(weight(frame) for frame in self._frames[:read])
            del self._frames[:read]
            self._first += read
        if self._room is not None and self._bytes <= self._max_bytes and not self._room.done():
            self._room.set_result(None)

    def _tell(self) -> None:
        news, self._news = self._news, []
        for future in news:
            if not future.done():
                future.set_result(None)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._forget(self)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._ended = True
        self._error = Cut("the shared upstream call was cancelled") if task.cancelled() else task.exception()
        self._close()
        self._tell()


class Subscription:
    """One listener: iterate it, and call `leave` (or `aclose`) in a finally, also when it was never iterated. Leaving twice is harmless."""

    __slots__ = ("_flight", "position")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self.position = 0

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Frame:
        return await self._flight.next(self)

    @property
    def alone(self) -> bool:
        """Nobody else listens to this call."""
        return self._flight.listeners <= 1

    def leave(self) -> None:
        self._flight.leave(self)

    async def aclose(self) -> None:
        self._flight.leave(self)


class Flights:
    """The calls in flight by cache key. max_bytes: of one answer, kept for late comers."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_key: dict[bytes, Flight] = {}
        self._all: set[Flight] = set()
        self.shared = 0  # requests that needed no call of their own

    def join(self, key: bytes, start: Start) -> tuple[Subscription, bool]:
        """Listen to the call under this key; with none in flight, start one. (subscription, True for who started it).

        start: called at once inside the call's own task, whose end closes the generator. Its error reaches every listener.
        """
        flight = self._by_key.get(key)
        if flight is not None and flight.joinable:
            self.shared += 1
            return flight.subscribe(), False
        flight = Flight(start, self._max_bytes, lambda gone: self._forget(key, gone))
        self._by_key[key] = flight
        self._all.add(flight)
        flight.task.add_done_callback(lambda _: self._all.discard(flight))
        return flight.subscribe(), True

    async def close(self) -> None:
        """Cancel what is still in flight and wait for its end."""
        tasks = [flight.task for flight in self._all]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._all)

    def _forget(self, key: bytes, flight: Flight) -> None:
        if self._by_key.get(key) is flight:
            del self._by_key[key]
