"""Responses that are written while they are made: pieces in order, an end when the client leaves, no whole that is a part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.console import shell
from gateway.console.streamed import Made, Relayed, file, streamed
from gateway.errors import NotFound


class Client:
    """Asks, takes what comes, and leaves when told."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()
        self.taken = asyncio.Event()
        self._asked = False

    async def receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.taken.set()

    async def ask(self, response: Relayed) -> None:
        await response.to_asgi_response()({}, self.receive, self.send)  # type: ignore[typeddict-item, arg-type]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}


async def pieces(*texts: str) -> AsyncGenerator[str]:
    for one in texts:
        yield one


async def test_a_file_comes_piece_by_piece_under_the_console_s_headers() -> None:
    client = Client()

    async def make() -> Made:
        return file("x.csv", pieces("a,b\n", "1,ü\n"), 1)

    await client.ask(streamed(make))
    assert [one.get("body") for one in client.sent[1:]] == [b"a,b\n", "1,ü\n".encode(), b""]
    assert [one["more_body"] for one in client.sent[1:]] == [True, True, False]
    expected = {"content-type": "text/csv; charset=utf-8", "content-disposition": 'attachment; filename="x.csv"', "x-tollway-rows": "1"}
    assert client.headers == {**shell.HEADERS, **expected}


async def test_what_cannot_be_made_is_raised_before_anything_is_sent() -> None:
    client = Client()

    async def make() -> Made:
        raise NotFound("There is no such team.")

    with pytest.raises(NotFound):
        await client.ask(streamed(make))
    assert client.sent == []


async def test_work_ends_when_the_client_leaves() -> None:
    """Before anything was sent, and in the middle: what waits is cancelled, and its cleaning up is waited for."""
    ended: list[str] = []

    async def never(what: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(what)

    async def asks() -> Made:
        begun.set()
        await never("query")
        raise AssertionError

    begun, client = asyncio.Event(), Client()
    asking = asyncio.create_task(client.ask(streamed(asks)))
    await begun.wait()
    client.left.set()
    await asyncio.wait_for(asking, 30)
    assert (ended, client.sent) == (["query"], [])

    async def endless() -> AsyncGenerator[str]:
        yield "1\n"
        await never("rows")
        yield "2\n"

    async def make() -> Made:
        return file("x.csv", endless(), 2, about=True)

    client = Client()
    asking = asyncio.create_task(client.ask(streamed(make)))
    while len(client.sent) < 2:
        client.taken.clear()
        await asyncio.wait_for(client.taken.wait(), 30)
    client.left.set()
    await asyncio.wait_for(asking, 30)
    assert ended == ["query", "rows"] and client.headers["x-tollway-rows-about"] == "2"
    assert client.sent[-1]["more_body"], "nothing says that this is all"


async def test_what_breaks_in_the_middle_is_no_whole() -> None:
    async def breaks() -> AsyncGenerator[str]:
        yield "1\n"
        raise RuntimeError("the database went away")

    async def make() -> Made:
        return file("x.csv", breaks())

    client = Client()
    with pytest.raises(RuntimeError):
        await client.ask(streamed(make))
    assert client.sent[-1]["more_body"] and "x-tollway-rows" not in client.headers
