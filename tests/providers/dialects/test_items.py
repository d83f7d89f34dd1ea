"""Items open, grow and are done, one with text at a time, and every step is told."""

from __future__ import annotations

from typing import Any

from providers.dialects.items import BegunItems, Items, Kind, Step
from providers.types import Event, Request, TextDelta, ToolCallDelta

KINDS = {"told": Kind("page", "lines", "line", "plain", lists=("notes",)), "sung": Kind("song", "verses", "verse", "verse", "words")}


class Book(Items):
    prefix = "book."
    arguments = "orders"

    def new(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "id": kind[0], "status": "in_progress", "lines" if kind == "page" else "verses": []}

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        return {"type": "call", "id": event.id, "name": event.name}

    def text(self, event: TextDelta, out: list[Step]) -> None:
        self.say("sung" if event.refusal else "told", event.text, out)


def book() -> Book:
    return Book(Request(dialect="d", fields={}, model="m"), "b1", KINDS)


def test_one_item_after_another() -> None:
    made, out = book(), list[Step]()
    for event in (TextDelta("a"), TextDelta("b"), TextDelta("la", refusal=True)):
        made.take(event, out)
    made.shut(out)
    made.shut(out)  # nothing is open any more
    assert [(step["type"].removeprefix("book."), step["output_index"]) for step in out] == [
        *[("output_item.added", 0), ("line.added", 0), ("told.delta", 0), ("told.delta", 0), ("told.done", 0), ("line.done", 0)],
        ("output_item.done", 0),
        *[("output_item.added", 1), ("verse.added", 1), ("sung.delta", 1), ("sung.done", 1), ("verse.done", 1), ("output_item.done", 1)],
    ]
    assert made.output == [
        {"type": "page", "id": "p", "status": "completed", "lines": [{"type": "plain", "text": "ab", "notes": []}]},
        {"type": "song", "id": "s", "status": "completed", "verses": [{"type": "verse", "words": "la"}]},
    ]


def test_what_begins_is_told_empty_and_what_is_done_whole() -> None:
    made, out = book(), list[Step]()
    made.say("told", "a", out)["notes"].append("n")
    made.incomplete = True
    made.shut(out)
    assert out[0]["item"]["lines"] == [] and out[1]["part"] == {"type": "plain", "text": "", "notes": []}
    assert (out[2]["lines_index"], out[2]["item_id"], out[3]["text"], out[3]["notes"]) == (0, "p", "a", ["n"])
    assert out[-1]["item"] is made.output[0] and out[-1]["item"]["status"] == "incomplete"


def test_of_several_choices_the_first() -> None:
    made, out = book(), list[Step]()
    made.take(TextDelta("x", 1), out)
    made.take(ToolCallDelta(0, "{}", "c", "f", 1), out)
    assert (out, made.output) == ([], [])


def test_calls_stay_open_until_the_end_and_have_arguments_that_parse() -> None:
    made, out = book(), list[Step]()
    events = [
        ToolCallDelta(0, "", "a", "f"),
        ToolCallDelta(1, "", "b", "g"),
        ToolCallDelta(0, '{"x":'),
        ToolCallDelta(0, "1}"),
        TextDelta("t"),
    ]
    for event in events:
        made.take(event, out)
    made.end(out)
    assert [item["arguments"] for item in made.output[:2]] == ['{"x":1}', "{}"]
    told = [(step["type"].removeprefix("book."), step["output_index"]) for step in out if "orders" in step["type"]]
    assert told == [("orders.delta", 0), ("orders.delta", 0), ("orders.done", 0), ("orders.delta", 1), ("orders.done", 1)]


def test_items_of_a_backend_say_what_was_not_streamed() -> None:
    found, events = BegunItems(), list[Event]()
    assert not found
    found.call(2, ("a", "f"), None, events)
    found.argument(2, "", events)
    found.argument(7, "lost", events)  # of a call that never began
    found.call(2, ("a", "f"), ' {"x":1}', events)
    found.call(2, ("a", "f"), ' {"x":1}', events)
    found.call(3, ("b", ""), "", events)  # whole
    assert events == [ToolCallDelta(0, "", "a", "f"), ToolCallDelta(0, '{"x":1}'), ToolCallDelta(1, "{}", "b")]
    assert found and found.calls == {2: 0, 3: 1}
