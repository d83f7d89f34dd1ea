"""What is in force in a worker: the file's settings joined with what the API made, as catalog and providers, swapped whole.

A request keeps the catalog and the provider that it began with; what was replaced is closed once the last such request has ended.
Knows no request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Set

import structlog

from gateway.catalog import Catalog
from gateway.catalog_build import build as build_catalog
from gateway.exchange import Exchange
from gateway.fit import check_backend
from gateway.made import Made, joined
from gateway.parts import Parts
from gateway.settings import BackendSettings, Settings
from gateway.snapshot import Prices
from providers.http import Upstream
from providers.types import Provider

RETIRE_POLL_S = 1.0

Make = Callable[[BackendSettings, Settings], Provider]
log = structlog.get_logger("tollway.takeover")


class Takeover:
    """One per worker. `file` and `loaded` change what is in force for requests to come; neither drops one that runs."""

    def __init__(self, parts: Parts, upstream: Upstream, make: Make) -> None:
        self.parts = parts
        self.upstream = upstream
        self.make = make
        self.in_flight: Set[Exchange] = parts.pipeline.in_flight
        self.retiring: set[asyncio.Task[None]] = set()  # closing what was replaced
        self._one = asyncio.Lock()  # at a time

    async def file(self, settings: Settings) -> None:
        """Other settings of the file. Raises ValueError and changes nothing when they cannot work."""
        async with self._one:
            await self._take(settings, self.parts.standing.made)
            standing = self.parts.standing
            standing.settings, standing.since, standing.refused = settings.hash, time.time(), ""

    async def loaded(self, prices: Prices, made: Made) -> None:
        """The database says other prices, the API made something, or an operator asked something of a backend. What the API made and
        cannot work is left out and told."""
        self.parts.catalog = build_catalog(self.parts.settings, prices)
        self.parts.router.states(self.parts.catalog)
        async with self._one:
            self.parts.router.obey(made.drained, {name: order.probe_at_us for name, order in made.orders.items()}, time.monotonic())
            now = self.parts.standing.made
            if (made.backends, made.routes, made.unreadable) != (now.backends, now.routes, now.unreadable):
                try:
                    await self._take(self.parts.file, made)
                except ValueError as error:  # what is in force stays
                    self.parts.standing.problems = {"all of it": str(error)}
                    log.error("made over the API, and not in force", what="all of it", why=str(error))
            self.parts.standing.made = made

    async def close(self) -> None:
        """After the last request: every provider and the one upstream client."""
        for task in self.retiring:
            task.cancel()
        for provider in self.parts.providers.values():
            await provider.close()
        await self.upstream.close()

    async def _take(self, file: Settings, made: Made) -> None:
        parts = self.parts
        settings, problems = joined(file, made, check_backend)
        catalog = build_catalog(settings, parts.snapshot.prices)
        await asyncio.to_thread(parts.router.judges.load, catalog.routes)
        old, before = parts.providers, {one.name: one for one in parts.settings.backends}
        fresh = {}
        for one in settings.backends:  # an unchanged backend keeps its connection to a local engine
            fresh[one.name] = old[one.name] if before.get(one.name) == one and one.name in old else self.make(one, settings)
        replaced = {name: provider for name, provider in old.items() if name in before and fresh.get(name) is not provider}
        gone = {name: provider for name, provider in old.items() if name not in fresh}  # by this change, or by one that still retires
        catalog = build_catalog(settings, parts.snapshot.prices)  # again: prices may have come while models were read
        _tell(problems, parts.standing.problems)
        _replace(parts, file, settings, problems, catalog, {**fresh, **gone})
        task = asyncio.create_task(self._retire(set(self.in_flight), replaced))
        self.retiring.add(task)
        task.add_done_callback(self.retiring.discard)

    async def _retire(self, before: set[Exchange], replaced: Mapping[str, Provider]) -> None:
        """Close what was replaced once the last request that began before it has ended."""
        while before & self.in_flight:  # noqa: ASYNC110 - a plain set: no request pays for an event
            await asyncio.sleep(RETIRE_POLL_S)
        parts = self.parts
        parts.providers = {name: one for name, one in parts.providers.items() if replaced.get(name) is not one}
        parts.pipeline.attempts.providers = parts.providers
        for provider in replaced.values():
            await provider.close()


def _tell(problems: Mapping[str, str], before: Mapping[str, str]) -> None:
    for what, why in problems.items():
        if before.get(what) != why:
            log.error("made over the API, and not in force", what=what, why=why)


def _replace(
    parts: Parts, file: Settings, settings: Settings, problems: Mapping[str, str], catalog: Catalog, providers: Mapping[str, Provider]
) -> None:
    parts.file, parts.settings, parts.standing.problems = file, settings, problems
    parts.figures.settings = settings.figures
    parts.providers = providers
    parts.pipeline.attempts.providers = providers
    parts.catalog = catalog
    parts.router.states(catalog)  # so that what is told of backends does not wait for the next request
