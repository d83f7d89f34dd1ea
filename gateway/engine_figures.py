"""Reads what engines of one's own say of themselves, off the request path, into the router's states.

Bounded by the settings of [figures]: how often, how long, how large, how many. A server that publishes nothing, or is in trouble, is asked
rarely and says so in GET /admin/backends. Knows no page's format and no prediction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from gateway.catalog import Catalog
from gateway.routing.router import Router
from gateway.routing.state import BackendState
from gateway.settings import FigureSettings
from providers.errors import ProviderError
from providers.figures import NoFigures
from providers.types import Provider

PARALLEL = 16  # pages that are read at once
REFRESH_S = 0.3  # for the engines of this machine, before a scrape is answered
DOUBLINGS_MOST = 10


class EngineFigures:
    """One per worker: each compares what an engine says with its own requests there."""

    def __init__(
        self,
        settings: FigureSettings,
        router: Router,
        catalog: Callable[[], Catalog],
        providers: Callable[[], Mapping[str, Provider]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._router = router
        self._catalog = catalog
        self._providers = providers
        self._clock = clock
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}  # in a row
        self._places = asyncio.Semaphore(PARALLEL)

    async def look(self) -> None:
        """Read every engine that is due."""
        now = self._clock()
        states = self._own()
        for name in self._due.keys() - states.keys():
            del self._due[name]
            self._failures.pop(name, None)
        due = [name for name in states if now >= self._due.get(name, 0.0)]
        await asyncio.gather(*(self._read(name, states[name], self.settings.timeout_s) for name in due))

    async def refresh(self) -> None:
        """Read the engines of this machine now: a scrape tells the present."""
        providers = self._providers()
        local = {name: state for name, state in self._own().items() if (p := providers.get(name)) is not None and p.dialect == "local"}
        await asyncio.gather(*(self._read(name, state, min(REFRESH_S, self.settings.timeout_s)) for name, state in local.items()))

    def _own(self) -> dict[str, BackendState]:
        """The engines that are read."""
        own = {name: state for name, state in self._router.states(self._catalog()).items() if state.backend.own}
        for name in list(own)[self.settings.max_backends :]:
            own.pop(name).engine.failed("not read: more engines than figures.max_backends")
        return own

    async def _read(self, name: str, state: BackendState, within_s: float) -> None:
        provider = self._providers().get(name)
        if provider is None:  # replaced by a reload meanwhile
            return
        async with self._places:
            before = (state.outstanding, state.in_flight)
            try:
                figures = await provider.figures(within_s, self.settings.max_bytes)
            except NoFigures as error:
                state.engine.failed(error.message)
                self._due[name] = self._clock() + self.settings.absent_s
                return
            except ProviderError as error:
                state.engine.failed(error.message)
                failures = self._failures[name] = self._failures.get(name, 0) + 1
                wait_s = self.settings.every_s * 2.0 ** min(failures, DOUBLINGS_MOST)
                self._due[name] = self._clock() + min(wait_s, self.settings.absent_s)
                return
        now = self._clock()
        self._failures.pop(name, None)
        self._due[name] = now + self.settings.every_s
        mine = (max(before[0], state.outstanding), max(before[1], state.in_flight))  # what came or went meanwhile is ours, not others'
        state.engine.said(now, now + self.settings.max_age_s, figures, mine)
