"""Numbered steps with the whole answer at both ends, and a backend's own bytes between them where it speaks the language."""

from __future__ import annotations

import json
from typing import Any

from providers.dialects.item_streams import AnswerItems, ItemStream, whole_answer
from providers.dialects.items import Kind, Step
from providers.errors import Cut
from providers.types import Failed, Finished, Frame, Request, TextDelta

ASKED = Request(dialect="d", fields={}, model="m")


class Book(AnswerItems):
    prefix = "book."
    first = ("opened",)

    def new(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "id": "ours", "lines": []}

    def text(self, event: TextDelta, out: list[Step]) -> None:
        self.say("told", event.text, out)

    def finish(self, event: Finished, out: list[Step]) -> None:
        self.reason = event.reason
        self.end(out)

    def answer(self, request: Request, *, over: bool) -> dict[str, Any]:
        return {"status": "closed" if over else "open", "output": self.output if over else []}


class Stream(ItemStream):
    name = "d"


def book() -> Book:
    return Book(ASKED, "b1", {"told": Kind("page", "lines", "line", "plain")})


def steps(sent: bytes) -> list[Any]:
    return [json.loads(block.partition(b"\ndata: ")[2]) for block in sent.split(b"\n\n") if block.startswith(b"event: ")]


def test_a_stream_is_numbered_and_its_last_step_waits_for_the_cost() -> None:
    stream = Stream(ASKED, book())
    sent = stream.encode(Frame(events=[TextDelta("a")])) + stream.encode(Frame(events=[TextDelta("b"), Finished("stop")]))
    end = stream.end("0.1")
    assert end.startswith(b": tollway-cost-usd 0.1\n\nevent: book.closed\n")
    found = steps(sent + end)
    assert [step["sequence_number"] for step in found] == list(range(len(found)))
    assert (found[0]["type"], found[0]["response"]["status"]) == ("book.opened", "open")
    assert found[-1]["response"]["output"] == [{"type": "page", "id": "ours", "lines": [{"type": "plain", "text": "ab"}]}]


def test_a_whole_answer_is_what_the_stream_ends_with() -> None:
    frames = [Frame(events=[TextDelta("a"), TextDelta("b"), Finished("stop")])]
    assert json.loads(whole_answer(frames, ASKED, book(), "d"))["output"][0]["lines"] == [{"type": "plain", "text": "ab"}]
    assert whole_answer([Frame(events=[], wire=b"as it came", dialect="d", whole=True)], ASKED, book(), "d") == b"as it came"


def test_own_bytes_pass_and_an_end_that_they_lack_goes_on_from_them() -> None:
    added = {"type": "book.output_item.added", "output_index": 3, "sequence_number": 6, "item": {"id": "theirs", "type": "page"}}
    wire = b"data: " + json.dumps(added).encode() + b"\n\n"
    stream = Stream(ASKED, book())
    assert stream.encode(Frame(events=[TextDelta("a")], wire=wire, dialect="d")) == wire
    found = steps(stream.encode(Frame(events=[Finished("length")])) + stream.end(None))
    assert [step["sequence_number"] for step in found] == [7, 8, 9, 10]
    assert [step["type"] for step in found] == ["book.told.done", "book.line.done", "book.output_item.done", "book.closed"]
    assert {step["output_index"] for step in found[:3]} == {3}
    assert found[-1]["response"]["output"][0]["id"] == "theirs"


def test_an_end_of_their_own_stays_the_end() -> None:
    stream = Stream(ASKED, book())
    last = b"event: book.closed\ndata: {}\n\n"
    assert stream.encode(Frame(events=[Finished("stop")], usage_wire=last, dialect="d")) == b""
    assert stream.end("0.1") == b": tollway-cost-usd 0.1\n\n" + last


def test_a_failure_after_own_bytes_writes_nothing() -> None:
    stream = Stream(ASKED, book())
    stream.encode(Frame(events=[TextDelta("a")], wire=b"data: {}\n\n", dialect="d"))
    assert stream.encode(Frame(events=[Failed(Cut("gone"))])) == stream.end(None) == b""
