"""Blocks of an answer, to a client and from a backend."""

from __future__ import annotations

import json
from typing import Any

from providers.dialects.blocks import Blocks, OpenBlocks, Step
from providers.types import Event, Finished, Frame, ReasoningDelta, Request, TextDelta, ToolCallDelta

REQUEST = Request(dialect="d", fields={}, model="m")


class Plain(Blocks):
    def empty(self, kind: str) -> dict[str, Any]:
        return {"type": kind}

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        return {"type": "call", "id": event.id}

    def argument(self, piece: str) -> dict[str, Any]:
        return {"piece": piece}

    def add(self, block: dict[str, Any], delta: dict[str, Any]) -> None:
        block.update({name: block.get(name, "") + value for name, value in delta.items()})

    def text(self, event: TextDelta, out: list[Step]) -> None:
        self.piece("text", {"text": event.text}, out)

    def think(self, event: ReasoningDelta, out: list[Step]) -> None:
        self.whole({"type": "thinking", "text": event.text}, out)


def test_a_block_is_over_when_the_next_one_begins():
    made, out = Plain(REQUEST, "i"), list[Step]()
    events: list[Event] = [TextDelta("a"), TextDelta("b"), ReasoningDelta("c"), ToolCallDelta(0, "", "x", "f"), ToolCallDelta(0, "1")]
    for event in [*events, ToolCallDelta(1, "null", "y", "g"), TextDelta("no", 1), Finished("stop"), Finished("length")]:
        made.take(event, out)
    made.close(out)
    made.close(out)
    assert [(step, index) for step, index, _ in out] == [
        *(("start", 0), ("delta", 0), ("delta", 0), ("stop", 0), ("start", 1), ("stop", 1)),
        *(("start", 2), ("delta", 2), ("stop", 2), ("start", 3), ("stop", 3)),
    ]
    assert out[7][2] == {"piece": "1"} and made.ended == Finished("stop")


def test_a_whole_answer_is_made_of_the_same_steps():
    frames = [Frame(events=[TextDelta("a"), TextDelta("b")]), Frame(events=[ToolCallDelta(0, "1", "x", "f"), ToolCallDelta(0, "2")])]
    assert Plain(REQUEST, "i").collected(frames) == [{"type": "text", "text": "ab"}, {"type": "call", "id": "x", "piece": "12"}]


def test_blocks_of_a_backend_by_their_place():
    blocks, events = OpenBlocks(), list[Event]()
    blocks.begin(0, "text", b"{}")
    for index, given in ((3, b"{}"), (5, b'{"a":1}')):
        blocks.call(blocks.begin(index, "call", b"{}"), f"id{index}", "f", given, events)
    blocks.argument(3, "", events)
    blocks.argument(9, "x", events)
    for index in (0, 3, 5, 9):
        blocks.end(index, events)
    assert events == [ToolCallDelta(0, "", "id3", "f"), ToolCallDelta(1, '{"a":1}', "id5", "f"), ToolCallDelta(0, "{}")]


def test_a_block_of_another_kind_is_put_together():
    blocks, events = OpenBlocks(), list[Event]()
    block = blocks.begin(0, "odd", b'{"type":"odd","input":{}}')
    for piece in ('{"q"', ":1}"):
        blocks.argument(0, piece, events)
    assert blocks.end(0, events) is block and events == []
    assert json.loads(block.whole("input")) == {"type": "odd", "input": {"q": 1}}
    block.pieces.append("broken")
    assert json.loads(block.whole("input")) == {"type": "odd", "input": {}}
