"""A late request's two attempts at once: the first good event wins, the other call is cancelled and booked.

Runs the generators of attempts.py, which knows money and backends; when to ask a second one and whom is the router's. Knows neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from gateway.exchange import Attempt, Exchange
from providers.types import Frame

Frames = AsyncGenerator[Frame, None]


class Runner:
    """One attempt and the task that waits for its first frame; who wins is read on from the request's own task."""

    __slots__ = ("_closing", "attempt", "first", "frames")

    def __init__(self, attempt: Attempt, frames: Frames) -> None:
        self.attempt = attempt
        self.frames = frames
        self.first = asyncio.create_task(self._first())
        self._closing: asyncio.Task[None] | None = None

    async def _first(self) -> Frame:
        return await anext(self.frames)  # an attempt without any frame raises ProviderError

    def close(self) -> asyncio.Task[None]:
        """Begin to close its call, whether anybody reads on or not; the task ends when it is closed."""
        if self._closing is None:
            self.first.cancel()
            self._closing = asyncio.create_task(self._close())
        return self._closing

    async def stop(self) -> None:
        """Its call is closed when this returns."""
        if self._closing is None and self.first.done():
            if not self.first.cancelled():
                self.first.exception()  # looked at, so that asyncio does not warn of it
            await self.frames.aclose()
        else:
            await asyncio.wait({self.close()})

    async def _close(self) -> None:
        await asyncio.gather(self.first, return_exceptions=True)
        await self.frames.aclose()


async def race(
    x: Exchange, first: Runner, wait_s: float, second: Callable[[], Awaitable[Runner | None]], lose: Callable[[Attempt], None]
) -> Frames:
    """Frames of `first`, or, where it brings none within wait_s, of whichever of it and `second()` brings one first.

    lose: books the other, at once. ProviderError when all of them failed: the last one's.
    """
    runners = [first]
    try:
        await asyncio.wait({first.first}, timeout=wait_s)
        if not first.first.done():
            other = await second()
            if other is not None:
                runners.append(other)
        winner = await _winner(x, runners)
        for runner in runners:
            if runner is not winner:
                lose(runner.attempt)
                runner.close()
        yield winner.first.result()
        async for frame in winner.frames:
            yield frame
    finally:
        for runner in runners:
            await runner.stop()


async def _winner(x: Exchange, runners: list[Runner]) -> Runner:
    """The runner whose frame committed the exchange. Raises the error of the last one when none did."""
    pending = {runner.first for runner in runners}
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for runner in runners:
            if x.answered_by is runner.attempt and runner.first.done():
                return runner
        for task in done:
            if not pending:
                task.result()  # raises
