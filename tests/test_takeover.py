"""What a worker goes by changes whole: requests that run keep what they began with, and what was replaced is closed after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gateway.app import Application
from gateway.catalog import Price
from gateway.made import Made, Order
from gateway.settings import BackendSettings, QualitySettings, RouteSettings, Settings, Storage
from tests.fixtures.application import built

A = BackendSettings(name="a", vendor="scripted", model="m")
B = BackendSettings(name="b", vendor="scripted", model="m")
C = BackendSettings(name="c", vendor="scripted", model="m")


@pytest.fixture
async def application(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Application]:
    settings = Settings(storage=Storage(state_dir=str(tmp_path)), backends=(A,), routes=(RouteSettings(name="r", backends=("a",)),))
    async with built(settings, sqlite_template) as (made, _):
        yield made


async def test_the_file_and_the_api_each_change_their_own(application: Application) -> None:
    parts, takeover = application.parts, application.takeover
    provider, file = parts.providers["a"], parts.file
    await takeover.loaded({}, Made(backends=(B,), routes=(RouteSettings(name="s", backends=("b",)),)))
    assert set(parts.catalog.routes) == {"r", "s"} and parts.file is file and len(parts.settings.backends) == 2
    assert parts.providers["a"] is provider, "an unchanged backend keeps its connections"
    await takeover.file(replace(file, routes=()))
    assert set(parts.catalog.routes) == {"a", "s"} and parts.standing.settings == parts.file.hash
    await takeover.loaded({}, Made())
    assert set(parts.catalog.routes) == {"a"} and parts.settings == parts.file


async def test_a_clash_leaves_the_file_in_force_and_is_told(application: Application) -> None:
    await application.takeover.loaded({}, Made(backends=(replace(A, model="other"),)))
    parts = application.parts
    assert parts.catalog.backends["a"].model == "m" and "tollway.toml" in parts.standing.problems["backend a"]
    await application.takeover.loaded({}, Made())
    assert parts.standing.problems == {}


async def test_what_is_drained_is_so_for_backends_that_come_later_too(application: Application) -> None:
    orders = {"b": Order(drained_at_us=1), "a": Order()}
    await application.takeover.loaded({}, Made(backends=(B,), orders=orders))
    states = application.parts.router.states(application.parts.catalog)
    assert {name: state.drained for name, state in states.items()} == {"a": False, "b": True}
    await application.takeover.loaded({}, Made(backends=(B,)))
    assert not states["b"].drained


async def test_settings_that_cannot_work_change_nothing(application: Application, tmp_path: Path) -> None:
    parts = application.parts
    before, catalog = parts.standing.since, parts.catalog
    quality = QualitySettings(weak=("a",), floor=0.9, model=str(tmp_path / "none"))
    broken = replace(parts.file, backends=(A, B), routes=(RouteSettings(name="r", backends=("a", "b"), quality=quality),))
    with pytest.raises(ValueError, match="quality"):
        await application.takeover.file(broken)
    assert parts.catalog is catalog and parts.standing.since == before and set(parts.providers) == {"a"}


async def test_a_change_that_retires_takes_nothing_from_one_that_came_after_it(application: Application) -> None:
    parts, takeover = application.parts, application.takeover
    first, second = object(), object()
    running = cast(set[Any], parts.pipeline.in_flight)
    await takeover.loaded({}, Made(backends=(B,)))
    running.add(first)
    await takeover.loaded({}, Made(backends=(B, C)))  # retires when the first request has ended
    retires = set(takeover.retiring)
    running.add(second)  # knows c, and may fail over to it
    c = parts.providers["c"]
    await takeover.loaded({}, Made(backends=(B,)))
    running.remove(first)
    async with asyncio.timeout(30):
        await asyncio.gather(*retires)
    assert parts.providers["c"] is c is parts.pipeline.attempts.providers["c"]
    running.remove(second)
    async with asyncio.timeout(30):
        await asyncio.gather(*takeover.retiring)
    assert set(parts.providers) == {"a", "b"}


async def test_prices_that_come_while_models_are_read_stay(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, takeover = application.parts, application.takeover
    dear = Price(id="new", input=7, output=9)
    load = parts.router.judges.load

    def meanwhile(routes: Any) -> None:
        load(routes)
        parts.snapshot.prices = {("scripted", "m"): dear}

    monkeypatch.setattr(parts.router.judges, "load", meanwhile)
    await takeover.file(replace(parts.file, routes=()))
    assert parts.catalog.backends["a"].price == dear


async def test_what_was_replaced_is_closed_once_nobody_uses_it(application: Application) -> None:
    parts = application.parts
    await application.takeover.loaded({}, Made(backends=(B,)))
    await application.takeover.loaded({}, Made())
    assert "b" in parts.providers, "a request that began before may still call it"
    async with asyncio.timeout(30):
        while application.takeover.retiring:  # noqa: ASYNC110 - tasks take themselves out
            await asyncio.sleep(0.01)
    assert set(parts.providers) == {"a"}
