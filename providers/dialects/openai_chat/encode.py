"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from providers.dialects import collect
from providers.dialects.openai_chat.content import NAME
from providers.dialects.openai_chat.wire import usage_to_wire
from providers.dialects.rawjson import encode_json, says_nothing
from providers.dialects.sink import Sink
from providers.dialects.streams import cost_comment
from providers.dialects.thinking import detail_of, streamed_details
from providers.types import Finished, Frame, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta

DONE = b"data: [DONE]\n\n"


def _call_id() -> str:
    return "call_" + uuid4().hex[:24]


def _legacy(request: Request) -> bool:
    """The client speaks of `functions`, so it is answered with `function_call`."""
    return "functions" in request.fields and "tools" not in request.fields


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    own = collect.own_bytes(frames, NAME)
    if own:
        return own
    made = collect.Answer(frames, request)
    legacy = _legacy(request)
    answer: dict[str, Any] = {
        "id": made.id or "chatcmpl-" + uuid4().hex,
        "object": "chat.completion",
        "created": made.created or int(time.time()),
        "model": made.model,
        "choices": [_choice(number, choice, legacy) for number, choice in made.choices],
    }
    if made.usage is not None:
        answer["usage"] = usage_to_wire(made.usage)
    return encode_json(answer)


def _choice(number: int, choice: collect.Choice, legacy: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": choice.refusal}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.thoughts:
        message["reasoning_details"] = [detail_of(part) for part in choice.thoughts]
    functions = [{"name": call.name, "arguments": call.arguments} for call in choice.calls]
    reason = choice.reason
    if functions and legacy:
        message["function_call"] = functions[0]
        reason = "function_call" if reason == "tool_calls" else reason
    elif functions:
        ids = [call.id or _call_id() for call in choice.calls]
        message["tool_calls"] = [{"id": i, "type": "function", "function": f} for i, f in zip(ids, functions, strict=True)]
    return {"index": number, "message": message, "logprobs": choice.logprobs, "finish_reason": reason}


class StreamEncoder(Sink):
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py)."""

    __slots__ = ("_called", "_details", "_finished", "_head", "_legacy", "_opened", "include_usage")

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, "chatcmpl-" + answer_id)
        self.include_usage = request.include_usage
        self._legacy = _legacy(request)
        self._head = b""
        self._opened: set[int] = set()  # choices whose role was said
        self._called: dict[tuple[int, int], bool] = {}  # calls that were begun -> whether arguments came
        self._details: dict[int, int] = {}  # choice -> details of its thinking that were said
        self._finished: set[int] = set()

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and (frame.wire or frame.usage_wire):
            return frame.wire + frame.usage_wire if self.include_usage else frame.wire
        out: list[bytes] = []
        for event in frame.events:
            self.take(event, out)
        return b"".join(out)

    def begin(self, event: Started, out: list[bytes]) -> None:
        head = {"id": self.id, "object": "chat.completion.chunk", "created": event.created or int(time.time()), "model": self.model}
        self._head = b"data: " + encode_json(head)[:-1]

    def text(self, event: TextDelta, out: list[bytes]) -> None:
        self._delta(event.choice, {"refusal" if event.refusal else "content": event.text}, out, event.logprobs)

    def think(self, event: ReasoningDelta, out: list[bytes]) -> None:
        delta: dict[str, Any] = {"reasoning_content": event.text} if event.text else {}
        details = streamed_details(event, self._details)
        self._delta(event.choice, {**delta, "reasoning_details": details} if details else delta, out)

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        if not self._head:
            self.begin(Started("", ""), [])
        body = b',"choices":' + encode_json(choices)
        if self.include_usage:
            body += b',"usage":' + encode_json(usage)
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

    def call(self, event: ToolCallDelta, out: list[bytes]) -> None:
        key = (event.choice, event.index)
        begun, filled = key in self._called, self._called.get(key, False) or not says_nothing(event.arguments)
        self._called[key] = filled
        function: dict[str, Any] = {} if begun else {"name": event.name or ""}
        function["arguments"] = event.arguments if filled else ""
        named = {} if begun else {"id": event.id or _call_id(), "type": "function"}
        self._piece(event.choice, {"index": event.index, **named, "function": function}, out)

    def _piece(self, choice: int, call: dict[str, Any], out: list[bytes]) -> None:
        self._delta(choice, {"function_call": call["function"]} if self._legacy else {"tool_calls": [call]}, out)

    def finish(self, event: Finished, out: list[bytes]) -> None:
        if event.choice in self._finished:
            return
        self._finished.add(event.choice)
        for (choice, index), filled in self._called.items():
            if choice == event.choice and not filled:  # a call without arguments: what the client gets must parse
                self._piece(choice, {"index": index, "function": {"arguments": "{}"}}, out)
        reason = "function_call" if self._legacy and event.reason == "tool_calls" else event.reason
        if event.choice not in self._opened:
            self._delta(event.choice, {"content": ""}, out)
        out.append(self._chunk([{"index": event.choice, "delta": {}, "finish_reason": reason}]))

    def end(self, cost: str | None) -> bytes:
        """The usage chunk where one is due, the cost as a comment, the end marker."""
        usage = self._chunk([], usage_to_wire(self.usage)) if self.include_usage and self.usage is not None else b""
        return usage + cost_comment(cost) + DONE
