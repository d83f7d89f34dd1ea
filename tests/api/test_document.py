"""`/admin` against its own OpenAPI document, by schemathesis: whatever it allows is answered without a fault and in its shapes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import FailureGroup, not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from gateway import people
from gateway.app import Application, build
from gateway.auth import ensure_secret
from gateway.db.engine import make_engine
from tests.console.conftest import settings_of

EXAMPLES = 5  # of each call
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
NEEDS_A_SUPERVISOR = "/admin/reload"


class Api:
    """One worker's app on a loop of its own, called from tests that are no coroutines."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.application: Application
        self.client: httpx.AsyncClient
        self.key = runner.run(self._begin(folder))
        self.document: dict[str, Any] = self.application.litestar.openapi_schema.to_schema()

    async def _begin(self, folder: Path) -> str:
        chosen = settings_of(folder)
        engine = make_engine(chosen.storage)
        accepted = await ensure_secret(chosen, engine)
        await people.add_team(engine, "ops")
        key, _ = await people.add_key(engine, accepted[0], people.NewKey(team="ops", scopes=("admin",)))
        await engine.dispose()
        self.application = await build(chosen, "0")
        transport = httpx.ASGITransport(self.application.asgi)  # type: ignore[arg-type]
        self.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        return key

    async def _end(self) -> None:
        await self.client.aclose()
        self.application.begin_drain()
        await self.application.finish()

    def send(self, case: schemathesis.Case) -> httpx.Response:
        """What a case asks, with an admin key."""
        told = case.as_transport_kwargs(base_url="http://gateway")
        headers = {**{str(name): str(value) for name, value in told["headers"].items()}, "authorization": f"Bearer {self.key}"}
        content = {"json": told["json"]} if "json" in told else {"content": told["data"]} if told.get("data") else {}
        return self.runner.run(self.client.request(told["method"], told["url"], params=told.get("params"), headers=headers, **content))

    def end(self) -> None:
        self.runner.run(self._end())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("api")
    shutil.copy(sqlite_template, folder / "tollway.db")
    with asyncio.Runner() as runner:
        made = Api(folder, runner)
        yield made
        made.end()


@pytest.fixture(scope="module")
def schema(api: Api) -> Any:
    return schemathesis.openapi.from_dict(api.document)


def test_what_the_document_allows_is_answered_in_its_shapes(api: Api, schema: Any) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    chosen = [one for one in operations if one.path.startswith("/admin") and one.path != NEEDS_A_SUPERVISOR]
    assert len(chosen) >= 50
    for operation in chosen:

        @settings(max_examples=EXAMPLES, phases=[Phase.generate], database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answered(case: schemathesis.Case) -> None:
            case.validate_response(api.send(case), checks=CHECKS)

        answered()


def test_the_checks_see_a_wrong_answer(schema: Any) -> None:
    case = schema["/admin/teams"]["GET"].Case()
    for status, body in ((500, {"error": {"message": "m", "type": "t"}}), (200, {"data": [{"id": 1}]}), (400, {"detail": "m"})):
        answer = httpx.Response(status, json=body, request=httpx.Request("GET", "http://gateway/admin/teams"))
        answer.elapsed = timedelta(seconds=1)
        with pytest.raises(FailureGroup):
            case.validate_response(answer, checks=CHECKS)
