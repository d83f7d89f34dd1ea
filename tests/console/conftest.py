"""A whole worker's routes in process, with somebody signed in to the console for each role that an API key can have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.app import Application
from gateway.settings import BackendSettings, PriceSettings, RouteSettings, Settings, Storage
from tests.fixtures.application import built

ORIGIN = "http://gateway"


class Site:
    """One worker's app and browsers over it."""

    def __init__(self, application: Application, secret: bytes) -> None:
        self.application = application
        self.parts = application.parts
        self.secret = secret
        self._open: list[httpx.AsyncClient] = []

    def browser(self, **headers: str) -> httpx.AsyncClient:
        """Nobody is signed in. Follows no redirect."""
        made = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.application.asgi),  # type: ignore[arg-type]
            base_url=ORIGIN,
            headers={"origin": ORIGIN, **headers},
        )
        self._open.append(made)
        return made

    async def key(self, team: str, *scopes: str, **more: Any) -> str:
        """A new key of a team, which is made when it is not there."""
        if team not in {one.name for one in await people.list_teams(self.parts.engine)}:
            await people.add_team(self.parts.engine, team, actor=COMMAND_LINE)
        return (await people.add_key(self.parts.engine, self.secret, people.NewKey(team=team, scopes=scopes, **more), actor=COMMAND_LINE))[
            0
        ]

    async def signed_in(self, scope: str = "admin", team: str = "ops") -> httpx.AsyncClient:
        """A browser with the session of a key of this scope."""
        browser = self.browser()
        answer = await browser.post("/console/login", data={"kind": "key", "key": await self.key(team, scope)})
        assert answer.status_code == 303, answer.text
        return browser

    async def close(self) -> None:
        for client in self._open:
            await client.aclose()


def settings_of(folder: Path) -> Settings:
    price = PriceSettings(input="1", output="2")
    backends = tuple(BackendSettings(name=name, vendor="scripted", model="m", price=price) for name in ("near", "far"))
    return Settings(
        storage=Storage(state_dir=str(folder)), backends=backends, routes=(RouteSettings(name="assistant", backends=("near", "far")),)
    )


@pytest.fixture
async def site(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Site]:
    async with built(settings_of(tmp_path), sqlite_template) as (application, secret):
        made = Site(application, secret)
        yield made
        await made.close()
