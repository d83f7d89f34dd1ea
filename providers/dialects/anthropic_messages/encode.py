"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from providers.dialects.anthropic_messages.content import NAME
from providers.dialects.anthropic_messages.wire import REASONS, usage_to_wire
from providers.dialects.blocks import Blocks, Step
from providers.dialects.collect import own_bytes
from providers.dialects.rawjson import decode_any, encode_json, object_or_none
from providers.dialects.streams import cost_comment, named_event, newest
from providers.types import Extra, Frame, ReasoningDelta, Request, TextDelta, ToolCallDelta, Usage

_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class _Blocks(Blocks):
    """Blocks of this language."""

    def empty(self, kind: str) -> dict[str, Any]:
        return _EMPTY[kind]

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        return {"type": "tool_use", "id": event.id or "toolu_" + uuid4().hex[:24], "name": event.name or "", "input": {}}

    def argument(self, piece: str) -> dict[str, Any]:
        return {"type": "input_json_delta", "partial_json": piece}

    def text(self, event: TextDelta, out: list[Step]) -> None:
        if event.text:
            self.piece("text", {"type": "text_delta", "text": event.text}, out)

    def think(self, event: ReasoningDelta, out: list[Step]) -> None:
        if event.text:
            self.piece("thinking", {"type": "thinking_delta", "thinking": event.text}, out)
        if event.signature is not None:
            self.piece("thinking", {"type": "signature_delta", "signature": event.signature}, out)
            self.close(out)
        if event.redacted is not None:
            self.whole({"type": "redacted_thinking", "data": event.redacted}, out)

    def extra(self, event: Extra, out: list[Step]) -> None:
        if event.dialect == NAME and event.kind == "block":
            self.whole(decode_any(event.raw), out)
        elif event.dialect == NAME:
            self.piece("text", {"type": "citations_delta", "citation": Raw(event.raw.encode())}, out)

    def add(self, block: dict[str, Any], delta: dict[str, Any]) -> None:
        kind = delta["type"]
        if kind == "citations_delta":
            block.setdefault("citations", []).append(delta["citation"])
        elif kind == "input_json_delta":
            block["input"] = (block["input"] or "") + delta["partial_json"]
        else:
            member = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[kind]
            block[member] += delta[member]

    def stop(self) -> dict[str, Any]:
        """Why it ended."""
        sequence = None if self.ended is None else self.ended.sequence
        reason = None if self.ended is None else REASONS.get(self.ended.reason, "end_turn")
        return {"stop_reason": reason if sequence is None else "stop_sequence", "stop_sequence": sequence}

    def head(self) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model}

    def counts(self) -> dict[str, Any]:
        return usage_to_wire(self.usage or Usage())


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    own = own_bytes(frames, NAME)
    if own:
        return own
    made = _Blocks(request, "msg_" + uuid4().hex[:24])
    content = made.collected(frames)
    for block in content:
        if isinstance(block.get("input"), str):
            block["input"] = object_or_none(block["input"]) or {}  # none where the answer's limit cut them off
    return encode_json({**made.head(), "content": content, **made.stop(), "usage": made.counts()})


class StreamEncoder:
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py).

    Why it ended and the usage wait for the end: with some backends the usage comes after everything else.
    """

    __slots__ = ("_begun", "_last", "_made", "_passed")

    def __init__(self, request: Request, answer_id: str) -> None:
        self._made = _Blocks(request, "msg_" + answer_id)
        self._begun = False
        self._passed = False  # the backend's own events were sent
        self._last = b""  # the newest of them that tell of a block

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and frame.wire:
            self._passed = True
            if b'"content_block_' in frame.wire:
                self._last = frame.wire
            return frame.wire
        steps: list[Step] = []
        for event in frame.events:
            self._made.take(event, steps)
        return self._begin() + b"".join([_step(*step) for step in steps]) if steps else b""

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message = self._made.head() | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._made.counts()}
        return named_event({"type": "message_start", "message": message})

    def end(self, cost: str | None) -> bytes:
        """The stop reason and usage where they are due, the cost as a comment, the end marker."""
        due = b""
        if not self._passed or self._made.ended is not None:  # or they came to no end of their own
            steps: list[Step] = []
            told = newest(self._last, b'"content_block_')
            if told is None or told["type"] == "content_block_stop":
                self._made.close(steps)
            else:  # a block that they leave open
                steps.append(("stop", told["index"], {}))
            due = b"" if self._passed else self._begin()
            due += b"".join([_step(*step) for step in steps])
            due += named_event({"type": "message_delta", "delta": self._made.stop(), "usage": self._made.counts()})
        return due + cost_comment(cost) + named_event({"type": "message_stop"})


def _step(kind: str, index: int, value: dict[str, Any]) -> bytes:
    member = {"start": {"content_block": value}, "delta": {"delta": value}, "stop": {}}[kind]
    return named_event({"type": "content_block_" + kind, "index": index, **member})
