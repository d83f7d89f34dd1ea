"""The wrapper of every POST route that infers: limits, key, body, decode; then the pipeline; then JSON or an event stream.

A Litestar @asgi handler gets no dependencies, all methods and no cancellation, so this file does those once: 405 with Allow, errors in
the surface's shape, and a watch on `receive()` that cancels the handler's task when the client leaves. Decides nothing about money or
backends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any, cast

from litestar.types import HTTPScope, Receive, Scope, Send

from gateway import errors, limiter
from gateway.api.limits import Limits
from gateway.auth import Keyring, Principal
from gateway.errors import GatewayError
from gateway.exchange import Exchange
from gateway.labels import HEADER as LABELS
from gateway.money.pricing import usd
from gateway.pipeline import Pipeline
from gateway.telemetry import Telemetry
from providers.dialects import DecodeError, Dialect
from providers.errors import ProviderError
from providers.types import Failed, Frame

Headers = dict[bytes, bytes]
JSON = b"application/json"
TOO_SLOW = "the body did not arrive in time"  # why a timer cancelled the reading
CARRIED_HEADER_BYTES = 1024  # of one header that goes on to a backend
DROPPED_CHARACTERS = 1024  # of the header that names fields which were left out
EVENT_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


class ClientLeft(Exception):
    """The client went away while its body was being read."""


class Watch:
    """Cancels the handler's task when the client leaves: a future with a callback, no task of its own (2 microseconds)."""

    __slots__ = ("exchange", "future")

    def __init__(self, receive: Receive, exchange: Exchange) -> None:
        self.exchange = exchange
        self.future = asyncio.ensure_future(cast(Awaitable[Any], receive()))
        self.future.add_done_callback(self._left)

    def _left(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            self.exchange.cancel("client")

    def close(self) -> None:
        self.future.remove_done_callback(self._left)
        self.future.cancel()


class Endpoint:
    """One inferring route of one surface."""

    def __init__(self, dialect: Dialect, pipeline: Pipeline, keyring: Keyring, telemetry: Telemetry, limits: Limits) -> None:
        self.dialect = dialect
        self.pipeline = pipeline
        self.keyring = keyring
        self.telemetry = telemetry
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, self.dialect)
        try:
            headers = read_headers(list(cast(HTTPScope, scope)["headers"]))
            principal, body = await self._received(cast(HTTPScope, scope), headers, receive)
            x = self._admitted(principal, body, headers)
        except GatewayError as error:
            self.telemetry.refusal(error.code or error.type)
            await reply.refuse(error)
        except ClientLeft:
            return
        else:
            await self._serve(x, headers, receive, reply)

    async def ask(self, principal: Principal, body: bytes, headers: Headers, receive: Receive, send: Send) -> None:
        """The same for somebody who is known already, and whose body is there: the console's playground. Budgets, limits, ledger and all
        else are those of the key. headers: of the request that it stands for, by lower-case name."""
        reply = Reply(send, self.dialect)
        try:
            self._room()
            _may_infer(principal)
            x = self._admitted(principal, body, headers)
        except GatewayError as error:
            self.telemetry.refusal(error.code or error.type)
            await reply.refuse(error)
        else:
            await self._serve(x, headers, receive, reply)

    def _admitted(self, principal: Principal, body: bytes, headers: Headers) -> Exchange:
        """Decode and admit. Raises GatewayError."""
        try:
            request = self.dialect.decode_request(body)
            if self.dialect.headers:
                request.headers = carried(headers, self.dialect.headers)
            return self.pipeline.admit(principal, request, headers)
        except DecodeError as error:
            raise errors.InvalidRequest(error.message, code=error.code, param=error.param) from None

    async def _received(self, scope: HTTPScope, headers: Headers, receive: Receive) -> tuple[Principal, bytes]:
        """Who asks, and the whole body. Raises GatewayError or ClientLeft."""
        self._check(scope, headers)
        principal = await self._authenticate(headers)
        return principal, await read_body(receive, self.limits)

    def _check(self, scope: HTTPScope, headers: Headers) -> None:
        if scope["method"] != "POST":
            raise errors.MethodNotAllowed(f"{scope['path']} takes POST only.", headers=(("allow", "POST"),))
        self._room()
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding not in (b"identity", b""):
            raise errors.UnsupportedMedia("Send the body without content-encoding.", param="content-encoding")
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.limits.max_body_bytes:
            raise too_large(self.limits.max_body_bytes)

    def _room(self) -> None:
        """Whether another request is taken now."""
        if self.limits.draining or len(self.pipeline.in_flight) >= self.limits.max_in_flight:
            raise errors.NotReady(
                "This gateway is draining or full; try again.", code="draining" if self.limits.draining else "overloaded", retry_after_s=1
            )

    async def _authenticate(self, headers: Headers) -> Principal:
        principal = self.keyring.find(headers)
        if principal is None:
            principal = await self.keyring.find_slow(headers)
        _may_infer(principal)
        return principal

    async def _serve(self, x: Exchange, headers: Headers, receive: Receive, reply: Reply) -> None:
        """Relay and settle. Whatever happens, the exchange is settled once, here or by the flight it leads."""
        x.task = asyncio.current_task()
        reply.exchange = x
        watch = Watch(receive, x)
        frames = self.pipeline.frames(x, headers)
        outcome, error = "cancelled", None
        try:
            first = await anext(frames)
            if x.request.stream:
                await self._stream(x, first, frames, reply)
            else:
                await self._whole(x, first, frames, reply)
            outcome = "completed"
        except GatewayError as told:
            outcome, error = ("refused" if refused(x, told) else "failed"), told
        except asyncio.CancelledError:
            outcome, error = self._cancelled(x)
        except Exception as fault:  # noqa: BLE001 - the last line of a request: logged with its trace, told as our own fault
            outcome, error = "failed", errors.Internal("An internal error; the gateway's log has it under this request id.")
            self.telemetry.fault(str(x.id), fault)
        finally:
            watch.close()
            try:
                cost = None if self.pipeline.leave(x, error) else self.pipeline.settle(x, outcome, error)
                if error is not None and x.cancel_reason not in ("client", "stalled"):
                    await reply.fail(error, cost)
            finally:
                x.keep_alive = None
                await frames.aclose()
                if x.sharing is not None:
                    x.sharing.leave()
                if not x.left:
                    self.pipeline.in_flight.discard(x)

    def _cancelled(self, x: Exchange) -> tuple[str, GatewayError | None]:
        """Why the task was cancelled decides what is said: client and stalled nothing, drain and deadline an error."""
        task = x.task
        if not x.cancel_reason:
            raise asyncio.CancelledError from None  # not ours: the server is tearing down
        if task is not None:
            task.uncancel()
        if x.cancel_reason == "drain":
            return "failed", errors.NotReady("This gateway is shutting down; send the request again.", code="draining", retry_after_s=1)
        if x.cancel_reason == "deadline":
            return "failed", errors.DeadlinePassed("The request passed its deadline.")
        return "cancelled", None

    async def _whole(self, x: Exchange, first: Frame, frames: AsyncGenerator[Frame, None], reply: Reply) -> None:
        collected = [first]
        async for frame in frames:
            collected.append(frame)
        fault = failed(collected[-1])
        if fault is not None:
            raise errors.UpstreamFailed(fault.message, code=fault.code, status=fault.status)
        try:
            body = self.dialect.encode_answer(collected, x.request)
        except ProviderError as unsayable:
            raise errors.UpstreamFailed(unsayable.message, code=unsayable.code, status=unsayable.status) from None
        cost = self.pipeline.settle(x, "completed")
        await reply.whole(body, cost)

    async def _stream(self, x: Exchange, first: Frame, frames: AsyncGenerator[Frame, None], reply: Reply) -> None:
        encoder = self.dialect.stream_encoder(x.request, str(x.id))
        await reply.begin()
        x.keep_alive = reply.keep_alive
        fault = failed(first)
        data = encoder.encode(first)
        if data:
            await reply.piece(data)
        if fault is None:
            async for frame in frames:
                fault = failed(frame)
                data = encoder.encode(frame)
                if data:
                    await reply.piece(data)
                if fault is not None:
                    break
        if fault is not None:
            raise errors.UpstreamFailed(fault.message, code=fault.code, status=fault.status)
        cost = self.pipeline.settle(x, "completed")
        await reply.end(encoder.end(usd(cost)))


class Reply:
    """What has been sent of one answer, and the ways to go on."""

    __slots__ = ("_send", "dialect", "exchange", "started")

    def __init__(self, send: Send, dialect: Dialect) -> None:
        self._send = send
        self.dialect = dialect
        self.exchange: Exchange | None = None
        self.started = False

    def _headers(self, cost: int | None, *, with_cost: bool) -> list[tuple[bytes, bytes]]:
        x = self.exchange
        if x is None:
            return []
        found = [(b"x-tollway-request-id", str(x.id).encode())]
        backend = x.backend
        if backend is not None:
            found.append((b"x-tollway-backend", backend.name.encode()))
        if x.cache_status:
            found.append((b"x-tollway-cache", b"hit" if x.cache_status == "shared" else x.cache_status.encode()))
        attempts = len(x.ends) + len(x.running)
        found.append((b"x-tollway-attempts", str(attempts).encode()))
        if x.request.dropped:
            found.append((b"x-tollway-dropped", told(x.request.dropped)))
        lowered = x.request.clamped if x.clamped is None else x.clamped
        if lowered is not None:
            found.append((b"x-tollway-clamped", str(lowered).encode()))
        if x.ticket is not None:
            found += limiter.headers(x.ticket)
        if with_cost:
            found.append((b"x-tollway-cost-usd", usd(cost).encode()))
        return found

    async def _put(self, body: bytes, *, more: bool) -> None:
        x = self.exchange
        if x is None:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
            return
        x.sending_since = time.monotonic()
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        x.last_sent = time.monotonic()
        x.sending_since = 0.0

    async def _json(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        head = [(b"content-type", JSON), (b"content-length", str(len(body)).encode()), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._put(body, more=False)

    async def whole(self, body: bytes, cost: int | None) -> None:
        await self._json(200, body, self._headers(cost, with_cost=True))

    async def begin(self) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *self._headers(None, with_cost=False)]})

    async def piece(self, data: bytes) -> None:
        await self._put(data, more=True)

    async def end(self, data: bytes) -> None:
        if self.exchange is not None:
            self.exchange.keep_alive = None
        await self._put(data, more=False)

    def keep_alive(self) -> None:
        """A sign of life into a silent stream. Never awaited: the ticker calls it, and it cuts a reader that does not read."""
        asyncio.ensure_future(self._send({"type": "http.response.body", "body": self.dialect.keep_alive, "more_body": True}))  # noqa: RUF006

    async def refuse(self, error: GatewayError) -> None:
        """An error before the request was accepted."""
        await self._json(error.status, self._body(error), error_headers(error))

    async def fail(self, error: GatewayError, cost: int | None) -> None:
        """An error of an accepted request: its status before the first byte, an in-band event after it."""
        if not self.started:
            await self._json(error.status, self._body(error), error_headers(error) + self._headers(cost, with_cost=bool(cost)))
            return
        data = self.dialect.stream_error(error.message, error.type, error.code, error.param)
        await self.end(data)

    def _body(self, error: GatewayError) -> bytes:
        return self.dialect.error_body(error.status, error.message, error.type, error.code, error.param)


def _may_infer(principal: Principal) -> None:
    if "inference" not in principal.scopes:
        raise errors.Forbidden("This key may not call models; its scopes are: " + " ".join(sorted(principal.scopes)) + ".")


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """By name; of a name that stands twice the last counts, but of labels all: none may be lost."""
    found = dict(raw)
    if LABELS in found:
        found[LABELS] = b",".join([value for name, value in raw if name == LABELS])
    return found


def carried(headers: Headers, names: tuple[str, ...]) -> dict[str, str]:
    """Those of a client's headers that its language carries to a backend of the same language, each printable and bounded."""
    found = {}
    for name in names:
        value = headers.get(name.encode(), b"").decode("latin-1")
        if value:
            if not (value.isascii() and value.isprintable() and len(value) <= CARRIED_HEADER_BYTES):
                raise errors.InvalidRequest(f"The header {name} must be at most {CARRIED_HEADER_BYTES} printable characters.", param=name)
            found[name] = value
    return found


def told(names: tuple[str, ...]) -> bytes:
    """A header's value of names that a client may have chosen: printable ASCII, and bounded."""
    text = ", ".join(name if name.isascii() and name.isprintable() else ascii(name)[1:-1] for name in names)
    return (text if len(text) <= DROPPED_CHARACTERS else text[: DROPPED_CHARACTERS - 3] + "...").encode()


async def read_body(receive: Receive, limits: Limits) -> bytes:
    """The whole body, bounded in size and time while it is read. A timer, no timeout context: it costs under a microsecond."""
    task = asyncio.current_task()
    assert task is not None
    late = asyncio.get_running_loop().call_later(limits.body_s, task.cancel, TOO_SLOW)
    try:
        message = cast(dict[str, Any], await receive())
        body: bytes = message.get("body", b"")
        pieces, size = [body], len(body)
        while message["type"] != "http.disconnect" and size <= limits.max_body_bytes and message.get("more_body"):
            message = cast(dict[str, Any], await receive())
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
    except asyncio.CancelledError as error:
        if error.args != (TOO_SLOW,):
            raise
        task.uncancel()
        raise errors.InvalidRequest(
            f"The body did not arrive within {limits.body_s:g} s (server.body_s).", status=408, code="body_timeout"
        ) from None
    finally:
        late.cancel()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    if size > limits.max_body_bytes:
        raise too_large(limits.max_body_bytes)
    return body if len(pieces) == 1 else b"".join(pieces)


def too_large(limit: int) -> GatewayError:
    return errors.BodyTooLarge(f"The body is larger than {limit} bytes; send less, or raise server.max_body_bytes.")


def failed(frame: Frame) -> Any:
    """The ProviderError that ended a stream in this frame, or None."""
    if frame.events and type(frame.events[-1]) is Failed:
        return frame.events[-1].error
    return None


def refused(x: Exchange, error: GatewayError) -> bool:
    """Nothing was tried: a budget, a limit or the lack of a backend said no."""
    return not x.ends and not x.running and x.cache_status != "shared"


def error_headers(error: GatewayError) -> list[tuple[bytes, bytes]]:
    found = [(name.encode(), value.encode()) for name, value in error.headers]
    if error.retry_after_s is not None:
        found.append((b"retry-after", str(max(1, round(error.retry_after_s + 0.499))).encode()))
    if error.retry is not None:
        found.append((b"x-should-retry", b"true" if error.retry else b"false"))
    return found
