"""Content in blocks, one after another: each begins, grows by pieces and is over. How several languages stream an answer, both ways.

What a block and a piece look like comes from the dialect; the order of steps, the counting of blocks and calls are here. Knows no
language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from providers.dialects.rawjson import decode_any, encode_json, says_nothing
from providers.dialects.sink import Sink
from providers.types import Event, Finished, Frame, Request, ToolCallDelta

Step = tuple[str, int, dict[str, Any]]  # start | delta | stop, the block's index, the block or the delta


# ---- to a client --------------------------------------------------------------------------------------------------------------------
class Blocks(Sink):
    """Events to the steps of an answer's blocks, which whole and streamed answers are both made of. Of several choices the first.

    ended: why, None until it is told.
    """

    __slots__ = ("_at", "_calls", "_filled", "_open", "ended")

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, answer_id)
        self.ended: Finished | None = None
        self._at = -1  # index of the newest block
        self._open = ""  # its kind, empty when it is over
        self._calls: dict[int, int] = {}  # call -> its block
        self._filled: set[int] = set()  # calls whose arguments have begun

    def empty(self, kind: str) -> dict[str, Any]:
        """What a block of a kind begins with."""
        raise NotImplementedError

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        """What the block of a call begins with."""
        raise NotImplementedError

    def argument(self, piece: str) -> dict[str, Any]:
        """A piece of a call's arguments."""
        raise NotImplementedError

    def add(self, block: dict[str, Any], delta: dict[str, Any]) -> None:
        """One piece into its block, for a whole answer."""
        raise NotImplementedError

    def collected(self, frames: Sequence[Frame]) -> list[dict[str, Any]]:
        """All blocks of an answer, put together."""
        steps: list[Step] = []
        for frame in frames:
            for event in frame.events:
                self.take(event, steps)
        content: list[dict[str, Any]] = []
        for kind, index, value in steps:
            if kind == "start":
                content.append(dict(value))
            elif kind == "delta":
                self.add(content[index], value)
        return content

    def take(self, event: Event, out: list[Any]) -> None:
        if not getattr(event, "choice", 0):
            super().take(event, out)

    def close(self, out: list[Step]) -> None:
        if self._open:
            self._open = ""
            out.append(("stop", self._at, {}))

    def start(self, kind: str, block: dict[str, Any], out: list[Step]) -> None:
        self.close(out)
        self._at += 1
        self._open = kind
        out.append(("start", self._at, block))

    def piece(self, kind: str, delta: dict[str, Any], out: list[Step]) -> None:
        """A piece of the open block of this kind, which begins where another one is open."""
        if self._open != kind:
            self.start(kind, self.empty(kind), out)
        out.append(("delta", self._at, delta))

    def whole(self, block: dict[str, Any], out: list[Step]) -> None:
        self.start("whole", block, out)
        self.close(out)

    def call(self, event: ToolCallDelta, out: list[Step]) -> None:
        if event.index not in self._calls:
            self.start("call", self.new_call(event), out)
            self._calls[event.index] = self._at
        if event.index in self._filled or not says_nothing(event.arguments):
            self._filled.add(event.index)
            out.append(("delta", self._calls[event.index], self.argument(event.arguments)))

    def finish(self, event: Finished, out: list[Step]) -> None:
        self.ended = self.ended or event


# ---- from a backend -----------------------------------------------------------------------------------------------------------------
class Open:
    """A block that has begun. call: our index of a tool call, None for other kinds. pieces: of its input, where it is no call of ours."""

    __slots__ = ("call", "filled", "kind", "pieces", "raw")

    def __init__(self, kind: str, raw: bytes) -> None:
        self.kind = kind
        self.raw = raw
        self.call: int | None = None
        self.filled = False
        self.pieces: list[str] = []

    def whole(self, member: str) -> str:
        """JSON of the block with its pieces put together as `member`; as it began where they are no JSON."""
        try:
            given = decode_any("".join(self.pieces)) if self.pieces else None
        except msgspec.DecodeError:
            given = None
        return (self.raw if given is None else encode_json({**decode_any(self.raw), member: given})).decode()


class OpenBlocks:
    """The blocks of one answer from its backend, by their index there."""

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._by_index: dict[int, Open] = {}
        self._calls = 0

    def begin(self, index: int, kind: str, raw: bytes) -> Open:
        block = self._by_index[index] = Open(kind, raw)
        return block

    def call(self, block: Open, call_id: str, name: str, given: bytes, events: list[Event]) -> None:
        """A call begins. given: its arguments where they stand there already."""
        block.call, block.filled = self._calls, given not in (b"", b"null", b"{}")
        self._calls += 1
        events.append(ToolCallDelta(block.call, given.decode() if block.filled else "", call_id, name))

    def argument(self, index: int, piece: str, events: list[Event]) -> None:
        block = self._by_index.get(index)
        if block is None or not piece:
            return
        if block.call is None:
            block.pieces.append(piece)
        else:
            block.filled = block.filled or bool(piece.strip())
            events.append(ToolCallDelta(block.call, piece))

    def end(self, index: int, events: list[Event]) -> Open | None:
        """A block is over: a call without arguments has empty ones. None for one that never began."""
        block = self._by_index.pop(index, None)
        if block is not None and block.call is not None and not block.filled:
            events.append(ToolCallDelta(block.call, "{}"))
        return block
