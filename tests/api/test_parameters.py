"""Parameters of an address: one that is not known is named, not ignored."""

from __future__ import annotations

from typing import Any

import httpx
from litestar import Litestar, Request, get

from gateway import errors
from gateway.api.parameters import known
from gateway.app import tell


async def test_an_unknown_name_is_told() -> None:
    @get("/")
    async def read(request: Request[Any, Any, Any]) -> str:
        known(request, ("team",))
        return "read"

    app = Litestar([read], exception_handlers={errors.GatewayError: tell}, logging_config=None, openapi_config=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:  # type: ignore[arg-type]
        assert (await client.get("/?team=a&team=b")).text == "read"
        answer = await client.get("/?team=a&taem=b")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "taem")
