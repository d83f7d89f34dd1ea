"""One event stream from upstream to frames, as every dialect reads it: events that pass as they are, are left out or written anew.

A dialect says what an event means (`read`); this keeps the bytes beside the events and decides what a broken stream is. Knows no
language.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from providers.dialects.base import UNREADABLE
from providers.dialects.rawjson import decode_any, encode_json
from providers.errors import BadAnswer, Cut, ProviderError
from providers.sse import Block, Event, EventTooLarge, Parser
from providers.types import Event as AnswerEvent
from providers.types import Failed, Frame

MAX_BAD_EVENTS = 16  # unreadable events of one stream that are left out before it is given up
PASS, LEAVE, USAGE, REWRITE, DONE = range(5)  # what becomes of an event's bytes; USAGE: into the frame's usage_wire
_CUT = "the backend's stream ended before its end"


def cost_comment(cost: str | None) -> bytes:
    """What a stream says of its cost, in USD, before its end: clients skip comments."""
    return b"" if cost is None else b": tollway-cost-usd " + cost.encode() + b"\n\n"


def plain_event(event: Event) -> bytes:
    """An event's data alone, without its other fields."""
    return b"".join([b"data: " + line + b"\n" for line in (event.data or b"").split(b"\n")]) + b"\n"


def named_event(data: dict[str, Any]) -> bytes:
    """An event under the name of its data's `type`, as languages have it whose events are named."""
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), encode_json(data))


def newest(events: bytes, mark: bytes) -> Any:
    """The data of the last event in whole bytes of a stream whose line of data has the mark; None where none has."""
    for line in reversed(events.splitlines()):
        if line.startswith(b"data:") and mark in line:
            return decode_any(line[5:])
    return None


@contextmanager
def reading_answer() -> Iterator[None]:
    """Around the decoding of a whole answer. Raises BadAnswer for what cannot be read."""
    try:
        yield
    except UNREADABLE as fault:
        raise BadAnswer(f"the backend's answer cannot be read: {str(fault)[:200]}") from None


class Answer(Protocol):
    """What an answer has brought so far. carried: an event that carries something was given away. finished: every choice has ended."""

    @property
    def carried(self) -> bool: ...

    @property
    def finished(self) -> bool: ...


Said = TypeVar("Said", bound=Answer)


class StreamReader(Generic[Said]):
    """A dialect's StreamDecoder (see dialects/base.py) but for what its events mean."""

    name = ""
    __slots__ = ("_bad", "_done", "_parser", "answer")

    def __init__(self, answer: Said) -> None:
        self.answer = answer
        self._parser = Parser()
        self._bad = 0
        self._done = False

    def read(self, event: Event, events: list[AnswerEvent]) -> int:
        """Append what one event says; what becomes of its bytes. Raises ProviderError, or msgspec's for one that cannot be read."""
        raise NotImplementedError

    def over(self) -> int:
        """A mark of the end that the language itself does not have. Raises Cut where the answer has not ended before it."""
        if not self.answer.finished:
            raise Cut(_CUT)
        return DONE

    def rewrite(self, event: Event, raw: bytes) -> bytes:
        """The event as a client should get it: as it came, unless a dialect says otherwise."""
        return raw[event.start : event.end]

    @property
    def done(self) -> bool:
        return self._done

    def feed(self, data: bytes) -> Frame:
        if self._done:
            return Frame(events=[], dialect=self.name)
        try:
            block = self._parser.feed(data)
        except EventTooLarge as error:
            return self._fail(BadAnswer(str(error)), Frame(events=[], dialect=self.name))
        return self._frame(block)

    def close(self) -> Frame:
        if self._done:
            return Frame(events=[], dialect=self.name)
        frame = self._frame(self._parser.close())
        if frame.wire:
            frame.wire += b"\n\n"
        if frame.usage_wire:
            frame.usage_wire += b"\n\n"
        if not self._done:
            self._done = True
            if not self.answer.finished:
                return self._fail(Cut(_CUT), frame)
        return frame

    def _frame(self, block: Block) -> Frame:
        frame = Frame(events=[], dialect=self.name)
        kept: list[bytes] | None = None  # None: every byte so far goes on as it is
        raw, at = block.raw, 0
        for event in block.events:
            try:
                verdict = self._read(event, frame.events)
            except ProviderError as error:
                frame.wire = b"".join([*(kept or ()), raw[at : event.start]])
                return self._fail(error, frame)
            if verdict == PASS:
                continue
            if kept is None:
                kept = []
            kept.append(raw[at : event.start])
            at = event.end
            if verdict == USAGE:
                frame.usage_wire += self.rewrite(event, raw)
            elif verdict == REWRITE:
                kept.append(self.rewrite(event, raw))
            elif verdict == DONE:
                self._done = True
                at = len(raw)
                break
        frame.wire = raw if kept is None else b"".join([*kept, raw[at:]])
        return frame

    def _read(self, event: Event, events: list[AnswerEvent]) -> int:
        """An event that cannot be read is left out, so that the rest of a good stream is not lost with it; many are too many."""
        if event.data is None:
            return PASS if event.plain else LEAVE
        try:
            return self.read(event, events)
        except UNREADABLE:
            self._bad += 1
            if self._bad > MAX_BAD_EVENTS:
                raise BadAnswer(f"the backend's stream has more than {MAX_BAD_EVENTS} unreadable events") from None
            return LEAVE

    def _fail(self, error: ProviderError, frame: Frame) -> Frame:
        """Before anything was given away the error is raised; after it, it ends the stream's events."""
        self._done = True
        if not self.answer.carried:
            raise error
        frame.events.append(Failed(error))
        return frame
