"""A scripted HTTP server on a real loopback socket, with control of every byte: it plays one reply per request and writes down what it saw.

Used by every test that needs a backend. Knows HTTP/1.1 framing and, in its helpers, the shape of chat completions; checks nothing.

    async with FakeUpstream(json_reply({...}), sse_reply([...], cut=True)) as upstream:
        ...                       # first request gets the first reply, the last reply serves all further ones
        upstream.requests[0].json()["model"], upstream.requests[0].closed_at
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Received:
    """One request as it came. `closed_at` (time.monotonic) is set when the client's socket was closed before the reply had ended."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int  # connections count from 0 in order of acceptance
    at: float
    sent: int = 0  # steps of the reply that were played
    ended_at: float | None = None
    closed_at: float | None = None

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Step:
    """kind: send | wait | hang (until the client leaves) | close (FIN) | reset (RST)."""

    kind: str
    data: bytes = b""
    seconds: float = 0.0


Reply = Sequence[Step] | Callable[[Received], Sequence[Step]]


def send(data: bytes) -> Step:
    return Step("send", data)


def wait(seconds: float) -> Step:
    return Step("wait", seconds=seconds)


def hang() -> Step:
    return Step("hang")


def close() -> Step:
    return Step("close")


def reset() -> Step:
    return Step("reset")


def head(status: int = 200, headers: Mapping[str, str] | None = None, *, length: int | None = None) -> Step:
    """Status line and headers; `length` None = chunked."""
    lines = [f"HTTP/1.1 {status} X"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return send(("\r\n".join(lines) + "\r\n\r\n").encode())


def chunk(data: bytes) -> Step:
    return send(b"%x\r\n%s\r\n" % (len(data), data))


LAST_CHUNK = send(b"0\r\n\r\n")


def body_reply(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, delay_s: float = 0.0) -> list[Step]:
    """A whole answer with a content-length, after a delay."""
    steps = [wait(delay_s)] if delay_s else []
    return [*steps, head(status, headers, length=len(body)), send(body)]


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, delay_s: float = 0.0) -> list[Step]:
    return body_reply(json.dumps(value).encode(), status, {"content-type": "application/json", **(headers or {})}, delay_s=delay_s)


def sse_reply(
    events: Sequence[Any],
    *,
    first_s: float = 0.0,
    delay_s: float = 0.0,
    done: bool = True,
    end: Step | None = LAST_CHUNK,
    headers: Mapping[str, str] | None = None,
) -> list[Step]:
    """An event stream: str and bytes events go out as they are, anything else as `data: JSON`. Headers come first, at once.

    done: add `data: [DONE]`. end: how it ends; None = nothing follows, give close(), reset() or hang() to break it.
    """
    steps = [head(200, {"content-type": "text/event-stream", **(headers or {})})]
    if first_s:
        steps.append(wait(first_s))
    for n, event in enumerate(events):
        if n and delay_s:
            steps.append(wait(delay_s))
        if isinstance(event, bytes):
            steps.append(chunk(event))
        else:
            steps.append(chunk(event.encode() if isinstance(event, str) else b"data: " + json.dumps(event).encode() + b"\n\n"))
    if done:
        steps.append(chunk(b"data: [DONE]\n\n"))
    if end is not None:
        steps.append(end)
    return steps


def chat_answer(
    text: str = "Hello", *, usage: tuple[int, int] | None = (12, 3), model: str = "m-basic", finish: str = "stop"
) -> dict[str, Any]:
    """A whole chat completion; usage is (prompt, completion) tokens."""
    answer: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
    }
    if usage is not None:
        answer["usage"] = _usage(usage)
    return answer


def chat_chunks(
    tokens: Sequence[str], *, usage: tuple[int, int] | None = None, model: str = "m-basic", finish: str | None = "stop"
) -> list[dict[str, Any]]:
    """The events of a streamed chat completion: role, one per token, finish (None = left out), usage (None = left out)."""
    events = [_chunk(model, {"role": "assistant", "content": ""})]
    events += [_chunk(model, {"content": token}) for token in tokens]
    if finish is not None:
        events.append(_chunk(model, {}, finish))
    if usage is not None:
        events.append({**_chunk(model, {}), "choices": [], "usage": _usage(usage)})
    return events


def _usage(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": model, "choices": [choice]}


class FakeUpstream:
    """The server. `url` has no path; requests to any path are answered. on_connect: played on each new connection before any request."""

    def __init__(self, *replies: Reply, on_connect: Sequence[Step] = (), tls: ssl.SSLContext | None = None) -> None:
        self.replies: list[Reply] = list(replies)
        self.on_connect = on_connect
        self.tls = tls
        self.requests: list[Received] = []
        self.connections = 0
        self.port = 0
        self.publishes = True  # False: its figures are 404 and no request; a gateway asks for them whenever it likes
        self._served = 0
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def play(self, *replies: Reply) -> None:
        """Replace what is played from the next request on."""
        self.replies, self._served = list(replies), 0

    def next_reply(self, received: Received) -> Sequence[Step]:
        reply = self.replies[min(self._served, len(self.replies) - 1)] if self.replies else json_reply(chat_answer())
        self._served += 1
        return reply(received) if callable(reply) else reply

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and reset what is open; further connects are refused. start() again listens on the same port."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._open):
            await connection.stop()

    async def __aenter__(self) -> FakeUpstream:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def closed(self, n: int = 0, within_s: float = 5.0) -> float:
        """Seconds from now until the client closed the socket of request n before its reply ended; AssertionError after `within_s`."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            if len(self.requests) > n and self.requests[n].closed_at is not None:
                return time.monotonic() - began
            await asyncio.sleep(0.005)
        raise AssertionError(f"request {n} was not closed by the client within {within_s} s")

    @contextlib.contextmanager
    def threaded(self) -> Iterator[FakeUpstream]:
        """The same server on a thread with its own loop, for tests that block. It does not publish."""
        self.publishes = False
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result(5)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.stop(), loop).result(5)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            loop.close()


class _Connection(asyncio.Protocol):
    def __init__(self, server: FakeUpstream) -> None:
        self.server = server
        self.number = server.connections
        self.buffer = bytearray()
        self.more = asyncio.Event()
        self.gone = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        server.connections += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server._open.add(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server._open.discard(self)
        self.gone.set()
        self.more.set()

    async def stop(self) -> None:
        self._reset()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def _serve(self) -> None:
        if not await self._play(self.server.on_connect, None):
            return
        while True:
            received = await self._receive()
            if received is None:
                return
            if received.target.endswith("/metrics") and not self.server.publishes:
                if not await self._play(json_reply({}, 404), received):
                    return
                continue
            self.server.requests.append(received)
            if not await self._play(self.server.next_reply(received), received):
                return

    async def _receive(self) -> Received | None:
        end = await self._until(lambda: self.buffer.find(b"\r\n\r\n"))
        if end is None:
            return None
        lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        del self.buffer[: end + 4]
        method, target, _ = lines[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = (
            await self._chunked()
            if headers.get("transfer-encoding") == "chunked"
            else await self._exactly(int(headers.get("content-length", 0)))
        )
        if body is None:
            return None
        return Received(method, target, headers, body, self.number, time.monotonic())

    async def _chunked(self) -> bytes | None:
        body = b""
        while True:
            end = await self._until(lambda: self.buffer.find(b"\r\n"))
            if end is None:
                return None
            size = int(self.buffer[:end], 16)
            del self.buffer[: end + 2]
            part = await self._exactly(size + 2)
            if part is None or size == 0:
                return None if part is None else body
            body += part[:-2]

    async def _exactly(self, size: int) -> bytes | None:
        if await self._until(lambda: size if len(self.buffer) >= size else -1) is None:
            return None
        body = bytes(self.buffer[:size])
        del self.buffer[:size]
        return body

    async def _until(self, position: Callable[[], int]) -> int | None:
        while (found := position()) < 0:
            if self.gone.is_set():
                return None
            self.more.clear()
            await self.more.wait()
        return found

    async def _play(self, steps: Sequence[Step], received: Received | None) -> bool:
        """False = the connection is over."""
        for step in steps:
            if step.kind in ("wait", "hang"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.gone.wait(), step.seconds if step.kind == "wait" else 600.0)
            if self.gone.is_set():
                if received is not None:
                    received.closed_at = time.monotonic()
                return False
            if step.kind == "send":
                self.transport.write(step.data)
                await asyncio.sleep(0)  # one write per step reaches the wire as its own piece where the kernel allows
            if received is not None:
                received.sent += 1
            if step.kind in ("close", "reset"):
                if received is not None:
                    received.ended_at = time.monotonic()
                _ = self.transport.close() if step.kind == "close" else self._reset()
                return False
        if received is not None:
            received.ended_at = time.monotonic()
        return True

    def _reset(self) -> None:
        sock = self.transport.get_extra_info("socket")
        if sock is not None and not self.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def refused_url() -> str:
    """An address on loopback where nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"
