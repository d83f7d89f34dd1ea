"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from providers.dialects.anthropic_messages.answers import NAME
from providers.dialects.anthropic_messages.wire import REASONS, decode_any, encode_json, usage_to_wire
from providers.types import Event, Extra, Finished, Frame, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
Step = tuple[str, int, dict[str, Any]]  # start | delta | stop, the block's index, the block or the delta


class _Blocks:
    """Events to the steps of an answer's blocks, which whole and streamed answers are both made of. Of several choices the first."""

    def __init__(self, request: Request) -> None:
        self.id = ""
        self.model = request.model
        self.reason: str | None = None
        self.sequence: str | None = None
        self.usage: Usage | None = None
        self._at = -1  # index of the newest block
        self._open = ""  # its kind, empty when it is over
        self._calls: dict[int, int] = {}  # call -> its block

    def take(self, event: Event) -> Iterator[Step]:
        if isinstance(event, Metered):
            self.usage = event.usage
        elif isinstance(event, Started):
            self.id, self.model = event.id or self.id, event.model or self.model
        elif not getattr(event, "choice", 0):
            yield from self._content(event)

    def _content(self, event: Event) -> Iterator[Step]:
        if isinstance(event, TextDelta):
            if event.text:
                yield from self._piece("text", {"type": "text_delta", "text": event.text})
        elif isinstance(event, ReasoningDelta):
            yield from self._reasoning(event)
        elif isinstance(event, ToolCallDelta):
            yield from self._call(event)
        elif isinstance(event, Extra) and event.dialect == NAME:
            if event.kind == "block":
                yield from self._whole(decode_any(event.raw))
            else:
                yield from self._piece("text", {"type": "citations_delta", "citation": Raw(event.raw.encode())})
        elif isinstance(event, Finished) and self.reason is None:
            self.reason = "stop_sequence" if event.sequence is not None else REASONS.get(event.reason, "end_turn")
            self.sequence = event.sequence

    def close(self) -> Iterator[Step]:
        if self._open:
            self._open = ""
            yield "stop", self._at, {}

    def _start(self, kind: str, block: dict[str, Any]) -> Iterator[Step]:
        yield from self.close()
        self._at += 1
        self._open = kind
        yield "start", self._at, block

    def _piece(self, kind: str, delta: dict[str, Any]) -> Iterator[Step]:
        if self._open != kind:
            yield from self._start(kind, _EMPTY[kind])
        yield "delta", self._at, delta

    def _whole(self, block: dict[str, Any]) -> Iterator[Step]:
        yield from self._start("whole", block)
        yield from self.close()

    def _reasoning(self, event: ReasoningDelta) -> Iterator[Step]:
        if event.text:
            yield from self._piece("thinking", {"type": "thinking_delta", "thinking": event.text})
        if event.signature is not None:
            yield from self._piece("thinking", {"type": "signature_delta", "signature": event.signature})
            yield from self.close()
        if event.redacted is not None:
            yield from self._whole({"type": "redacted_thinking", "data": event.redacted})

    def _call(self, event: ToolCallDelta) -> Iterator[Step]:
        if event.index not in self._calls:
            name = event.name or ""
            yield from self._start("call", {"type": "tool_use", "id": event.id or "toolu_" + uuid4().hex[:24], "name": name, "input": {}})
            self._calls[event.index] = self._at
        if event.arguments.strip() or (event.arguments and self._open == "filled"):
            if self._calls[event.index] == self._at:
                self._open = "filled"
            yield "delta", self._calls[event.index], {"type": "input_json_delta", "partial_json": event.arguments}


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    if len(frames) == 1 and frames[0].whole and frames[0].dialect == NAME and frames[0].wire:
        return frames[0].wire
    made = _Blocks(request)
    content: list[dict[str, Any]] = []
    for frame in frames:
        for event in frame.events:
            for kind, index, value in made.take(event):
                if kind == "start":
                    content.append(dict(value))
                elif kind == "delta":
                    _add(content[index], value)
    for block in content:
        if isinstance(block.get("input"), str):
            block["input"] = Raw(block["input"].encode())
    answer = {**_head(made, made.id or "msg_" + uuid4().hex[:24]), "content": content}
    answer |= {"stop_reason": made.reason, "stop_sequence": made.sequence, "usage": usage_to_wire(made.usage or Usage())}
    return encode_json(answer)


def _head(made: _Blocks, answer_id: str) -> dict[str, Any]:
    return {"id": answer_id, "type": "message", "role": "assistant", "model": made.model}


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """One delta into its block."""
    kind = delta["type"]
    if kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    elif kind == "input_json_delta":
        block["input"] = (block["input"] or "") + delta["partial_json"]
    else:
        member = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[kind]
        block[member] += delta[member]


class StreamEncoder:
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py). `answer_id` stands in where the backend gave none.

    Why it ended and the usage wait for the end: with some backends the usage comes after everything else.
    """

    __slots__ = ("_begun", "_id", "_last", "_made", "_passed")

    def __init__(self, request: Request, answer_id: str) -> None:
        self._id = "msg_" + answer_id
        self._made = _Blocks(request)
        self._begun = False
        self._passed = False  # the backend's own events were sent
        self._last = b""  # the newest of them that tell of a block

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and frame.wire:
            self._passed = True
            if b'"content_block_' in frame.wire:
                self._last = frame.wire
            return frame.wire
        out: list[bytes] = []
        for event in frame.events:
            steps = [*self._made.take(event)]
            if steps:
                self._begin(out)
            out += [self._step(*step) for step in steps]
        return b"".join(out)

    def _begin(self, out: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            usage = usage_to_wire(self._made.usage or Usage())
            message = _head(self._made, self._made.id or self._id) | {"content": [], "stop_reason": None, "stop_sequence": None}
            out.append(_event({"type": "message_start", "message": {**message, "usage": usage}}))

    def _step(self, kind: str, index: int, value: dict[str, Any]) -> bytes:
        member = {"start": {"content_block": value}, "delta": {"delta": value}, "stop": {}}[kind]
        return _event({"type": "content_block_" + kind, "index": index, **member})

    def end(self, cost: str | None) -> bytes:
        """The stop reason and usage where they are due, the cost as a comment, the end marker."""
        out: list[bytes] = []
        if not self._passed or self._made.reason is not None:  # or they came to no end of their own
            if not self._passed:
                self._begin(out)
            opened = _open_block(self._last)
            out += [self._step("stop", opened, {})] if opened is not None else [self._step(*step) for step in self._made.close()]
            delta = {"stop_reason": self._made.reason, "stop_sequence": self._made.sequence}
            out.append(_event({"type": "message_delta", "delta": delta, "usage": usage_to_wire(self._made.usage or Usage())}))
        if cost is not None:
            out.append(b": tollway-cost-usd " + cost.encode() + b"\n\n")
        return b"".join([*out, _event({"type": "message_stop"})])


def _open_block(events: bytes) -> int | None:
    """The block that a backend's own events leave open."""
    for line in reversed(events.splitlines()):
        if line.startswith(b"data:") and b'"content_block_' in line:
            told = decode_any(line[5:])
            return None if told["type"] == "content_block_stop" else int(told["index"])
    return None


def _event(data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), encode_json(data))
