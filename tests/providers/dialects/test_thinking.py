"""Thinking in members of a message: of an earlier turn, to and from the wire, and in an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects.openai_chat.content import decode_messages, encode_messages
from providers.dialects.thinking import details_of, parts, reasoning_of, thought
from providers.types import Event, Message, Part, ReasoningDelta, RedactedThinking, Text, TextDelta, Thinking


def read(**members: Any) -> tuple[tuple[Part, ...], set[str]]:
    raw = {name: Raw(json.dumps(value).encode()) for name, value in members.items()}
    return reasoning_of(raw, "path"), set(raw)


SIGNED = {"type": "reasoning.text", "text": "", "signature": "s"}


@pytest.mark.parametrize(
    ("members", "parts", "left"),
    [
        ({}, (), set()),
        ({"reasoning_content": "hm"}, (Thinking("hm"),), set()),
        ({"reasoning_content": "hm", "reasoning_details": [SIGNED]}, (Thinking("hm", "s"),), set()),
        ({"reasoning_content": "hm", "reasoning_details": [{**SIGNED, "text": "hm"}]}, (Thinking("hm", "s"),), set()),
        (
            {"reasoning": "hm", "reasoning_details": [{**SIGNED, "text": "hm", "format": "anthropic-claude-v1"}]},
            (Thinking("hm", "s"),),
            set(),
        ),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, (RedactedThinking("x"),), set()),
        (
            {
                "reasoning_content": "hm",
                "reasoning_details": [{**SIGNED, "index": 0}, {"type": "reasoning.encrypted", "data": "x", "index": 1}],
            },
            (Thinking("hm", "s"), RedactedThinking("x")),
            set(),
        ),
        ({"reasoning_content": "hm", "reasoning_details": [SIGNED, SIGNED]}, (Thinking("hm"),), {"reasoning_details"}),
        (
            {
                "reasoning_content": "hm",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "format": "openai-responses-v1"}],
            },
            (Thinking("hm"),),
            {"reasoning_details"},
        ),
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "format": None, "id": "rs_1", "index": 0}]},
            (),
            {"reasoning_details"},
        ),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "x"}]}, (), {"reasoning_details"}),
    ],
)
def test_thinking_of_an_earlier_turn(members: dict[str, Any], parts: tuple[Part, ...], left: set[str]):
    assert read(**members) == (parts, left)


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
thoughts = st.lists(st.builds(Thinking, words, words) | st.builds(RedactedThinking, words), min_size=1, max_size=3)


@given(thoughts)
def test_signed_thinking_survives_the_wire(turn):
    raw = {name: Raw(json.dumps(value).encode()) for name, value in details_of(turn).items()}
    assert reasoning_of(raw, "path") == tuple(turn) and raw == {}
    message = Message(role="assistant", content=(*turn, Text("a"), Text("b")))
    assert decode_messages(encode_messages([message])) == (message,)


# ---- in an answer -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("named", "details", "expected"),
    [
        (None, None, []),
        ("hm", None, [ReasoningDelta("hm")]),
        ("hm", [{"type": "reasoning.text", "text": "hm", "signature": "s"}], [ReasoningDelta("hm", signature="s")]),
        (None, [{"type": "reasoning.summary", "summary": "hm"}, "odd"], [ReasoningDelta("hm")]),
        (None, [{"type": "reasoning.encrypted", "data": "x"}], [ReasoningDelta(redacted="x")]),
        ({"odd": 1}, 5, []),
    ],
)
def test_one_thought_however_often_it_is_repeated(named: Any, details: Any, expected: list[Event]):
    events: list[Event] = []
    thought(named, details, 0, events)
    assert events == expected


def test_content_of_parts_has_thinking_among_its_text():
    events: list[Event] = []
    parts(
        [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "So"}, "odd", {"type": "x"}],
        1,
        events,
    )
    parts({"text": "lone"}, 0, events)
    parts([{"type": "thinking", "thinking": "hm", "signature": "s"}], 0, events)
    assert events == [ReasoningDelta("hm", 1), TextDelta("So", 1), TextDelta("lone"), ReasoningDelta("hm", signature="s")]
