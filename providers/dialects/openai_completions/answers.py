"""Answers from upstream, whole and streamed, to events. The bytes stay beside the events, for a client of the same language."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from providers.dialects.error_bodies import stated_error
from providers.dialects.openai_chat.wire import FINISH, NESTING
from providers.dialects.openai_completions.requests import NAME
from providers.dialects.rawjson import decode_any, encode_json, number, text
from providers.dialects.streams import DONE, PASS, REWRITE, USAGE, StreamReader, plain_event, reading_answer
from providers.dialects.usage import Meter, as_decimal
from providers.errors import BadAnswer
from providers.sse import Event as BlockEvent
from providers.types import Event, Finished, Frame, Started, TextDelta


class Choice(Struct, gc=False):
    text: Any = None
    index: Any = None
    logprobs: Any = None
    finish_reason: Any = None


class Chunk(Struct, gc=False):
    """One event of a stream, or a whole answer: the same members."""

    id: Any = None
    model: Any = None
    created: Any = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None


_chunk = msgspec.json.Decoder(Chunk, float_hook=as_decimal).decode


class Answer:
    """Turns chunks into events; the state of one answer."""

    __slots__ = ("_choices", "_meter", "carried", "started")

    def __init__(self) -> None:
        self.started = self.carried = False
        self._choices: dict[int, bool] = {}  # whether it has ended
        self._meter = Meter(NESTING)

    @property
    def finished(self) -> bool:
        return bool(self._choices) and all(self._choices.values())

    def take(self, chunk: Chunk, events: list[Event]) -> None:
        if not self.started and (chunk.id or chunk.model or chunk.choices):
            self.started = True
            events.append(Started(text(chunk.id), text(chunk.model), number(chunk.created) or 0))
        for choice in chunk.choices or ():
            self._take_choice(choice, number(choice.index) or 0, events)
        if chunk.usage is not None:
            self._meter.take(chunk.usage, events)

    def _take_choice(self, choice: Choice, place: int, events: list[Event]) -> None:
        ended = self._choices.setdefault(place, False)
        said = text(choice.text)
        if said or choice.logprobs is not None:
            self.carried = True
            events.append(TextDelta(said, place, None if choice.logprobs is None else encode_json(choice.logprobs).decode()))
        if choice.finish_reason and not ended:
            self._choices[place] = self.carried = True
            reason = text(choice.finish_reason)
            events.append(Finished(FINISH.get(reason, reason), place))


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
        chunk = _chunk(data)
        if chunk.error is not None:
            raise stated_error(decode_any(data))
        self.answer.take(chunk, events)
        if chunk.usage is not None and not chunk.choices:
            return USAGE
        return PASS if event.plain else REWRITE

    def rewrite(self, event: BlockEvent, raw: bytes) -> bytes:
        return raw[event.start : event.end] if event.plain else plain_event(event)


def decode_answer(body: bytes) -> Frame:
    """A whole answer; a choice without a reason for its end simply stopped. Raises ProviderError."""
    with reading_answer():
        answer = _chunk(body)
    if answer.error is not None:
        raise stated_error(decode_any(body))
    if not answer.choices:
        raise BadAnswer("the backend's answer has no choices")
    for position, choice in enumerate(answer.choices):
        choice.index = position if number(choice.index) is None else choice.index
        choice.finish_reason = choice.finish_reason or "stop"
    events: list[Event] = []
    Answer().take(answer, events)
    return Frame(events=events, wire=body, dialect=NAME, whole=True)
