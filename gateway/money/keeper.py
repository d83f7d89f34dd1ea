"""One worker's part in the hours of owned hardware: says every few seconds that it is there, and closes hours that nobody has closed.

Behind the requests; without the database it goes on and says later what it saw. Knows no request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.catalog import Backend
from gateway.db.session import Away, Session, open_session
from gateway.money import closing, presence
from gateway.money.hours import PRESENT, Span, hour_of
from gateway.money.ledger import DAY_US, HOUR_US, WARM_UP
from gateway.money.owned import Owned
from gateway.money.presence import HourKey, Sighting

BEAT_S = 1.0  # while something is in flight; so old is what a worker knows of the others
REST_US = 5_000_000  # between beats while nothing is
ASK_S = 2.0  # for a machine to say that it is ready
CLOSE_S = 60.0
SAID_MAX = 1000  # spans that wait for the database

log = logging.getLogger("tollway.money")


class _Seen:
    """A backend's hardware as it was seen at the last beats. told_us: up to where SQL knows. load: that it was told last."""

    __slots__ = ("from_us", "load", "rate", "told_us", "until_us", "warm_from_us")

    def __init__(self, now_us: int, rate: int) -> None:
        self.from_us = self.until_us = now_us
        self.told_us: int | None = None
        self.load = 0
        self.rate = rate
        self.warm_from_us: int | None = None

    def hours(self) -> range:
        """Hours to be told of: those that are new, and with each new one again the last day's, in case the database forgot them."""
        if self.told_us is None:
            return range(hour_of(self.from_us), self.until_us + 1, HOUR_US)
        if hour_of(self.told_us) == hour_of(self.until_us):
            return range(0)
        return range(hour_of(min(self.told_us, max(self.from_us, self.until_us - DAY_US))), self.until_us + 1, HOUR_US)


class Keeper:
    """backends: of the catalog in force. ready: whether a backend's machine answers.

    now_us: the database's clock.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        process: UUID,
        owned: Owned,
        now_us: Callable[[], int],
        backends: Callable[[], Mapping[str, Backend]],
        ready: Callable[[str], Awaitable[bool]],
    ) -> None:
        self.engine = engine
        self.session: Session = open_session(engine)
        self.process = process
        self.owned = owned
        self.now_us = now_us
        self.backends = backends
        self.ready = ready
        self.host = socket.gethostname()
        self._seen: dict[str, _Seen] = {}
        self._ended: list[Sighting] = []  # spans at a rate that is no more, not written yet
        self._warming: set[str] = set()
        self._asked_us: int | None = None  # when the machines were asked last
        self._away = False

    async def beat(self, *, last: bool = False) -> None:
        """Every BEAT_S: write what there is, learn what others have in flight. Nothing to say: only every REST_US."""
        wanted = self._wanted()
        for name in self._seen.keys() - wanted.keys():
            del self._seen[name]
        if not wanted:
            return
        now = time.monotonic()
        loads = {name: self.owned.machine(backend, now).mean_weight(now) for name, backend in wanted.items()}
        rested = self._asked_us is None or self.now_us() - self._asked_us >= REST_US
        if rested and not last:
            await self._ask(wanted)
        if rested or last or any(load or name not in self._seen or self._seen[name].load for name, load in loads.items()):
            await self._say(wanted, loads)

    async def _ask(self, wanted: Mapping[str, Backend]) -> None:
        """Which machines do not answer."""
        answers = await asyncio.gather(*map(self._answers, wanted))
        self._warming = {name for name, ready in zip(wanted, answers, strict=True) if not ready}
        self._asked_us = self.now_us()

    async def _say(self, wanted: Mapping[str, Backend], loads: Mapping[str, int]) -> None:
        now_us, now = self.now_us(), time.monotonic()
        sightings, hours = list(self._ended), set[HourKey]()
        for name, backend in wanted.items():
            sightings += self._look(backend, loads[name], now_us, now)
            hours |= {(name, hour, backend.vendor, backend.model) for hour in self._seen[name].hours()}
        try:
            others = await self.session.run(presence.beat(self.session.dialect, self.process, sightings, hours, now_us))
        except Away as error:
            self._tell(error)
            return
        self._away = False
        self._ended.clear()
        for name, backend in wanted.items():
            self._seen[name].told_us, self._seen[name].load = self._seen[name].until_us, loads[name]
            self.owned.machine(backend, now).set_others(others.get((name, self._machine(backend)), 0), now)

    def _look(self, backend: Backend, load: int, now_us: int, now: float) -> list[Sighting]:
        """Spans of one backend up to now; a new rate begins a new one."""
        machine, rate = self.owned.machine(backend, now), backend.hourly_nanousd
        assert rate is not None
        seen, where = self._seen.get(backend.name), self._machine(backend)
        found: list[Sighting] = []
        if seen is not None and seen.rate != rate:
            machine.set_rate(rate, now)
            self._ended = [*self._ended, Sighting(backend.name, Span(where, PRESENT, seen.from_us, now_us, seen.rate), 0)][-SAID_MAX:]
            found.append(self._ended[-1])
            seen = None
        if seen is None:
            seen = self._seen[backend.name] = _Seen(now_us, rate)
        before, seen.until_us = seen.until_us, max(seen.until_us, now_us)
        found.append(Sighting(backend.name, Span(where, PRESENT, seen.from_us, seen.until_us, rate), load))
        if backend.name not in self._warming:
            seen.warm_from_us = None
        else:
            if seen.warm_from_us is None:
                seen.warm_from_us = before
            found.append(Sighting(backend.name, Span(where, WARM_UP, seen.warm_from_us, seen.until_us, rate), 0))
        return found

    async def close_hours(self) -> None:
        """Every CLOSE_S: close what is due, whoever had the backend, and learn what its tokens lately cost."""
        now_us, wanted = self.now_us(), self._wanted()
        try:
            for backend, hour_us in await closing.due(self.engine, now_us):
                booked = await self.session.run(closing.close(self.session.dialect, self.process, backend, hour_us, now_us))
                if booked is not None:
                    log.info("owned hardware: an hour of %s is closed; %d nano-USD of it were nobody's", backend, booked)
            known = await closing.averages(self.engine, wanted.keys(), now_us) if wanted else {}
        except (Away, SQLAlchemyError, OSError, TimeoutError) as error:
            self._tell(error)
            return
        for name, machine in self.owned.machines.items():
            machine.average = known.get(name)

    async def close(self) -> None:
        """The last beat of this process."""
        await self.beat(last=True)
        await self.session.close()

    async def _answers(self, backend: str) -> bool:
        try:
            async with asyncio.timeout(ASK_S):
                return await self.ready(backend)
        except TimeoutError:
            return False

    def _wanted(self) -> dict[str, Backend]:
        return {name: backend for name, backend in self.backends().items() if backend.hourly_nanousd is not None}

    def _machine(self, backend: Backend) -> str:
        """Every host has local engines of its own; anything else that a backend's name stands for is one machine for all."""
        return self.host if backend.vendor == "local" else ""

    def _tell(self, error: Exception) -> None:
        if not self._away:
            log.warning("owned hardware: the database does not answer (%s); hours are closed later", error)
        self._away = True
