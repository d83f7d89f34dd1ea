"""Answers from upstream, whole and streamed, to events. The bytes stay beside the events, for a client of the same language.

One path: a whole answer is a chunk whose choices have a `message` in place of a `delta`. Knows where the many servers of this
language put usage, reasoning and errors, and no server by name.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.base import UNREADABLE
from providers.dialects.openai_chat import wire
from providers.dialects.openai_chat.errors import stated_error
from providers.dialects.streams import DONE, PASS, REWRITE, USAGE, StreamReader
from providers.errors import BadAnswer, ServerFailed
from providers.sse import Event as Block_Event
from providers.types import Event, Finished, Frame, Metered, ReasoningDelta, Started, TextDelta, ToolCallDelta

NAME = "openai_chat"
EMPTY_DELTAS = (None, wire.Delta(), wire.Delta(content=""))


class _Choice:
    """What one choice has brought so far."""

    __slots__ = ("by_index", "finished", "ids")

    def __init__(self) -> None:
        self.finished = False
        self.ids: list[str] = []  # of the calls, by our index
        self.by_index: dict[int | None, int] = {}  # the vendor's index -> ours


class Answer:
    """Turns chunks into events; the state of one answer."""

    __slots__ = ("_cost", "_usage", "carried", "choices", "started")

    def __init__(self) -> None:
        self.started = False
        self.carried = False  # an event that carries something was given away
        self.choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] = {}
        self._cost: Any = None

    @property
    def finished(self) -> bool:
        return bool(self.choices) and all(choice.finished for choice in self.choices.values())

    def take(self, chunk: wire.StreamChunk | wire.Chunk, events: list[Event]) -> None:
        """Append the events of one chunk. A usage that states nothing new is left out."""
        if not self.started and (chunk.id or chunk.model or chunk.choices):
            self.started = True
            events.append(Started(_text(chunk.id), _text(chunk.model), _number(chunk.created) or 0))
        for choice in chunk.choices or ():
            body = choice.delta or (choice.message if type(choice) is wire.Choice else None)
            number = _number(choice.index) or 0
            state = self.choices.get(number)
            if state is None:
                state = self.choices[number] = _Choice()
            if body is not None:
                self._body(body, state, number, choice.logprobs, events)
            if choice.finish_reason:
                self._finish(_text(choice.finish_reason), state, number, events)
            if choice.usage is not None:
                self._meter(choice.usage, events)
        if chunk.cost is not None:
            self._cost = chunk.cost
        if chunk.usage is not None:
            self._meter(chunk.usage, events)
        elif chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._meter(chunk.x_groq.usage, events)

    def _body(self, body: wire.Delta, state: _Choice, number: int, logprobs: Any, events: list[Event]) -> None:
        before = len(events)
        if body.reasoning_content or body.reasoning or body.reasoning_details:
            _reasoning(body, number, events)
        content = body.content
        if content.__class__ is str:
            if content or logprobs is not None:
                events.append(TextDelta(content, number, None if logprobs is None else wire.encode_json(logprobs).decode()))
        elif content is not None:
            _parts(content, number, events)
        elif logprobs is not None:
            events.append(TextDelta("", number, wire.encode_json(logprobs).decode()))
        if body.refusal:
            events.append(TextDelta(_text(body.refusal), number, refusal=True))
        for piece in body.tool_calls or ():
            _call(piece, state, number, events)
        if body.function_call is not None and (body.function_call.name or body.function_call.arguments):
            _legacy_call(body.function_call, state, number, events)
        if len(events) > before:
            self.carried = True

    def _finish(self, reason: str, state: _Choice, number: int, events: list[Event]) -> None:
        if state.finished:
            return  # some servers finish twice, the second time beside the usage
        if reason == "error":
            raise ServerFailed("the backend ended its answer with an error that it did not explain")
        state.finished = self.carried = True
        events.append(Finished(wire.FINISH.get(reason, reason), number))

    def _meter(self, usage: Any, events: list[Event]) -> None:
        if not isinstance(usage, dict):
            return
        merged = wire.merge(self._usage, usage)
        if merged == self._usage and self._cost is None:
            return
        self._usage = merged
        known = wire.usage_from_wire(merged, self._cost)
        if known is not None:
            events.append(Metered(known))


def _number(value: Any) -> int | None:
    """A place or an instant; None for what is neither, and for one that no encoder could write again."""
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _parts(content: Any, choice: int, events: list[Event]) -> None:
    """Content as typed parts, or as one object."""
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            continue
        text = part.get("text")
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            text = "".join(_text(piece.get("text")) for piece in pieces if isinstance(piece, dict))
            signature = part.get("signature")
            if text or signature:
                events.append(ReasoningDelta(text, choice, _text(signature) or None))
        elif isinstance(text, str) and text:
            events.append(TextDelta(text, choice))


def _reasoning(body: wire.Delta, choice: int, events: list[Event]) -> None:
    """One text, though servers repeat it under several names; signatures and encrypted pieces stand in the details alone."""
    text = body.reasoning_content or body.reasoning
    details = body.reasoning_details
    text = text if isinstance(text, str) else ""
    signature = redacted = None
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if detail.get("type") == "reasoning.encrypted":
            redacted = (redacted or "") + _text(detail.get("data"))
        signature = detail.get("signature") or signature
        if not body.reasoning_content and not body.reasoning:
            text += _text(detail.get("text") or detail.get("summary"))
    if text or signature or redacted:
        events.append(ReasoningDelta(text, choice, _text(signature) or None, redacted))


def _call(piece: wire.ToolPiece, state: _Choice, choice: int, events: list[Event]) -> None:
    """A tool call or a piece of one. Ours count from 0; a new id with a name at a known index is a new call."""
    function = piece.function
    name = _text(function.name) if function is not None else ""
    arguments = function.arguments if function is not None else None
    text = _text(arguments) if arguments is None or isinstance(arguments, str) else wire.encode_json(arguments).decode()
    call_id = _text(piece.id)
    key = _number(piece.index)
    known = state.by_index.get(key)
    # without any index, every piece with a name is a call of its own
    if known is not None and not (name and (key is None or (call_id and state.ids[known] != call_id))):
        if text:
            events.append(ToolCallDelta(known, text, choice=choice))
        return
    known = state.by_index[key] = len(state.ids)
    state.ids.append(call_id)
    events.append(ToolCallDelta(known, text, call_id or None, name or None, choice))


def _legacy_call(function: wire.Function, state: _Choice, choice: int, events: list[Event]) -> None:
    name = _text(function.name)
    events.append(ToolCallDelta(0, _text(function.arguments), None, name or None, choice))
    if not state.ids:
        state.ids.append("")


class StreamDecoder(StreamReader):
    """One stream's bytes to frames (see `StreamDecoder` in dialects/base.py)."""

    name = NAME
    __slots__ = ("_answer",)

    def __init__(self) -> None:
        self._answer = Answer()
        super().__init__(self._answer)

    def read(self, event: Block_Event, events: list[Event]) -> int:
        data = event.data or b""
        if data == b"[DONE]":
            return DONE
        try:
            chunk = wire.decode_chunk(data)
        except UNREADABLE:
            if event.name == b"error":
                raise stated_error(None) from None
            raise
        if chunk.error is not None or event.name == b"error":
            for choice in chunk.choices or ():
                choice.finish_reason = None
            self._answer.take(chunk, events)  # what came with the error was generated all the same
            raise stated_error(wire.decode_any(data))
        before = len(events)
        self._answer.take(chunk, events)
        if chunk.usage is not None and _usage_alone(chunk, events[before:]):
            return USAGE
        return PASS if event.plain else REWRITE

    def rewrite(self, event: Block_Event, raw: bytes) -> bytes:
        """Its own bytes, or its data alone where they had fields that a client should not get."""
        if event.plain:
            return raw[event.start : event.end]
        return b"".join([b"data: " + line + b"\n" for line in (event.data or b"").split(b"\n")]) + b"\n"


def _usage_alone(chunk: wire.StreamChunk, events: list[Event]) -> bool:
    """A chunk that a client who did not ask for usage should not see: it has nothing else, whatever stands in `choices`."""
    if not chunk.choices:
        return True
    if any(type(event) is not Metered for event in events):
        return False
    return not any(choice.finish_reason for choice in chunk.choices) and all(choice.delta in EMPTY_DELTAS for choice in chunk.choices)


def decode_answer(body: bytes) -> Frame:
    """A whole answer. Raises ProviderError: BadAnswer for what is none, the stated kind for an error under status 200."""
    try:
        answer = wire.decode_whole(body)
    except UNREADABLE as fault:
        raise BadAnswer(f"the backend's answer cannot be read: {str(fault)[:200]}") from None
    if answer.error is not None:
        raise stated_error(wire.decode_any(body))
    if not answer.choices:
        raise BadAnswer("the backend's answer has no choices")
    events: list[Event] = []
    state = Answer()
    for position, choice in enumerate(answer.choices):
        choice.delta = None if choice.message is not None else choice.delta
        if _number(choice.index) is None:
            choice.index = position
        for index, call in enumerate((choice.message or wire.Delta()).tool_calls or ()):
            call.index = index  # a whole answer has no pieces: each entry is a call
    state.take(answer, events)
    return Frame(events=events, wire=body, dialect=NAME, whole=True)
