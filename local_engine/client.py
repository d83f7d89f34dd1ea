"""The asyncio side of the engine's socket: submit, stream, cancel, stats. Standard library and msgspec only; belongs to one event loop.

Connects when first needed and again after a loss, with backoff. When the connection ends, every open request fails at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar, cast

import msgspec

from local_engine.errors import KINDS, EngineError, Lost, Overrun, Unavailable, Unreachable
from local_engine.wire import (
    VERSION,
    Batch,
    Cancel,
    Embed,
    FrameReader,
    Hello,
    Params,
    Piece,
    Ping,
    Pong,
    Refused,
    Stats,
    StatsQuery,
    Submit,
    ToEngine,
    Vectors,
    Welcome,
    decode_to_client,
    frame,
)

_Answer = TypeVar("_Answer")
CONNECT_S = 5.0  # for the connection and its welcome
ANSWER_S = 5.0  # for stats and pings
BACKOFF_S = 0.05  # doubled by every failed connection
BACKOFF_CAP_S = 1.0
MAX_BUFFER_BYTES = 256 * 1024  # of one request's unread pieces: some 8,000 tokens behind
PIECE_BYTES = 32  # what a piece counts beside its text


class _Open:
    """One open request: pieces that were not read yet, or the error that ended it. choices: of its answers those that go on."""

    __slots__ = ("buffered", "choices", "error", "pieces", "waiter")

    def __init__(self, choices: int = 1) -> None:
        self.choices = choices
        self.pieces: list[Piece] = []
        self.buffered = 0
        self.error: EngineError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        return self.choices <= 0 or self.error is not None

    def push(self, piece: Piece) -> bool:
        """Take a piece in; False when the reader is too far behind."""
        self.pieces.append(piece)
        self.buffered += len(piece.text) + PIECE_BYTES * (1 + sum(1 + len(one.top) for one in piece.logged))
        self.choices -= piece.reason is not None
        self._wake()
        return self.buffered <= MAX_BUFFER_BYTES

    def fail(self, error: EngineError) -> None:
        if not self.done:
            self.error = error
            self._wake()

    async def next(self) -> list[Piece]:
        """Everything that has come since the last call, as one piece of each choice."""
        while not self.pieces:
            if self.error is not None:
                raise self.error
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        pieces, self.pieces, self.buffered = self.pieces, [], 0
        if len(pieces) == 1:
            return pieces
        choices: dict[int, list[Piece]] = {}
        for piece in pieces:
            choices.setdefault(piece.choice, []).append(piece)
        return [_joined(some) for some in choices.values()]

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def _joined(pieces: list[Piece]) -> Piece:
    """Pieces of one choice as one."""
    last = pieces[-1]
    text = "".join(piece.text for piece in pieces)
    ids = [token for piece in pieces for token in piece.ids]
    logged = [one for piece in pieces for one in piece.logged]
    return Piece(last.id, text, ids, last.prompt_tokens, last.output_tokens, last.reason, last.choice, logged)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._next_id = 0
        self._open: dict[int, _Open] = {}
        self._vectors: dict[int, asyncio.Future[Vectors]] = {}
        self._stats: list[asyncio.Future[Stats]] = []
        self._pings: dict[int, asyncio.Future[None]] = {}
        self._transport: asyncio.Transport | None = None
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.state = Welcome()
        self.alive = False

    # ---- called by the client
    def send(self, message: ToEngine) -> None:
        if self._transport is None or not self.alive:
            raise Lost("the connection to the engine is gone", retry_after_s=BACKOFF_CAP_S)
        self._transport.write(frame(message))

    def begin(self, prompt: str | list[int], params: Params, salt: str, priority: int, breaks: Sequence[int] = ()) -> tuple[int, _Open]:
        self._next_id += 1
        text, ids = (prompt, None) if isinstance(prompt, str) else (None, prompt)
        self.send(Submit(id=self._next_id, text=text, ids=ids, params=params, salt=salt, priority=priority, breaks=list(breaks)))
        self._open[self._next_id] = entry = _Open(max(1, params.n))
        return self._next_id, entry

    def end(self, key: int, entry: _Open) -> None:
        """The reader is done with it; what still runs is cancelled."""
        self._open.pop(key, None)
        if not entry.done and self.alive:
            self.send(Cancel(key))

    def ask_vectors(self, inputs: list[str | list[int]]) -> tuple[int, asyncio.Future[Vectors]]:
        self._next_id += 1
        future: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()
        self.send(Embed(self._next_id, inputs))
        self._vectors[self._next_id] = future
        return self._next_id, future

    def forget_vectors(self, key: int) -> None:
        """Nobody waits for them any more."""
        if self._vectors.pop(key, None) is not None and self.alive:
            self.send(Cancel(key))

    def ask_stats(self) -> asyncio.Future[Stats]:
        future: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self.send(StatsQuery())
        self._stats.append(future)
        return future

    def ask_ping(self) -> asyncio.Future[None]:
        self._next_id += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send(Ping(self._next_id))
        self._pings[self._next_id] = future
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # ---- called by the loop
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.alive = True
        self.send(Hello())

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._reader.feed(data):
                self._take(decode_to_client(body))
        except (msgspec.MsgspecError, EngineError) as error:
            self._fail_all(Lost(f"the engine sent what we cannot read: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_all(Lost("the engine ended or its connection broke", retry_after_s=BACKOFF_CAP_S))

    def _take(self, message: object) -> None:
        match message:
            case Batch(pieces):
                self._take_pieces(pieces)
            case Vectors():
                _answer(self._vectors.pop(message.id, None), message)
            case Refused():
                kind = KINDS.get(message.kind, EngineError)
                error = kind(message.message, retry_after_s=message.retry_after_s, param=message.param)
                entry, vectors = self._open.pop(message.id, None), self._vectors.pop(message.id, None)
                if entry is not None:
                    entry.fail(error)
                if vectors is not None and not vectors.done():
                    vectors.set_exception(error)
            case Welcome():
                self.state = message
                if not self.welcome.done():
                    self.welcome.set_result(message)
            case Stats():
                _answer(self._stats.pop(0), message)
            case Pong(n):
                _answer(self._pings.pop(n), None)

    def _take_pieces(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            entry = self._open.get(piece.id)
            if entry is not None and not entry.push(piece):
                self.end(piece.id, entry)
                entry.fail(Overrun(f"the reader is over {MAX_BUFFER_BYTES} bytes behind the engine"))

    def _fail_all(self, error: EngineError) -> None:
        self.alive = False
        for entry in self._open.values():
            entry.fail(error)
        self._open.clear()
        waiting: list[asyncio.Future[Vectors] | asyncio.Future[Stats] | asyncio.Future[None] | asyncio.Future[Welcome]] = [
            *self._vectors.values(),
            *self._stats,
            *self._pings.values(),
            self.welcome,
        ]
        self._vectors.clear()
        self._stats.clear()
        self._pings.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # read: nobody may be waiting for it


class EngineClient:
    """The engine behind `path`. Not shared between loops or processes: each makes its own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0  # loop time

    async def submit(
        self, prompt: str | list[int], params: Params, salt: str = "", priority: int = 0, breaks: Sequence[int] = ()
    ) -> AsyncGenerator[Piece, None]:
        """Pieces of one answer or of `params.n` choices, the last of each with a `reason`. Closing the iterator cancels the request. A
        lower priority number goes first. breaks: offsets of a text that no control token may span.

        Raises EngineError: Unreachable before anything was sent, Lost when the engine ends, BadRequest for what is too long for one
        message, else what the engine refused it for.
        """
        link = await self._connected()
        key, entry = link.begin(prompt, params, salt, priority, breaks)
        left = max(1, params.n)
        try:
            while left > 0:
                for piece in await entry.next():
                    left -= piece.reason is not None
                    yield piece
        finally:
            link.end(key, entry)

    async def embed(self, inputs: list[str | list[int]]) -> Vectors:
        """The vectors of all inputs at once. Raises EngineError as `submit` does; cancelling the call frees the engine of it."""
        link = await self._connected()
        key, future = link.ask_vectors(inputs)
        try:
            return await future
        finally:
            link.forget_vectors(key)

    async def stats(self) -> Stats:
        """The engine's figures of this moment; `heartbeat_age_s` grows while a step hangs."""
        link = await self._connected()
        return await _within(link.ask_stats(), "stats")

    async def ping(self) -> None:
        link = await self._connected()
        await _within(link.ask_ping(), "a ping")

    async def state(self) -> Welcome:
        """What the engine last said of itself: its state, model and context length."""
        return (await self._connected()).state

    async def close(self) -> None:
        """Close the connection; what is open is cancelled by the engine."""
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _connected(self) -> _Link:
        if self._link is not None and self._link.alive:
            return self._link
        async with self._connecting:
            if self._link is None or not self._link.alive:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> _Link:
        loop = asyncio.get_running_loop()
        wait_s = self._not_before - loop.time()
        if wait_s > 0:
            raise Unreachable(f"no engine behind {self.path}", retry_after_s=wait_s)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, link = await loop.create_unix_connection(_Link, self.path)
                try:
                    welcome = await link.welcome
                except BaseException:
                    link.close()
                    raise
        except (OSError, TimeoutError, Lost) as error:
            backoff = min(BACKOFF_S * 2**self._failures, BACKOFF_CAP_S)
            self._failures = min(self._failures + 1, 10)
            self._not_before = loop.time() + backoff
            raise Unreachable(f"no engine behind {self.path}: {error or 'no answer'}", retry_after_s=backoff) from None
        self._failures = 0
        if welcome.version != VERSION:
            link.close()
            raise Unavailable(f"the engine speaks protocol {welcome.version}, this program {VERSION}: restart both")
        return link


async def _within(future: asyncio.Future[_Answer], what: str) -> _Answer:
    try:
        return await asyncio.wait_for(future, ANSWER_S)
    except TimeoutError:
        raise Unavailable(f"the engine did not answer {what} within {ANSWER_S:g} s", retry_after_s=BACKOFF_CAP_S) from None


def _answer(future: asyncio.Future[_Answer] | None, value: _Answer) -> None:
    if future is not None and not future.done():
        future.set_result(value)
