"""Answers to a client: the backend's own bytes where it speaks this language (the fast lane), else written from events.

An answer written from events knows nothing of where they came from: other dialects, the local engine, the cache. Whole and streamed
ones are made by the same steps; of several choices the first counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw, Struct

from providers.dialects.collect import own_bytes
from providers.dialects.openai_responses.content import NAME, REDACTED, SIGNATURE, opened
from providers.dialects.openai_responses.wire import REASONS, usage_to_wire
from providers.dialects.rawjson import NULL, decode_any, encode_json
from providers.dialects.sink import Sink
from providers.dialects.streams import cost_comment
from providers.types import Extra, Finished, Frame, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

# members of an answer that repeat the request, and what they are where it does not say
_ECHO: dict[str, Any] = {
    **dict.fromkeys(("instructions", "max_output_tokens"), None),
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}


class _Kind(Struct, frozen=True):
    """A kind of text. item: what it stands in; place: the list there that has its part; part: the part's name in events."""

    item: str
    place: str
    part: str
    type: str
    member: str = "text"
    lists: tuple[str, ...] = ()

    def empty(self) -> dict[str, Any]:
        return {"type": self.type, self.member: "", **{name: [] for name in self.lists}}


_KINDS = {  # by the name of their events
    "output_text": _Kind("message", "content", "content_part", "output_text", lists=("annotations", "logprobs")),
    "refusal": _Kind("message", "content", "content_part", "refusal", "refusal"),
    "reasoning_summary_text": _Kind("reasoning", "summary", "reasoning_summary_part", "summary_text"),
}


class _Item:
    """An item that has begun. kind: of its open part, empty = none. pieces: of that part's text, or of a call's arguments."""

    __slots__ = ("index", "kind", "members", "part", "pieces")

    def __init__(self, index: int, members: dict[str, Any]) -> None:
        self.index = index
        self.members = members
        self.kind = ""
        self.part: dict[str, Any] = {}
        self.pieces: list[str] = []

    def event(self, name: str, /, **members: Any) -> dict[str, Any]:
        place = {}
        if self.kind:
            list_of = _KINDS[self.kind].place
            place[f"{list_of}_index"] = len(self.members[list_of])
        return {"type": f"response.{name}", "item_id": self.members["id"], "output_index": self.index, **place, **members}


class _Maker(Sink):
    """Events to wire events without their numbers, and the items of the output beside them."""

    __slots__ = ("_calls", "_open", "created", "output", "reason")

    def __init__(self, request: Request, answer_id: str) -> None:
        super().__init__(request, answer_id)
        self.created = 0
        self.output: list[Any] = []
        self.reason = ""
        self._open: _Item | None = None  # a message or reasoning
        self._calls: dict[int, _Item] = {}

    def take(self, event: Any, out: list[Any]) -> None:
        if not getattr(event, "choice", 0):
            super().take(event, out)

    def begin(self, event: Started, out: list[Any]) -> None:
        self.created = event.created

    def text(self, event: TextDelta, out: list[Any]) -> None:
        if event.refusal and event.text:
            self._say("refusal", event.text, out)
        elif event.text or event.logprobs:
            logprobs = [] if event.logprobs is None else decode_any(event.logprobs).get("content") or []
            self._say("output_text", event.text, out, logprobs=logprobs).part["logprobs"] += logprobs

    def think(self, event: ReasoningDelta, out: list[Any]) -> None:
        if event.text:
            self._say("reasoning_summary_text", event.text, out)
        for sealed, kind in ((event.signature, SIGNATURE), (event.redacted, REDACTED)):
            if sealed is not None:
                if kind == REDACTED:
                    self._close(out)
                self._item("reasoning", out).members |= opened(sealed, kind)
                self._close(out)

    def call(self, event: ToolCallDelta, out: list[Any]) -> None:
        state = self._calls.get(event.index)
        if state is None:
            self._close(out)
            named = {"call_id": event.id or _id("call"), "name": event.name or "", "arguments": ""}
            item = {"type": "function_call", "id": _id("fc"), "status": "in_progress", **named}
            state = self._calls[event.index] = self._begin(item, out)
        if event.arguments.strip() or (event.arguments and state.pieces):
            state.pieces.append(event.arguments)
            out.append(state.event("function_call_arguments.delta", delta=event.arguments))

    def extra(self, event: Extra, out: list[Any]) -> None:
        if event.dialect == NAME and event.kind == "item":
            self._close(out)
            self._done(self._begin(decode_any(event.raw), out), out)
        elif event.dialect == NAME:
            state = self._part("output_text", out)
            found = state.part["annotations"]
            found.append(Raw(event.raw.encode()))
            out.append(state.event("output_text.annotation.added", annotation=found[-1], annotation_index=len(found) - 1))

    def finish(self, event: Finished, out: list[Any]) -> None:
        self.reason = self.reason or event.reason
        self.close(out)

    def close(self, out: list[Any]) -> None:
        """Everything that is open is done."""
        self._close(out)
        for state in self._calls.values():
            if not state.pieces:  # a call without arguments: what the client gets must parse
                state.pieces.append("{}")
                out.append(state.event("function_call_arguments.delta", delta="{}"))
            whole = state.members["arguments"] = "".join(state.pieces)
            out.append(state.event("function_call_arguments.done", name=state.members["name"], arguments=whole))
            self._done(state, out)
        self._calls.clear()

    def _begin(self, members: dict[str, Any], out: list[Any]) -> _Item:
        state = _Item(len(self.output), members)
        self.output.append(members)
        empty: dict[str, Any] = {name: [] for name in ("content", "summary") if name in members}
        out.append({"type": "response.output_item.added", "output_index": state.index, "item": {**members, **empty}})
        return state

    def _item(self, kind: str, out: list[Any]) -> _Item:
        """The open message or reasoning."""
        if self._open is None or self._open.members["type"] != kind:
            self._close(out)
            more = {"summary": []} if kind == "reasoning" else {"status": "in_progress", "role": "assistant", "content": []}
            self._open = self._begin({"type": kind, "id": _id("rs" if kind == "reasoning" else "msg"), **more}, out)
        return self._open

    def _part(self, kind: str, out: list[Any]) -> _Item:
        """The open item with an open part of this kind."""
        state = self._item(_KINDS[kind].item, out)
        if state.kind != kind:
            self._end_part(state, out)
            state.kind, state.part = kind, _KINDS[kind].empty()
            out.append(state.event(f"{_KINDS[kind].part}.added", part=_KINDS[kind].empty()))
        return state

    def _say(self, kind: str, text: str, out: list[Any], **more: Any) -> _Item:
        state = self._part(kind, out)
        state.pieces.append(text)
        out.append(state.event(f"{kind}.delta", delta=text, **more))
        return state

    def _end_part(self, state: _Item, out: list[Any]) -> None:
        if not state.kind:
            return
        kind, part = _KINDS[state.kind], state.part
        part[kind.member] = "".join(state.pieces)
        more = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        out.append(state.event(f"{state.kind}.done", **{kind.member: part[kind.member]}, **more))
        out.append(state.event(f"{kind.part}.done", part=part))
        state.members[kind.place].append(part)
        state.kind, state.pieces = "", []

    def _close(self, out: list[Any]) -> None:
        """The open message or reasoning is done."""
        state, self._open = self._open, None
        if state is not None:
            self._end_part(state, out)
            self._done(state, out)

    def _done(self, state: _Item, out: list[Any]) -> None:
        if state.members.get("status") == "in_progress":
            state.members["status"] = "incomplete" if self.reason in REASONS else "completed"
        out.append({"type": "response.output_item.done", "output_index": state.index, "item": state.members})


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"


def _answer(made: _Maker, request: Request, *, over: bool) -> dict[str, Any]:
    """All that an answer says, at its beginning or when it is over."""
    made.created = made.created or int(time.time())
    echo = {name: request.fields.get(name, NULL) for name in _ECHO} if request.dialect == NAME else {}
    why = REASONS.get(made.reason) if over else None
    return {
        "id": made.id,
        "object": "response",
        "created_at": made.created,
        "model": made.model,
        **{name: default if echo.get(name, NULL) == NULL else echo[name] for name, default in _ECHO.items()},
        "background": False,
        "previous_response_id": None,
        "store": False,
        "status": "in_progress" if not over else "completed" if why is None else "incomplete",
        "error": None,
        "incomplete_details": None if why is None else {"reason": why},
        "output": made.output if over else [],
        "usage": usage_to_wire(made.usage or Usage()) if over else None,
    }


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    own = own_bytes(frames, NAME)
    if own:
        return own
    made, ignored = _Maker(request, _id("resp")), list[Any]()
    for frame in frames:
        for event in frame.events:
            made.take(event, ignored)
    made.close(ignored)
    return encode_json(_answer(made, request, over=True))


class StreamEncoder:
    """Frames to one client's stream (see `StreamEncoder` in dialects/base.py). Its last event waits for the cost."""

    __slots__ = ("_last", "_made", "_number", "_passed", "_request")

    def __init__(self, request: Request, answer_id: str) -> None:
        self._request = request
        self._made = _Maker(request, "resp_" + answer_id)
        self._number = 0
        self._passed = False  # the backend's own events were sent
        self._last = b""

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == NAME and not frame.whole and (frame.wire or frame.usage_wire):
            self._passed = True
            self._last += frame.usage_wire
            return frame.wire
        steps: list[dict[str, Any]] = []
        for event in frame.events:
            self._made.take(event, steps)
        return self._events(steps) if steps else b""

    def _events(self, steps: list[dict[str, Any]]) -> bytes:
        if not self._number:
            response = _answer(self._made, self._request, over=False)
            steps = [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")] + steps
        first, self._number = self._number, self._number + len(steps)
        pieces = [(step["type"].encode(), encode_json({**step, "sequence_number": first + n})) for n, step in enumerate(steps)]
        return b"".join([b"event: %s\ndata: %s\n\n" % piece for piece in pieces])

    def end(self, cost: str | None) -> bytes:
        """What is due at the end, the cost as a comment, the last event."""
        if self._passed:
            return cost_comment(cost) + self._last
        steps: list[dict[str, Any]] = []
        self._made.close(steps)
        rest = self._events(steps)
        response = _answer(self._made, self._request, over=True)
        return rest + cost_comment(cost) + self._events([{"type": f"response.{response['status']}", "response": response}])
