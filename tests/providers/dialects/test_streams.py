"""The reader of event streams that all dialects share: which bytes pass, and what a broken stream is."""

from __future__ import annotations

import pytest

from providers import sse
from providers.dialects.rawjson import decode_any
from providers.dialects.streams import (
    DONE,
    LEAVE,
    MAX_BAD_EVENTS,
    PASS,
    REWRITE,
    USAGE,
    StreamReader,
    named_event,
    newest,
    reading_answer,
)
from providers.errors import BadAnswer, Cut, ServerFailed
from providers.types import Event, Failed, TextDelta


class State:
    def __init__(self) -> None:
        self.carried = False
        self.finished = False


class Letters(StreamReader[State]):
    """A language of one-letter events."""

    name = "letters"

    def __init__(self) -> None:
        super().__init__(State())

    def read(self, event: sse.Event, events: list[Event]) -> int:
        data = event.data or b""
        if data == b"!":
            raise ServerFailed("broke")
        if data == b"?":
            data.decode("ascii")
            b"\xff".decode()
        if data == b"x":
            return self.over()
        if data == b".":
            self.answer.finished = True
        elif data not in (b"u", b"l", b"r", b"d"):
            self.answer.carried = True
            events.append(TextDelta(data.decode()))
        return {b"u": USAGE, b"l": LEAVE, b"r": REWRITE, b"d": DONE}.get(data, PASS)

    def rewrite(self, event: sse.Event, raw: bytes) -> bytes:
        return b"<" + (event.data or b"") + b">"


def events(letters: str) -> bytes:
    return b"".join(b"data: " + letter.encode() + b"\n\n" for letter in letters)


def test_bytes_pass_are_left_out_or_written_anew():
    frame = Letters().feed(events("alrub") + b": comment\n\nevent: nothing\n\n")
    assert frame.wire == events("a") + b"<r>" + events("b") + b": comment\n\n"
    assert (frame.usage_wire, frame.dialect) == (b"<u>", "letters")
    assert frame.events == [TextDelta("a"), TextDelta("b")]
    untouched = events("abc")
    assert Letters().feed(untouched).wire == untouched


def test_nothing_is_read_after_the_end():
    reader = Letters()
    frame = reader.feed(events("adb"))
    assert (frame.wire, reader.done) == (events("a"), True)
    assert reader.feed(events("c")).wire == reader.close().wire == b""


def test_an_error_is_raised_before_anything_was_given_and_told_after_it():
    with pytest.raises(ServerFailed):
        Letters().feed(events("!"))
    reader = Letters()
    frame = reader.feed(events("a!b"))
    assert (frame.wire, reader.done) == (events("a"), True)
    assert isinstance(frame.events[-1], Failed)


def test_a_stream_without_its_end_is_cut_unless_the_answer_is_finished():
    reader = Letters()
    reader.feed(events("a"))
    last = reader.close().events[-1]
    assert isinstance(last, Failed) and isinstance(last.error, Cut)
    reader = Letters()
    reader.feed(events("a.") + b"data: b")
    frame = reader.close()
    assert (frame.events, frame.wire) == ([TextDelta("b")], b"data: b\n\n")
    with pytest.raises(Cut):
        Letters().close()


def test_a_mark_of_the_end_counts_where_the_answer_has_ended():
    reader = Letters()
    assert (reader.feed(events("a.x")).wire, reader.done) == (events("a."), True)
    last = Letters().feed(events("ax")).events[-1]
    assert isinstance(last, Failed) and isinstance(last.error, Cut)


def test_events_by_name_and_the_newest_of_a_kind():
    told = [named_event({"type": "part", "n": 1}), named_event({"type": "part", "n": 2}), named_event({"type": "ping"})]
    assert told[0] == b'event: part\ndata: {"type":"part","n":1}\n\n'
    assert newest(b"".join(told), b'"part"') == {"type": "part", "n": 2}
    assert newest(told[2], b'"part"') is newest(b"", b'"part"') is None
    assert newest(b"event: part\n: part\n\n", b"part") is None


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 100_000])
def test_a_whole_answer_that_cannot_be_read_is_a_bad_one(body: bytes):
    with pytest.raises(BadAnswer), reading_answer():
        decode_any(body)
    with pytest.raises(ServerFailed), reading_answer():
        raise ServerFailed("broke")


def test_unreadable_events_are_left_out_until_they_are_many():
    reader = Letters()
    assert reader.feed(events("a" + "?" * MAX_BAD_EVENTS + "b")).wire == events("ab")
    last = reader.feed(events("?")).events[-1]
    assert isinstance(last, Failed) and isinstance(last.error, BadAnswer)


def test_an_event_without_end_is_given_up():
    with pytest.raises(BadAnswer):
        Letters().feed(b"data: " + b"x" * (sse.MAX_EVENT_BYTES + 1))
