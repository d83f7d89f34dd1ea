"""One worker's app for tests of /admin that are no coroutines, with a team, a key, a member, a budget, a limit and entries of the API."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.app import Application, build
from gateway.auth import ensure_secret
from gateway.db.engine import make_engine
from tests.api.bodies import EMAIL, PRICE, TEAM
from tests.console.conftest import settings_of


class Api:
    """The app on a loop of its own. names: what stands in the place of the parameters of a path."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.database = folder / "tollway.db"
        self.application: Application
        self.client: httpx.AsyncClient
        self.key = runner.run(self._begin(folder))
        self.document: dict[str, Any] = self.application.litestar.openapi_schema.to_schema()

    async def _begin(self, folder: Path) -> str:
        chosen = settings_of(folder)
        engine = make_engine(chosen.storage)
        accepted = await ensure_secret(chosen, engine)
        await people.add_team(engine, "ops", actor=COMMAND_LINE)
        key, _ = await people.add_key(engine, accepted[0], people.NewKey(team="ops", scopes=("admin",)), actor=COMMAND_LINE)
        await engine.dispose()
        self.application = await build(chosen, "0")
        transport = httpx.ASGITransport(self.application.asgi)  # type: ignore[arg-type]
        self.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        return key

    async def _end(self) -> None:
        await self.client.aclose()
        self.application.begin_drain()
        await self.application.finish()

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """With an admin key."""
        headers = {**more.pop("headers", {}), "authorization": f"Bearer {self.key}"}
        return self.runner.run(self.client.request(method, path, headers=headers, **more))

    def made(self, method: str, path: str, body: Any = None) -> Any:
        """What a call that must work answers."""
        answer = self.call(method, f"/admin/{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def furnish(self) -> dict[str, str]:
        """One of everything; the parameters of paths -> what they are called."""
        self.made("POST", "teams", {"name": TEAM})
        self.made("POST", "members", {"email": EMAIL, "teams": {TEAM: "member"}})
        self.made("PUT", "backends/made", {"vendor": "scripted", "model": "m", "price": PRICE})
        self.made("PUT", "routes/made", {"backends": ["made", "near"]})
        scope = {"scope_kind": "team", "scope": TEAM}
        return {
            "name": "made",
            "team": TEAM,
            "email": EMAIL,
            "public": self.made("POST", "keys", {"team": TEAM})["key"]["public"],
            "budget_id": str(self.made("PUT", "budgets", scope | {"usd": "1", "per": "day"})["id"]),
            "limit_id": str(self.made("PUT", "limits", scope | {"rpm": 1})["id"]),
            "request_id": "00000000-0000-7000-8000-000000000001",
        }

    def end(self) -> None:
        self.runner.run(self._end())


@pytest.fixture(scope="package")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("api")
    shutil.copy(sqlite_template, folder / "tollway.db")
    with asyncio.Runner() as runner:
        made = Api(folder, runner)
        yield made
        made.end()
