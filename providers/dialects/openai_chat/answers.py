"""Answers from upstream, whole and streamed, to events. The bytes stay beside the events, for a client of the same language.

One path: a whole answer is a chunk whose choices have a `message` in place of a `delta`. Knows where the many servers of this
language put usage, reasoning and errors, and no server by name.
"""

from __future__ import annotations

from typing import Any

from providers.dialects import thinking
from providers.dialects.base import UNREADABLE
from providers.dialects.calls import ChoiceState
from providers.dialects.error_bodies import stated_error
from providers.dialects.openai_chat import wire
from providers.dialects.openai_chat.content import NAME
from providers.dialects.rawjson import decode_any, encode_json, number, text, text_or_json
from providers.dialects.streams import DONE, PASS, REWRITE, USAGE, StreamReader, plain_event, reading_answer
from providers.dialects.usage import Meter
from providers.errors import BadAnswer, ServerFailed
from providers.sse import Event as BlockEvent
from providers.types import Event, Finished, Frame, Metered, Started, TextDelta

EMPTY_DELTAS = (None, wire.Delta(), wire.Delta(content=""))


class Answer:
    """Turns chunks into events; the state of one answer."""

    __slots__ = ("_meter", "carried", "choices", "started")

    def __init__(self) -> None:
        self.started = False
        self.carried = False  # an event that carries something was given away
        self.choices: dict[int, ChoiceState] = {}
        self._meter = Meter(wire.NESTING)

    @property
    def finished(self) -> bool:
        return bool(self.choices) and all(choice.finished for choice in self.choices.values())

    def take(self, chunk: wire.StreamChunk, events: list[Event]) -> None:
        """Append the events of one chunk. A usage that states nothing new is left out."""
        if not self.started and (chunk.id or chunk.model or chunk.choices):
            self.started = True
            events.append(Started(text(chunk.id), text(chunk.model), number(chunk.created) or 0))
        if chunk.cost is not None:
            self._meter.cost = chunk.cost
        for choice in chunk.choices or ():
            body = choice.delta or (choice.message if type(choice) is wire.Choice else None)
            place = number(choice.index) or 0
            state = self.choices.get(place)
            if state is None:
                state = self.choices[place] = ChoiceState(place)
            if body is not None:
                self._body(body, state, place, choice.logprobs, events)
            if choice.finish_reason:
                self._finish(text(choice.finish_reason), state, place, events)
            if choice.usage is not None:
                self._meter.take(choice.usage, events)
        if chunk.usage is not None:
            self._meter.take(chunk.usage, events)
        elif chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._meter.take(chunk.x_groq.usage, events)

    def _body(self, body: wire.Delta, state: ChoiceState, place: int, logprobs: Any, events: list[Event]) -> None:
        before = len(events)
        if body.reasoning_content or body.reasoning or body.reasoning_details:
            thinking.thought(body.reasoning_content or body.reasoning, body.reasoning_details, place, events)
        content = body.content
        if content.__class__ is str or (content is None and logprobs is not None):
            if content or logprobs is not None:
                events.append(TextDelta(content or "", place, None if logprobs is None else encode_json(logprobs).decode()))
        elif content is not None:
            thinking.parts(content, place, events)
        if body.refusal:
            events.append(TextDelta(text(body.refusal), place, refusal=True))
        for piece in body.tool_calls or ():
            called = piece.function or wire.Function()
            state.piece(number(piece.index), text(piece.id), text(called.name), text_or_json(called.arguments), events)
        function = body.function_call
        if function is not None and (function.name or function.arguments):
            state.only(text(function.name), text(function.arguments), events)
        if len(events) > before:
            self.carried = True

    def _finish(self, reason: str, state: ChoiceState, place: int, events: list[Event]) -> None:
        if state.finished:
            return  # some servers finish twice, the second time beside the usage
        if reason == "error":
            raise ServerFailed("the backend ended its answer with an error that it did not explain")
        state.finished = self.carried = True
        events.append(Finished(wire.FINISH.get(reason, reason), place))


class StreamDecoder(StreamReader[Answer]):
    """One stream's bytes to frames (see `StreamDecoder` in dialects/base.py)."""

    name = NAME
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Answer())

    def read(self, event: BlockEvent, events: list[Event]) -> int:
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
            self.answer.take(chunk, events)  # what came with the error was generated all the same
            raise stated_error(decode_any(data))
        before = len(events)
        self.answer.take(chunk, events)
        if chunk.usage is not None and _usage_alone(chunk, events[before:]):
            return USAGE
        return PASS if event.plain else REWRITE

    def rewrite(self, event: BlockEvent, raw: bytes) -> bytes:
        """Its own bytes, or its data alone where they had fields that a client should not get."""
        return raw[event.start : event.end] if event.plain else plain_event(event)


def _usage_alone(chunk: wire.StreamChunk, events: list[Event]) -> bool:
    """A chunk that a client who did not ask for usage should not see: it has nothing else, whatever stands in `choices`."""
    if not chunk.choices:
        return True
    if any(type(event) is not Metered for event in events):
        return False
    return not any(choice.finish_reason for choice in chunk.choices) and all(choice.delta in EMPTY_DELTAS for choice in chunk.choices)


def decode_answer(body: bytes) -> Frame:
    """A whole answer. Raises ProviderError: BadAnswer for what is none, the stated kind for an error under status 200."""
    with reading_answer():
        answer = wire.decode_whole(body)
    if answer.error is not None:
        raise stated_error(decode_any(body))
    if not answer.choices:
        raise BadAnswer("the backend's answer has no choices")
    events: list[Event] = []
    for position, choice in enumerate(answer.choices):
        choice.delta = None if choice.message is not None else choice.delta
        choice.index = position if number(choice.index) is None else choice.index
        for index, call in enumerate((choice.message or wire.Delta()).tool_calls or ()):
            call.index = index  # a whole answer has no pieces: each entry is a call
    Answer().take(answer, events)
    return Frame(events=events, wire=body, dialect=NAME, whole=True)
