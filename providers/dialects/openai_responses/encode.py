"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache. Whole and streamed
ones are made by the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from providers.dialects.item_streams import AnswerItems, ItemStream, whole_answer
from providers.dialects.items import Kind, Step
from providers.dialects.openai_responses.content import NAME, opened
from providers.dialects.openai_responses.wire import REASONS, usage_to_wire
from providers.dialects.rawjson import NULL, decode_any
from providers.dialects.sealed import REDACTED, SIGNATURE
from providers.types import Extra, Finished, Frame, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

# members of an answer that repeat the request, and what they are where it does not say
_ECHO: dict[str, Any] = {"instructions": None, "max_output_tokens": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0}
_ECHO |= {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "truncation": "disabled"}
_ECHO |= {"text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None}}
_KINDS = {
    "output_text": Kind("message", "content", "content_part", "output_text", lists=("annotations", "logprobs")),
    "refusal": Kind("message", "content", "content_part", "refusal", "refusal"),
    "reasoning_summary_text": Kind("reasoning", "summary", "reasoning_summary_part", "summary_text"),
}


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"


class _Maker(AnswerItems):
    """Events to wire events without their numbers, and the items of the output beside them."""

    __slots__ = ("created",)

    prefix = "response."
    first = ("created", "in_progress")
    arguments = "function_call_arguments"

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, answer_id, _KINDS)
        self.created = 0

    def new(self, kind: str) -> dict[str, Any]:
        if kind == "reasoning":
            return {"type": kind, "id": _id("rs"), "summary": []}
        return {"type": kind, "id": _id("msg"), "status": "in_progress", "role": "assistant", "content": []}

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        named = {"call_id": event.id or _id("call"), "name": event.name or "", "arguments": ""}
        return {"type": "function_call", "id": _id("fc"), "status": "in_progress", **named}

    def begin(self, event: Started, out: list[Step]) -> None:
        self.created = event.created

    def text(self, event: TextDelta, out: list[Step]) -> None:
        if event.refusal and event.text:
            self.say("refusal", event.text, out)
        elif event.text or event.logprobs:
            logprobs = [] if event.logprobs is None else decode_any(event.logprobs).get("content") or []
            self.say("output_text", event.text, out, logprobs=logprobs)["logprobs"].extend(logprobs)

    def think(self, event: ReasoningDelta, out: list[Step]) -> None:
        if event.text:
            self.say("reasoning_summary_text", event.text, out)
        if event.signature is not None:
            self.item("reasoning", out).members |= opened(event.signature, SIGNATURE)
            self.shut(out)
        if event.redacted is not None:
            self.shut(out)
            self.item("reasoning", out).members |= opened(event.redacted, REDACTED)
            self.shut(out)

    def extra(self, event: Extra, out: list[Step]) -> None:
        if event.dialect == NAME and event.kind == "item":
            self.shut(out)
            self.done(self.start(decode_any(event.raw), out), out)
        elif event.dialect == NAME:
            item = self.part("output_text", out)
            found = item.part["annotations"]
            found.append(Raw(event.raw.encode()))
            out.append(item.step("response.output_text.annotation.added", annotation=found[-1], annotation_index=len(found) - 1))

    def finish(self, event: Finished, out: list[Step]) -> None:
        self.reason = self.reason or event.reason
        self.incomplete = self.reason in REASONS
        self.end(out)

    def answer(self, request: Request, *, over: bool) -> dict[str, Any]:
        self.created = self.created or int(time.time())
        asked = request.fields if request.dialect == NAME else {}
        echo = {name: default if asked.get(name, NULL) == NULL else asked[name] for name, default in _ECHO.items()}
        why = REASONS.get(self.reason) if over else None
        head = {"id": self.id, "object": "response", "created_at": self.created, "model": self.model, **echo, "background": False}
        head |= {"status": "in_progress" if not over else "completed" if why is None else "incomplete", "error": None, "store": False}
        head |= {"incomplete_details": None if why is None else {"reason": why}, "previous_response_id": None}
        return {**head, "output": self.output if over else [], "usage": usage_to_wire(self.usage or Usage()) if over else None}


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    return whole_answer(frames, request, _Maker(request, _id("resp")), NAME)


class StreamEncoder(ItemStream):
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py)."""

    name = NAME
    __slots__ = ()

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, _Maker(request, "resp_" + answer_id))
