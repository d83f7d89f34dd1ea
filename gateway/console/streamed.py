"""Responses that are written while they are made: by another part of the gateway, or piece by piece by work that ends when the client
leaves. Knows no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from litestar import Response
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from gateway.console import shell

PIECE_ROWS = 500  # of a file that are written at once
SEND_S = 60.0  # a client that takes nothing for so long is given up
ROWS, ABOUT = "x-tollway-rows", "x-tollway-rows-about"  # how many rows a file will have, where that is known before

Run = Callable[[Receive, Send], Awaitable[None]]


class Relayed(Response[None]):
    """A response that another part of the gateway writes."""

    def __init__(self, run: Run) -> None:
        super().__init__(None)
        self._run = run

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIApp:  # type: ignore[override]
        async def respond(_scope: Scope, receive: Receive, send: Send) -> None:
            await self._run(receive, send)

        return respond


class Made(Struct, frozen=True, kw_only=True):
    """What is sent: pieces of text as they come. rows: how many there will be, None = not known; about: it may be some more or less."""

    media_type: str
    pieces: AsyncGenerator[str]
    headers: Mapping[str, str] = {}
    rows: int | None = None
    about: bool = False


def streamed(make: Callable[[], Awaitable[Made]]) -> Relayed:
    """What `make` makes. It and its pieces are cancelled when the client leaves; what it raises before the first piece is told as for any
    page, later the connection breaks off, so that nobody takes a part for the whole."""

    async def run(receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(_send(make, send))
        gone = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (work, gone):
                one.cancel()
            await asyncio.wait((work, gone))
        if not work.cancelled():
            work.result()

    return Relayed(run)


def file(name: str, pieces: AsyncGenerator[str], rows: int | None = None, *, about: bool = False) -> Made:
    """CSV to keep under a name. rows: without its head."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Made(media_type="text/csv; charset=utf-8", pieces=pieces, headers=headers, rows=rows, about=about)


async def _send(make: Callable[[], Awaitable[Made]], send: Send) -> None:
    made = await make()
    headers = {**shell.HEADERS, "content-type": made.media_type, **made.headers}
    if made.rows is not None:
        headers |= {ABOUT if made.about else ROWS: str(made.rows)}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    async with aclosing(made.pieces) as pieces:
        async for piece in pieces:
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
