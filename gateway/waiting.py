"""What a worker serves while its database cannot be used: alive, not ready, and why. It makes room for the application by itself.

Knows no route: everything but the health paths is 503 with Retry-After, in OpenAI's error shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from gateway.auth import load_secrets
from gateway.db import schema
from gateway.db.engine import make_engine
from gateway.settings import ConfigError, Settings

ASK_S = 1.0
ANSWER_S = 10.0  # for one question to the database
RETRY_AFTER_S = 5

Message = MutableMapping[str, Any]


async def problem(settings: Settings) -> str:
    """Why the database cannot be used now; empty when it can. Raises ConfigError when it never will with this program."""
    engine = make_engine(settings.storage)
    try:
        async with asyncio.timeout(ANSWER_S):
            found = await schema.state(engine)
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        return f"The database does not answer ({type(error).__name__}): is it running, and is storage.database_url right?"
    finally:
        await engine.dispose()
    if found == "newer":
        raise ConfigError(schema.problem(found))
    if found == "current":
        try:
            load_secrets(settings)
        except ConfigError as error:  # between `tollway migrate` and the preparation that makes the secret
            return str(error)
    return schema.problem(found)


class Waiting:
    """Stands in for the application. `over` is called once, when the database can be used: the worker then ends and starts anew."""

    def __init__(self, settings: Settings, why: str, over: Callable[[], None]) -> None:
        self.settings = settings
        self.why = why
        self.over = over
        self.in_flight: set[Any] = set()  # takes no request
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        while self.why:
            await asyncio.sleep(ASK_S)
            try:
                self.why = await problem(self.settings)
            except ConfigError as error:
                self.why = str(error)
        self.over()

    def begin_drain(self) -> None:
        self.why = self.why or "draining"

    async def reload(self, settings: Settings) -> None:
        """Start anew with them."""
        self.over()

    async def finish(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def asgi(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["path"] == "/health/live":
            await _answer(send, 200, {"status": "live"})
        elif scope["path"] == "/health/ready":
            await _answer(send, 503, {"ready": False, "reasons": [self.why]})
        else:
            error = {"message": f"This gateway is not ready. {self.why}", "type": "service_unavailable", "code": "not_ready", "param": None}
            await _answer(send, 503, {"error": error})


async def _lifespan(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _answer(send: Callable[[Message], Awaitable[None]], status: int, content: object) -> None:
    body = msgspec.json.encode(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status != 200:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
