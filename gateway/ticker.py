"""One task per worker that looks at every live request once a second, instead of timers per event: keep-alives, stalled writers,
passed deadlines, and the housekeeping that must not sit on a request's path.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from gateway.exchange import Exchange
from gateway.telemetry import Telemetry

TICK_S = 1.0


class Ticker:
    def __init__(self, in_flight: Iterable[Exchange], keep_alive_s: float, stalled_client_s: float, telemetry: Telemetry) -> None:
        self.in_flight = in_flight
        self.keep_alive_s = keep_alive_s
        self.stalled_client_s = stalled_client_s
        self.telemetry = telemetry
        self.chores: list[tuple[str, float, Callable[[], Awaitable[object]]]] = []
        self._due: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._chore_tasks: dict[str, asyncio.Task[object]] = {}

    def every(self, name: str, seconds: float, chore: Callable[[], Awaitable[object]]) -> None:
        """Run `chore` about every `seconds`, never twice at once."""
        self.chores.append((name, seconds, chore))

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        tasks = [task for task in (self._task, *self._chore_tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                now = time.monotonic()
                self.look(now)
                self._start_chores(now)
                self.telemetry.tick()
            except Exception as error:  # noqa: BLE001 - a supervisor: without the next tick no deadline would be kept
                self.telemetry.fault("tick", error)

    def look(self, now: float) -> None:
        """One pass over the live requests."""
        for x in tuple(self.in_flight):
            if x.sending_since and now - x.sending_since > self.stalled_client_s:
                x.cancel("stalled")
            elif x.deadline_at is not None and now > x.deadline_at:
                x.cancel("deadline")
            elif not x.sending_since and x.keep_alive is not None and now - x.last_sent > self.keep_alive_s:
                x.last_sent = now
                x.keep_alive()

    def _start_chores(self, now: float) -> None:
        for name, seconds, chore in self.chores:
            if now < self._due.get(name, 0.0):
                continue
            running = self._chore_tasks.get(name)
            if running is not None and not running.done():
                continue
            self._due[name] = now + seconds
            self._chore_tasks[name] = asyncio.ensure_future(self._do(name, chore))

    async def _do(self, name: str, chore: Callable[[], Awaitable[object]]) -> None:
        try:
            await chore()
        except Exception as error:  # noqa: BLE001 - a supervisor: one failed chore must not end the others
            self.telemetry.fault(name, error)
