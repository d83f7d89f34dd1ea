"""Answers from upstream, whole and streamed, to events. The bytes stay beside the events, for a client of the same language.

One path: an item of a whole answer is one that is done before anything of it was streamed. Items and annotations that only this
language has become Extra.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from providers.dialects.base import UNREADABLE
from providers.dialects.error_bodies import stated_error
from providers.dialects.items import Begun, BegunItems
from providers.dialects.openai_responses import wire
from providers.dialects.openai_responses.content import NAME, reasoning_text, sealed_of
from providers.dialects.rawjson import NULL, decode_any, decode_object, encode_json, number, objects, text
from providers.dialects.streams import LEAVE, PASS, USAGE, StreamReader, reading_answer
from providers.dialects.usage import Meter
from providers.errors import BadAnswer, Cut
from providers.sse import Event as BlockEvent
from providers.types import Event, Extra, Finished, Frame, ReasoningDelta, Started, TextDelta

_ENDS = ("response.completed", "response.incomplete")
_PLACES = {"response.reasoning_text.delta": "content", "response.reasoning_summary_text.delta": "summary"}


class Answer:
    """Turns wire events into ours; the state of one answer."""

    __slots__ = ("_items", "_meter", "_started", "carried", "finished")

    def __init__(self) -> None:
        self.carried = False  # an event that carries something was given away
        self.finished = False
        self._started = False
        self._items = BegunItems()
        self._meter = Meter(wire.NESTING)

    def take(self, event: wire.StreamEvent, events: list[Event]) -> None:
        """Append the events of one wire event. Raises ProviderError for an answer that failed."""
        kind, before = event.type, len(events)
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._say(event, events)
        elif kind == "response.function_call_arguments.delta":
            self._items.argument(_place(event), text(event.delta), events)
        elif kind in _PLACES or kind == "response.reasoning_summary_part.added":
            self._think(event, _PLACES.get(kind, "summary"), events)
        elif kind == "response.output_text.annotation.added":
            events.append(_extra("annotation", decode_any(event.annotation)))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self.item(_place(event), event.item, events, done=kind.endswith("done"))
        elif event.response is not None and (kind in _ENDS or kind == "response.failed"):
            self.carried = self.carried or len(events) > before
            self.end(event.response, events)
        elif event.response is not None:
            self.start(event.response, events)
            return
        self.carried = self.carried or len(events) > before

    def start(self, response: wire.Response, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(Started(text(response.id), text(response.model), number(response.created_at) or 0))

    def end(self, response: wire.Response, events: list[Event]) -> None:
        """The whole answer, of which most or nothing was streamed."""
        self.start(response, events)
        for place, item in enumerate((not self._items and response.output) or ()):  # places there need not be those of the stream
            self.item(place, item, events, done=True)
        self._meter.take(response.usage, events)
        status = text(response.status)
        if response.error is not None or status not in ("completed", "incomplete", ""):
            raise stated_error({"error": response.error or {"message": f"the backend ended its answer with the status {status[:40]}"}})
        details = response.incomplete_details if isinstance(response.incomplete_details, dict) else {}
        why = text(details.get("reason"))
        reason = wire.FINISH.get(why, why or "length") if status == "incomplete" else "tool_calls" if self._items.calls else "stop"
        self.finished = True
        events.append(Finished(reason))

    def _say(self, event: wire.StreamEvent, events: list[Event]) -> None:
        if event.delta or event.logprobs:
            self._items.at(_place(event)).said = True
            events.append(TextDelta(text(event.delta), 0, _logprobs(event.logprobs), event.type == "response.refusal.delta"))

    def _think(self, event: wire.StreamEvent, place: str, events: list[Event]) -> None:
        """One text, though it may be told twice, in full and as a summary."""
        item = self._items.at(_place(event))
        item.place = item.place or (place if event.delta else "")
        said = "\n\n" if item.said and event.type.endswith("part.added") and event.summary_index else text(event.delta)
        if said and item.place == place:
            item.said = True
            events.append(ReasoningDelta(said))

    def item(self, place: int, raw: Raw, events: list[Event], *, done: bool) -> None:
        """An item begins, or is done: what of it was not streamed is said now."""
        state, item = self._items.at(place), wire.decode_item(raw)
        if state.done:
            return
        state.done = done
        if item.type == "function_call":
            named = text(item.call_id) or text(item.id), text(item.name)
            self._items.call(place, named, text(item.arguments) if done else None, events)
        elif done and item.type == "reasoning":
            self._reasoning(state, decode_object(raw), events)
        elif done and item.type == "message":
            for part in [] if state.said else objects(item.content):
                self._part(part, events)
        elif done:
            events.append(_extra("item", decode_any(raw)))

    def _reasoning(self, state: Begun, members: dict[str, Raw], events: list[Event]) -> None:
        for place in () if state.said else ("content", "summary"):
            said = reasoning_text(decode_any(members.get(place, NULL)))
            if said and not state.said:
                state.said = True
                events.append(ReasoningDelta(said))
        signature, redacted = sealed_of(members, state.said)
        if signature is not None or redacted is not None:
            events.append(ReasoningDelta(signature=signature, redacted=redacted))

    def _part(self, part: dict[str, Any], events: list[Event]) -> None:
        refusal = part.get("type") == "refusal"
        said, logprobs = text(part.get("refusal" if refusal else "text")), _logprobs(part.get("logprobs"))
        if said or logprobs:
            events.append(TextDelta(said, 0, logprobs, refusal))
        events += [_extra("annotation", annotation) for annotation in objects(part.get("annotations"))]


def _place(event: wire.StreamEvent) -> int:
    return number(event.output_index) or 0


def _extra(kind: str, value: Any) -> Extra:
    return Extra(NAME, kind, encode_json(value).decode())


def _logprobs(value: Any) -> str | None:
    """As chat completions have them."""
    return encode_json({"content": value}).decode() if isinstance(value, list) and value else None


class StreamDecoder(StreamReader[Answer]):
    """One stream's bytes to frames (see `StreamDecoder` in dialects/base.py). Its last event waits for the cost, as a usage would."""

    name = NAME
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Answer())

    @property
    def done(self) -> bool:
        return self._done or self.answer.finished

    def read(self, event: BlockEvent, events: list[Event]) -> int:
        data = event.data or b""
        if self.answer.finished:
            return LEAVE
        if data == b"[DONE]":  # some servers end so, though this language has no such mark
            raise Cut("the backend's stream ended before its end")
        try:
            found = wire.decode_event(data)
        except UNREADABLE:
            if event.name == b"error":
                raise stated_error(None) from None
            raise
        if found.type == "error" or event.name == b"error":
            raise stated_error(decode_any(data))
        self.answer.take(found, events)
        return USAGE if self.answer.finished else PASS


def decode_answer(body: bytes) -> Frame:
    """A whole answer. Raises ProviderError: BadAnswer for what is none, the stated kind for an error under status 200."""
    events: list[Event] = []
    with reading_answer():
        response = wire.decode_response(body)
        if response.output is None and response.error is None:
            raise BadAnswer("the backend's answer has no output")
        Answer().end(response, events)
    return Frame(events=events, wire=body, dialect=NAME, whole=True)
