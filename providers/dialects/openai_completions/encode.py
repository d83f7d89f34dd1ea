"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

Of an answer that was made of a conversation only the text is a continuation: thinking has no place here. With `echo` the prompt leads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from providers.dialects import collect
from providers.dialects.openai_chat.encode import DONE
from providers.dialects.openai_chat.wire import usage_to_wire
from providers.dialects.openai_completions.requests import NAME
from providers.dialects.prompts import prompts_of, texts
from providers.dialects.rawjson import NULL, decode_any, encode_json
from providers.dialects.sink import Sink
from providers.dialects.streams import cost_comment
from providers.types import Finished, Frame, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    own = collect.own_bytes(frames, NAME)
    if own:
        return own
    made, lead = collect.Answer(frames, request), echoed(request)
    answer: dict[str, Any] = {
        "id": made.id or "cmpl-" + uuid4().hex,
        "object": "text_completion",
        "created": made.created or int(time.time()),
        "model": made.model,
        "choices": [
            {
                "text": lead + (choice.text or choice.refusal or ""),
                "index": number,
                "logprobs": legacy_logprobs(choice.logprobs, len(lead)),
                "finish_reason": choice.reason,
            }
            for number, choice in made.choices
        ],
    }
    if made.usage is not None:
        answer["usage"] = usage_to_wire(made.usage)
    return encode_json(answer)


def echoed(request: Request) -> str:
    """The prompt that leads the answer, empty where the client did not ask for it."""
    return "".join(texts(prompts_of(request, "prompt"))) if decode_any(request.fields.get("echo", NULL)) else ""


def legacy_logprobs(found: Any, offset: int) -> dict[str, Any] | None:
    """Chat's log probabilities as this language writes them; its own as they are. offset: of the first token in the text."""
    content = found.get("content") if isinstance(found, dict) else None
    if not isinstance(content, list):
        return found if isinstance(found, dict) and "tokens" in found else None
    told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for item in content:
        token = str(item.get("token", ""))
        told["tokens"].append(token)
        told["token_logprobs"].append(item.get("logprob"))
        told["top_logprobs"].append({str(top.get("token")): top.get("logprob") for top in item.get("top_logprobs") or ()})
        told["text_offset"].append(offset)
        offset += len(token)
    return told


class StreamEncoder(Sink):
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py)."""

    __slots__ = ("_finished", "_head", "_lead", "_length", "include_usage")

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, "cmpl-" + answer_id)
        self.include_usage = request.include_usage
        self._lead = echoed(request)
        self._length: dict[int, int] = {}  # characters that a choice has brought
        self._finished: set[int] = set()
        self._head = b""

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and (frame.wire or frame.usage_wire):
            self._lead = ""  # the backend has said it
            return frame.wire + frame.usage_wire if self.include_usage else frame.wire
        out: list[bytes] = []
        for event in frame.events:
            self.take(event, out)
        return b"".join(out)

    def begin(self, event: Started, out: list[bytes]) -> None:
        self._begin(event.created)

    def text(self, event: TextDelta, out: list[bytes]) -> None:
        self._say(event.choice, event.text, out, None if event.logprobs is None else decode_any(event.logprobs))

    def call(self, event: ToolCallDelta, out: list[bytes]) -> None:
        """No request of this language has tools."""

    def think(self, event: ReasoningDelta, out: list[bytes]) -> None:
        """Not a part of the continuation."""

    def finish(self, event: Finished, out: list[bytes]) -> None:
        if event.choice in self._finished:
            return
        self._finished.add(event.choice)
        if event.choice not in self._length:
            self._say(event.choice, "", out)
        out.append(self._chunk([{"text": "", "index": event.choice, "logprobs": None, "finish_reason": event.reason}]))

    def _say(self, choice: int, said: str, out: list[bytes], logprobs: Any = None) -> None:
        before = self._length.get(choice)
        if before is None:
            before, said = len(self._lead), self._lead + said
            self._length[choice] = 0
        told = legacy_logprobs(logprobs, before)
        self._length[choice] += len(said)
        if said or told is not None:
            out.append(self._chunk([{"text": said, "index": choice, "logprobs": told, "finish_reason": None}]))

    def _begin(self, created: int) -> None:
        head = {"id": self.id, "object": "text_completion", "created": created or int(time.time()), "model": self.model}
        self._head = b"data: " + encode_json(head)[:-1]

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        if not self._head:
            self._begin(0)
        body = b',"choices":' + encode_json(choices)
        if self.include_usage:
            body += b',"usage":' + encode_json(usage)
        return self._head + body + b"}\n\n"

    def end(self, cost: str | None) -> bytes:
        """The usage chunk where one is due, the cost as a comment, the end marker."""
        usage = self._chunk([], usage_to_wire(self.usage)) if self.include_usage and self.usage is not None else b""
        return usage + cost_comment(cost) + DONE
