"""The one client that reaches backends over HTTP, and its limits: connections, connect, first-byte, idle and total time, answer size.

httpx types at the seam (`Transport.handle_async_request`), aiohttp underneath. Every foreign error becomes one of providers.errors, with
`sent` telling whether the request was written. Redirects are never followed. Knows no vendor, no dialect and no credential's meaning.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import aiohttp
import httpx
import yarl
from aiohttp.client import ClientResponse
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from httpx_aiohttp import AiohttpTransport
from multidict import CIMultiDict

from providers.errors import BadAnswer, Cut, ProviderError, TimedOut, Unreachable
from providers.types import Deadline

WRITE_BYTES = 256 * 1024  # a larger body is written in pieces, so that one upload does not hold the loop
READ_BYTES = 64 * 1024  # most bytes one chunk brings
MAX_HEADER_BYTES = 32 * 1024  # of one header line
LINGER_S = 1.0  # for the end of framing after an answer's own end
CLOCK_S = 0.001  # a timer may fire this much early


class Limits(Protocol):
    """Most connections at once (a further call waits for its connect limit), most bytes of one answer, seconds an idle one is kept."""

    @property
    def max_connections(self) -> int: ...
    @property
    def max_answer_bytes(self) -> int: ...
    @property
    def keepalive_s(self) -> float: ...


class Endpoint:
    """Method, address and headers of one kind of call, built once from configuration: nothing of a client's is ever copied."""

    __slots__ = ("headers", "method", "prepared", "url")

    def __init__(self, method: str, url: str, headers: Mapping[str, str]) -> None:
        self.method = method
        self.url = httpx.URL(url)
        self.headers = httpx.Headers({"user-agent": "tollway", "accept-encoding": "identity", **headers})
        # aiohttp's forms of the two: converting them costs 15 microseconds a call
        self.prepared = (yarl.URL(str(self.url)), CIMultiDict(self.headers.items()))


class Upstream:
    """One per worker. Make it anywhere; `open` and `close` belong to the loop that serves."""

    def __init__(self, limits: Limits) -> None:
        self._transport = Transport(limits.max_connections, limits.keepalive_s)
        self._max_answer_bytes = limits.max_answer_bytes

    async def open(self, endpoint: Endpoint, body: bytes, deadline: Deadline) -> Answer:
        """Write the request and wait for status and headers. The caller closes the answer.

        Raises Unreachable (nothing was written), TimedOut, Cut or BadAnswer. Any status is an answer, 3xx too.
        """
        request = httpx.Request(endpoint.method, endpoint.url, headers=endpoint.headers, stream=httpx.ByteStream(body))
        connect_s = min(deadline.connect_s, deadline.first_byte_s, deadline.total_s)
        request.extensions["timeout"] = {"connect": connect_s}
        request.extensions["prepared"] = endpoint.prepared
        watch = Watch(deadline, self._transport.connecting)
        response = None
        watch.enter()
        try:
            response = await self._transport.handle_async_request(request)
        except asyncio.CancelledError:
            passed = watch.verdict()
            if passed is None:
                raise
            raise passed from None
        finally:
            watch.leave()
            if response is None:
                watch.end()
        return Answer(response, watch, self._max_answer_bytes)

    async def close(self) -> None:
        """Close every connection, open answers included."""
        await self._transport.aclose()


class Answer:
    """An answer whose body is still to come. Take it by `read`, or piece by piece by `receive`; then, or before, `close` it."""

    __slots__ = ("_inflater", "_left", "_max_bytes", "_response", "_source", "_watch", "headers", "status")

    def __init__(self, response: httpx.Response, watch: Watch, max_bytes: int) -> None:
        self.status = response.status_code
        self.headers: httpx.Headers = response.headers  # get("lower-case-name")
        self._response = response
        self._source = aiter(self._response.stream)  # type: ignore[arg-type]  # an AsyncByteStream, by Transport's contract
        self._inflater = _inflater(self.headers)
        self._watch = watch
        self._max_bytes = self._left = max_bytes

    async def read(self) -> bytes:
        """The whole body, then closed. Raises TimedOut, Cut (it ended early) or BadAnswer (too large, unknown encoding)."""
        parts = []
        try:
            while part := await self.receive():
                parts.append(part)
        finally:
            await self.close()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def receive(self) -> bytes:
        """What the next read brought, b"" at the end. Raises as `read`; does not close: the caller's `finally` does."""
        watch = self._watch
        while True:
            watch.enter()
            try:
                chunk = await self._source.__anext__()
            except StopAsyncIteration:
                return b""
            except asyncio.CancelledError:
                passed = watch.verdict()
                if passed is None:
                    raise
                raise passed from None
            finally:
                watch.leave()
            watch.flow()
            if self._inflater is not None:
                chunk = self._inflater.feed(chunk, self._left + 1)
            self._left -= len(chunk)
            if self._left < 0:
                raise BadAnswer(f"the answer is larger than {self._max_bytes} bytes (upstream.max_answer_bytes)")
            if chunk:
                return chunk

    def finish(self) -> None:
        """The answer's end was read; only the end of framing may be missing. The connection is kept if that comes within LINGER_S."""
        self._watch.end()
        body = self._response.stream
        if isinstance(body, Body):
            body.linger()

    async def close(self) -> None:
        """Give a finished connection back to the pool, cut one that is still sending: its socket closes at once. Harmless when repeated."""
        self._watch.end()
        await self._response.stream.aclose()  # type: ignore[union-attr]


class Watch:
    """The time limits of one call on one timer, moved lazily: a chunk costs two attribute writes, no timer.

    When a limit passes, the task that waits inside enter/leave is cancelled; `verdict` turns that into TimedOut.
    """

    __slots__ = ("_cancelled", "_connecting", "_deadline", "_flowing", "_handle", "_limit_at", "_loop", "_passed", "_task", "_total_at")

    def __init__(self, deadline: Deadline, connecting: set[asyncio.Task[Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._connecting = connecting
        now = self._loop.time()
        self._total_at = now + deadline.total_s
        self._limit_at = now + deadline.first_byte_s
        self._flowing = False
        self._passed: ProviderError | None = None
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._handle = self._loop.call_at(min(self._limit_at, self._total_at), self._check)

    def enter(self) -> None:
        """The current task is about to wait for the backend. Time in which nobody waits is not the backend's."""
        if self._passed is not None:
            raise self._passed
        self._task = asyncio.current_task()
        if self._flowing:
            self._limit_at = self._loop.time() + self._deadline.idle_s

    def leave(self) -> None:
        task, self._task = self._task, None
        if self._cancelled and task is not None:  # the cancel was ours and `verdict` did not take it back
            self._cancelled = False
            task.uncancel()

    def flow(self) -> None:
        """The first byte of the body has come: from now on the idle limit counts."""
        if not self._flowing:
            self._flowing = True
            if self._deadline.idle_s < self._deadline.first_byte_s:
                self._handle.cancel()
                self._handle = self._loop.call_at(min(self._loop.time() + self._deadline.idle_s, self._total_at), self._check)

    def verdict(self) -> ProviderError | None:
        """After a CancelledError between enter and leave: the limit that passed, None when somebody else cancelled."""
        if not self._cancelled or self._task is None:
            return None
        self._cancelled = False
        return self._passed if self._task.uncancel() == 0 else None

    def end(self) -> None:
        self._handle.cancel()

    def _check(self) -> None:
        now = self._loop.time() + CLOCK_S
        if now < self._total_at and (now < self._limit_at or (self._flowing and self._task is None)):
            again_at = self._limit_at if now < self._limit_at else now + self._deadline.idle_s
            self._handle = self._loop.call_at(min(again_at, self._total_at), self._check)
            return
        self._passed = self._say(now >= self._total_at)
        if self._task is not None and self._task.cancelling() == 0:
            self._cancelled = True
            self._task.cancel()

    def _say(self, total: bool) -> ProviderError:
        if self._task in self._connecting:
            return Unreachable("the backend could not be connected to in time")
        if total:
            return TimedOut(f"the backend did not finish within {self._deadline.total_s:g} s")
        if self._flowing:
            return TimedOut(f"the backend fell silent for {self._deadline.idle_s:g} s in the middle of its answer")
        return TimedOut(f"the backend sent nothing within {self._deadline.first_byte_s:g} s")


class Transport(AiohttpTransport):
    """httpx-aiohttp's transport with a leaner hot path, our errors, and a close that cuts instead of waiting for an unfinished upload.

    connecting: tasks that have no connection yet, so that whoever ends them knows that nothing was written.
    """

    def __init__(self, max_connections: int, keepalive_s: float) -> None:
        super().__init__(limits=httpx.Limits(max_connections=max_connections, keepalive_expiry=keepalive_s))
        self.connecting: set[asyncio.Task[Any]] = set()
        self._session: aiohttp.ClientSession | None = None

    def get_client(self) -> aiohttp.ClientSession:
        """The session, made on first use: it belongs to the loop that serves."""
        if self._session is None:
            connector = Connector(self.connecting, self.limits, self.ssl_context)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=READ_BYTES,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )
        return self._session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises ProviderError, as `Upstream.open` says."""
        session = self._session or self.get_client()
        body = request.read()
        url, headers = request.extensions["prepared"]
        data = body or None
        if len(body) > WRITE_BYTES:
            headers = CIMultiDict(headers)
            headers["content-length"] = str(len(body))
            data = _pieces(body)  # type: ignore[assignment]
        connect_s = request.extensions["timeout"]["connect"]
        try:
            response = await session.request(
                request.method,
                url,
                headers=headers,
                data=data,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(connect=connect_s, sock_connect=connect_s),
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _told(error) from error
        told = httpx.Response(response.status, headers=response.raw_headers, stream=Body(response))
        told.headers.encoding = "latin-1"  # HTTP's own; without it httpx tries three on every header of every answer
        return told

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool that says which tasks are still waiting for a connection."""

    def __init__(self, connecting: set[asyncio.Task[Any]], limits: httpx.Limits, context: Any) -> None:
        assert limits.max_connections is not None
        super().__init__(limit=limits.max_connections, keepalive_timeout=limits.keepalive_expiry, ssl=context)
        self._connecting_tasks = connecting

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        task = asyncio.current_task()
        assert task is not None
        self._connecting_tasks.add(task)
        try:
            return await super().connect(req, traces, timeout)
        finally:
            self._connecting_tasks.discard(task)


class Body(httpx.AsyncByteStream, AsyncIterator[bytes]):
    """The bytes of an answer as they come."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self._lingering = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _told(error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    def linger(self) -> None:
        """Let the pool take the connection when its last bytes come, and cut it when they do not."""
        if not self._response.content.is_eof() and not self._lingering:
            self._lingering = True
            asyncio.get_running_loop().call_later(LINGER_S, self._response.close)

    async def aclose(self) -> None:
        if self._response.content.is_eof():
            self._response.release()
        elif not self._lingering:
            self._response.close()


class _Inflater:
    """Undoes gzip or deflate that a backend applied although we asked for identity."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=47)

    def feed(self, data: bytes, most: int) -> bytes:
        """At most `most` bytes: a bomb is noticed before it is unpacked."""
        try:
            return self._stream.decompress(data, most)
        except zlib.error as error:
            raise BadAnswer(f"the answer's compression is broken: {error}") from error


class _Undecodable(_Inflater):
    """An encoding that we cannot undo; said when the body is wanted, since status and headers still tell something."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    def feed(self, data: bytes, most: int) -> bytes:
        raise BadAnswer(f"the answer is encoded as {self._encoding!r}, though identity was asked for")


def _inflater(headers: httpx.Headers) -> _Inflater | None:
    """None where nothing is to be undone. An encoding we cannot undo reads as broken, at the first byte."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Inflater()
    return _Undecodable(encoding)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), WRITE_BYTES):
        yield body[start : start + WRITE_BYTES]


def _told(error: Exception) -> ProviderError:
    """aiohttp's errors by what they say about the request: not connected = nothing was sent; anything later = it may have been."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable("the backend could not be connected to in time, or every connection to backends is in use")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
        return Unreachable(f"the backend cannot be reached: {_reason(error)}")
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return BadAnswer(f"the backend's answer is not HTTP: {_words(error)}")
    if isinstance(error, TimeoutError):
        return TimedOut(f"the connection to the backend timed out: {_words(error)}")
    return Cut(f"the backend closed the connection before its answer had ended: {_words(error)}")


def _reason(error: Exception) -> str:
    """Why a connection failed, without its address: clients read this."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name is unknown"
    if isinstance(error, aiohttp.ClientSSLError):
        return "TLS failed (wrong certificate, or no TLS on that port)"
    code = getattr(error, "errno", None)
    return os.strerror(code) if code is not None and code > 0 else type(error).__name__


def _words(error: Exception) -> str:
    """What happened, without the address, which may hold a credential, and without the backend's bytes: clients read this."""
    code = getattr(error, "errno", None)
    return os.strerror(code) if code is not None and code > 0 else type(error).__name__
