"""The composition root in process: the document names every route and no other, and all parts start and end clean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.app import COUNTING, SURFACES, Application, build
from gateway.settings import BackendSettings, PriceSettings, RouteSettings, Settings, Storage
from tests.fixtures.application import built

UNDOCUMENTED = ("/schema", "/console")  # the documents themselves, and pages for people


@pytest.fixture
async def application(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Application]:
    backend = BackendSettings(name="a", vendor="scripted", model="m", price=PriceSettings(input="1", output="2"))
    settings = Settings(
        storage=Storage(state_dir=str(tmp_path)), backends=(backend,), routes=(RouteSettings(name="assistant", backends=("a",)),)
    )
    async with built(settings, sqlite_template) as (made, _):
        await made.start()
        yield made


async def test_the_document_and_the_routes_are_the_same(application: Application) -> None:
    routes = {route.path_format for route in application.litestar.routes if not route.path_format.startswith(UNDOCUMENTED)} - {"/"}
    documented = application.litestar.openapi_schema.to_schema()["paths"]
    assert set(documented) == routes
    for path in (*SURFACES, *COUNTING):
        assert set(documented[path]) == {"post"}
        assert "requestBody" in documented[path]["post"] and "200" in documented[path]["post"]["responses"]


async def test_it_is_ready_and_then_drains(application: Application) -> None:
    state = await application.parts.readiness()
    assert state["ready"] and state["reasons"] == []
    application.begin_drain()
    assert (await application.parts.readiness())["reasons"] == ["draining"]


async def test_settings_that_cannot_work_are_told(tmp_path: Path) -> None:
    backend = BackendSettings(name="a", vendor="scripted", model="m", script="nonsense = [")
    with pytest.raises(ValueError, match="script"):
        await build(Settings(storage=Storage(state_dir=str(tmp_path)), backends=(backend,)), "0")
