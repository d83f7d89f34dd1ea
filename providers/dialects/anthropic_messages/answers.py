"""Answers from upstream, whole and streamed, to events. The bytes stay beside the events, for a client of the same language.

One path: a block of a whole answer is one that begins with all it has. Blocks and citations that only this language has become Extra.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.anthropic_messages import wire
from providers.dialects.anthropic_messages.content import NAME
from providers.dialects.blocks import OpenBlocks
from providers.dialects.error_bodies import stated_error
from providers.dialects.rawjson import any_or_none, decode_any, text
from providers.dialects.streams import DONE, PASS, REWRITE, StreamReader, plain_event, reading_answer
from providers.dialects.usage import Meter
from providers.errors import BadAnswer
from providers.sse import Event as BlockEvent
from providers.types import Event, Extra, Finished, Frame, ReasoningDelta, Started, TextDelta


class Answer:
    """Turns wire events into ours; the state of one answer."""

    __slots__ = ("_blocks", "carried", "finished", "meter")

    def __init__(self) -> None:
        self.carried = False  # an event that carries something was given away
        self.finished = False
        self._blocks = OpenBlocks()
        self.meter = Meter(wire.NESTING)

    def take(self, event: wire.StreamEvent, events: list[Event]) -> None:
        """Append the events of one wire event."""
        kind, before = event.type, len(events)
        if kind == "message_start" and event.message is not None:
            self.start(event.message, events)
            return
        if kind == "content_block_delta" and event.delta is not None:
            self._delta(event.index, event.delta, events)
        elif kind == "content_block_start":
            self.open(event.index, bytes(event.content_block), events)
        elif kind == "content_block_stop":
            self.close(event.index, events)
        elif kind == "message_delta" and event.delta is not None and event.delta.stop_reason:
            self.finish(event.delta.stop_reason, event.delta.stop_sequence, events)
        self.carried = self.carried or len(events) > before
        if kind == "message_delta":
            self.meter.take(event.usage, events)

    def start(self, message: wire.Message, events: list[Event]) -> None:
        events.append(Started(text(message.id), text(message.model)))
        self.meter.take(message.usage, events)

    def finish(self, reason: Any, sequence: Any, events: list[Event]) -> None:
        if not self.finished:
            self.finished = True
            events.append(Finished(wire.STOPS.get(text(reason), text(reason)), 0, sequence if isinstance(sequence, str) else None))

    def open(self, index: int, raw: bytes, events: list[Event]) -> None:
        """A block begins, in a whole answer with all that it has."""
        block = wire.decode_block(raw)
        state = self._blocks.begin(index, block.type, raw)
        if block.type == "text":
            if block.text:
                events.append(TextDelta(text(block.text)))
            events += [Extra(NAME, "citation", bytes(citation).decode()) for citation in block.citations or ()]
        elif block.type == "thinking":
            if block.thinking or block.signature:
                events.append(ReasoningDelta(text(block.thinking), 0, text(block.signature) or None))
        elif block.type == "redacted_thinking":
            events.append(ReasoningDelta(redacted=text(block.data)))
        elif block.type == "tool_use":
            self._blocks.call(state, text(block.id), text(block.name), bytes(block.input), events)

    def _delta(self, index: int, delta: wire.Delta, events: list[Event]) -> None:
        kind = delta.type
        if kind == "text_delta" and delta.text:
            events.append(TextDelta(text(delta.text)))
        elif kind == "input_json_delta":
            self._blocks.argument(index, text(delta.partial_json), events)
        elif kind == "thinking_delta" and delta.thinking:
            events.append(ReasoningDelta(text(delta.thinking)))
        elif kind == "signature_delta" and delta.signature:
            events.append(ReasoningDelta(signature=text(delta.signature)))
        elif kind == "citations_delta":
            events.append(Extra(NAME, "citation", bytes(delta.citation).decode()))

    def close(self, index: int, events: list[Event]) -> None:
        """A block is over; one of no common kind is whole now."""
        block = self._blocks.end(index, events)
        if block is not None and block.call is None and block.kind not in ("text", "thinking", "redacted_thinking"):
            events.append(Extra(NAME, "block", block.whole("input")))


class StreamDecoder(StreamReader[Answer]):
    """One stream's bytes to frames (see `StreamDecoder` in dialects/base.py)."""

    name = NAME
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Answer())

    def read(self, event: BlockEvent, events: list[Event]) -> int:
        data = event.data or b""
        if data == b"[DONE]":  # some servers end so
            return self.over()
        if event.name == b"error":
            raise stated_error(any_or_none(data))
        found = wire.decode_event(data)
        if found.type == "error":
            raise stated_error(decode_any(data))
        self.answer.take(found, events)
        if found.type == "message_stop":
            return DONE
        return PASS if event.name == found.type.encode() else REWRITE

    def rewrite(self, event: BlockEvent, raw: bytes) -> bytes:
        """Under the name that its data has: this language's clients pass over events without one."""
        return b"event: " + wire.decode_event(event.data or b"").type.encode() + b"\n" + plain_event(event)


def decode_answer(body: bytes) -> Frame:
    """A whole answer. Raises ProviderError: BadAnswer for what is none, the stated kind for an error under status 200."""
    events: list[Event] = []
    with reading_answer():
        message = wire.decode_message(body)
        if message.type == "error" or message.error is not None:
            raise stated_error(decode_any(body))
        if message.content is None:
            raise BadAnswer("the backend's answer has no content")
        answer = Answer()
        answer.start(wire.Message(id=message.id, model=message.model), events)
        for index, block in enumerate(message.content):
            answer.open(index, bytes(block), events)
            answer.close(index, events)
        if message.stop_reason:
            answer.finish(message.stop_reason, message.stop_sequence, events)
        answer.meter.take(message.usage, events)
    return Frame(events=events, wire=body, dialect=NAME, whole=True)
