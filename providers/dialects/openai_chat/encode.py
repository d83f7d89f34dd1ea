"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw

from providers.dialects.openai_chat.wire import usage_to_wire
from providers.types import Event, Finished, Frame, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

NAME = "openai_chat"
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Collected:
    """One choice of a whole answer, put together from events."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.details: list[dict[str, Any]] = []
        self.block: list[str] = []  # of the reasoning that its signature will end
        self.calls: dict[int, dict[str, Any]] = {}
        self.logprobs: dict[str, Any] | None = None
        self.reason: str | None = None

    def text_delta(self, event: TextDelta) -> None:
        (self.refusal if event.refusal else self.text).append(event.text)
        if event.logprobs is not None:
            more = msgspec.json.decode(event.logprobs, type=dict[str, Any])
            if self.logprobs is None:
                self.logprobs = more
                return
            for name, value in more.items():
                before = self.logprobs.get(name)
                if isinstance(before, list) and isinstance(value, list):
                    before.extend(value)
                elif value is not None:
                    self.logprobs[name] = value

    def reasoning_delta(self, event: ReasoningDelta) -> None:
        if event.text:
            self.reasoning.append(event.text)
            self.block.append(event.text)
        self.details.extend(_details(event, "".join(self.block)))
        if event.signature is not None:
            self.block.clear()

    def call_delta(self, event: ToolCallDelta) -> None:
        call = self.calls.setdefault(event.index, {"id": None, "name": None, "arguments": []})
        call["id"] = event.id or call["id"]
        call["name"] = event.name or call["name"]
        call["arguments"].append(event.arguments)

    def choice(self, number: int, legacy: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text) if self.text else None}
        message["refusal"] = "".join(self.refusal) if self.refusal else None
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.details:
            message["reasoning_details"] = self.details
        calls = [self.calls[index] for index in sorted(self.calls)]
        reason = self.reason
        if calls and legacy:
            message["function_call"] = _function(calls[0])
            reason = "function_call" if reason == "tool_calls" else reason
        elif calls:
            message["tool_calls"] = [{"id": call["id"] or _call_id(), "type": "function", "function": _function(call)} for call in calls]
        return {"index": number, "message": message, "logprobs": self.logprobs, "finish_reason": reason}


def _function(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["name"] or "", "arguments": "".join(call["arguments"]).strip() or "{}"}


def _call_id() -> str:
    return "call_" + uuid4().hex[:24]


def _details(event: ReasoningDelta, text: str = "") -> list[dict[str, Any]]:
    """Signatures and encrypted reasoning, as servers of this language write them. `text`: what was signed, in a whole answer."""
    found: list[dict[str, Any]] = []
    if event.signature is not None:
        found.append({"type": "reasoning.text", "text": text, "signature": event.signature})
    if event.redacted is not None:
        found.append({"type": "reasoning.encrypted", "data": event.redacted})
    return found


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    if len(frames) == 1 and frames[0].whole and frames[0].dialect == NAME and frames[0].wire:
        return frames[0].wire
    started: Started | None = None
    usage: Usage | None = None
    choices: dict[int, _Collected] = {}
    for frame in frames:
        for event in frame.events:
            if isinstance(event, Started):
                started = started or event
            elif isinstance(event, Metered):
                usage = event.usage
            elif isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta | Finished):
                _collect(choices.setdefault(event.choice, _Collected()), event)
    legacy = _legacy(request)
    answer: dict[str, Any] = {
        "id": (started.id if started else "") or "chatcmpl-" + uuid4().hex,
        "object": "chat.completion",
        "created": (started.created if started else 0) or int(time.time()),
        "model": (started.model if started else "") or request.model,
        "choices": [choices[number].choice(number, legacy) for number in sorted(choices)],
    }
    if usage is not None:
        answer["usage"] = usage_to_wire(usage)
    return _encode(answer)


def _collect(choice: _Collected, event: Event) -> None:
    if isinstance(event, TextDelta):
        choice.text_delta(event)
    elif isinstance(event, ReasoningDelta):
        choice.reasoning_delta(event)
    elif isinstance(event, ToolCallDelta):
        choice.call_delta(event)
    elif isinstance(event, Finished):
        choice.reason = choice.reason or event.reason


def _legacy(request: Request) -> bool:
    """The client speaks of `functions`, so it is answered with `function_call`."""
    return "functions" in request.fields and "tools" not in request.fields


class StreamEncoder:
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py). `answer_id` stands in where the backend gave none."""

    __slots__ = ("_called", "_finished", "_head", "_legacy", "_opened", "_usage", "id", "include_usage", "model")

    def __init__(self, request: Request, answer_id: str) -> None:
        self.id = "chatcmpl-" + answer_id
        self.model = request.model
        self.include_usage = request.include_usage
        self._legacy = _legacy(request)
        self._head = b""
        self._opened: set[int] = set()  # choices whose role was said
        self._called: dict[tuple[int, int], bool] = {}  # calls that were begun -> whether arguments came
        self._finished: set[int] = set()
        self._usage: Usage | None = None

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and (frame.wire or frame.usage_wire):
            return frame.wire + frame.usage_wire if self.include_usage else frame.wire
        if not frame.events:
            return b""
        out: list[bytes] = []
        for event in frame.events:
            self._event(event, out)
        return b"".join(out)

    def _event(self, event: Event, out: list[bytes]) -> None:
        if isinstance(event, TextDelta):
            self._delta(event.choice, {"refusal" if event.refusal else "content": event.text}, out, event.logprobs)
        elif isinstance(event, ToolCallDelta):
            self._call(event, out)
        elif isinstance(event, ReasoningDelta):
            delta: dict[str, Any] = {"reasoning_content": event.text} if event.text else {}
            details = _details(event)
            if details:
                delta["reasoning_details"] = details
            self._delta(event.choice, delta, out)
        elif isinstance(event, Finished):
            self._finish(event, out)
        elif isinstance(event, Metered):
            self._usage = event.usage
        elif isinstance(event, Started):
            self.id = event.id or self.id
            self.model = event.model or self.model
            self._begin(event.created)

    def _begin(self, created: int) -> None:
        head = {"id": self.id, "object": "chat.completion.chunk", "created": created or int(time.time()), "model": self.model}
        self._head = b"data: " + _encode(head)[:-1]

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        if not self._head:
            self._begin(0)
        body = b',"choices":' + _encode(choices)
        if self.include_usage:
            body += b',"usage":' + _encode(usage)
        return self._head + body + b"}\n\n"

    def _delta(self, choice: int, delta: dict[str, Any], out: list[bytes], logprobs: str | None = None) -> None:
        if choice not in self._opened:
            self._opened.add(choice)
            opening = {"role": "assistant", "content": None if "tool_calls" in delta or "function_call" in delta else ""}
            out.append(self._chunk([{"index": choice, "delta": opening, "finish_reason": None}]))
        chunk: dict[str, Any] = {"index": choice, "delta": delta, "finish_reason": None}
        if logprobs is not None:
            chunk["logprobs"] = Raw(logprobs.encode())
        out.append(self._chunk([chunk]))

    def _call(self, event: ToolCallDelta, out: list[bytes]) -> None:
        key = (event.choice, event.index)
        begun = key in self._called
        self._called[key] = self._called.get(key, False) or bool(event.arguments.strip())
        function: dict[str, Any] = {"arguments": event.arguments} if begun else {"name": event.name or "", "arguments": event.arguments}
        if self._legacy:
            self._delta(event.choice, {"function_call": function}, out)
            return
        call: dict[str, Any] = {"index": event.index}
        if not begun:
            call |= {"id": event.id or _call_id(), "type": "function"}
        self._delta(event.choice, {"tool_calls": [call | {"function": function}]}, out)

    def _finish(self, event: Finished, out: list[bytes]) -> None:
        if event.choice in self._finished:
            return
        self._finished.add(event.choice)
        for (choice, index), filled in self._called.items():
            if choice == event.choice and not filled:  # a call without arguments: what the client gets must parse
                function = {"arguments": "{}"}
                delta = {"function_call": function} if self._legacy else {"tool_calls": [{"index": index, "function": function}]}
                self._delta(choice, delta, out)
        reason = "function_call" if self._legacy and event.reason == "tool_calls" else event.reason
        if event.choice not in self._opened:
            self._delta(event.choice, {"content": ""}, out)
        out.append(self._chunk([{"index": event.choice, "delta": {}, "finish_reason": reason}]))

    def end(self, cost: str | None) -> bytes:
        """The usage chunk where one is due, the cost as a comment, the end marker."""
        usage = self._chunk([], usage_to_wire(self._usage)) if self.include_usage and self._usage is not None else b""
        return usage + (b"" if cost is None else b": tollway-cost-usd " + cost.encode() + b"\n\n") + DONE
