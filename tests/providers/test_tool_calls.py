"""Tool calls in a model's text: every form, at every cut, in order; what is none stays text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from providers.errors import Rejected
from providers.tool_calls import MAX_CALL_CHARS, CallReader, described, grammar, guided, instructions, parameters_of, written
from providers.types import Call, TextDelta, Tool, ToolCallDelta

WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Pa}ris \\"x\\" {", "days": [1, {"a": 2}]}}\n</tool_call>'
TIME = '<tool_call>{"name":"time","arguments":{}}</tool_call>'
LIST = '<tool_call>[{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}]</tool_call>'
LATE = '<tool_call>{"arguments": {"x": 1}, "name": "a"}</tool_call>'


def read(*pieces: str) -> tuple[str, list[tuple[str, Any]]]:
    """All text, and each call's name with its arguments."""
    reader = CallReader(2)
    events = [event for piece in pieces for event in reader.push(piece)] + reader.finish()
    assert all(event.choice == 2 for event in events if isinstance(event, TextDelta | ToolCallDelta))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls: dict[int, tuple[str, list[str]]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            if event.name is not None:
                assert event.id and event.index == len(calls)
                calls[event.index] = (event.name, [])
            calls[event.index][1].append(event.arguments)
    assert reader.calls == len(calls)
    return text, [(name, json.loads("".join(said))) for name, said in calls.values()]


@pytest.mark.parametrize(
    ("written_", "text", "calls"),
    [
        ("Hello <b>there</b>\n", "Hello <b>there</b>\n", []),
        (WEATHER, "", [("weather", {"city": 'Pa}ris "x" {', "days": [1, {"a": 2}]})]),
        (
            f"Let me see.\n\n{WEATHER}\n{TIME}\n",
            "Let me see.",
            [("weather", {"city": 'Pa}ris "x" {', "days": [1, {"a": 2}]}), ("time", {})],
        ),
        (f"\n{LIST}", "", [("a", {"x": 1}), ("b", {})]),
        (LATE, "", [("a", {"x": 1})]),
        ('<tool_call>{"name": "a", "parameters": {"x": 1}}</tool_call>', "", [("a", {"x": 1})]),
        ('<tool_call>{"name": "a"}</tool_call>', "", [("a", {})]),
        ('<tool_call>[{"name": "a", "arguments": {}}]', "", [("a", {})]),  # without its closing tag, but whole
        ("<tool_call>call me</tool_call> please", "<tool_call>call me</tool_call> please", []),
        ("<tool_call>[]</tool_call>", "<tool_call>[]</tool_call>", []),
        ('<tool_call>{"name": 5}', '<tool_call>{"name": 5}', []),
        ("a <tool", "a <tool", []),
        ("", "", []),
    ],
)
def test_calls_and_text_at_every_cut(written_: str, text: str, calls: list[tuple[str, Any]]) -> None:
    assert read(written_) == (text, calls)
    assert read(*written_) == (text, calls)
    for at in range(len(written_)):
        assert read(written_[:at], written_[at:]) == (text, calls)


@given(
    st.lists(
        st.sampled_from(["hi ", "<tool", "_call>", "</tool_call>", '{"name":"f",', '"arguments":{', '"a":1', "}", "\n", WEATHER, TIME]),
        max_size=12,
    )
)
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_and_cuts_make_no_difference(pieces: list[str]) -> None:
    def outcome(*parts: str) -> tuple[str, int]:
        reader = CallReader()
        events = [event for part in parts for event in reader.push(part)] + reader.finish()
        return "".join(event.text for event in events if isinstance(event, TextDelta)), reader.calls

    whole = "".join(pieces)
    text, calls = outcome(whole)
    assert outcome(*pieces) == outcome(*whole) == (text, calls)
    if calls == 0:
        assert text == whole


def test_arguments_stream_before_the_call_ends() -> None:
    reader = CallReader()
    begun = reader.push('<tool_call>\n{"name": "f", "arguments": {"text": "one ')
    assert [(event.name, event.arguments) for event in begun if isinstance(event, ToolCallDelta)] == [("f", ""), (None, '{"text": "one ')]
    more = reader.push("two")
    assert [event.arguments for event in more if isinstance(event, ToolCallDelta)] == ["two"]
    assert reader.finish() == []  # cut by the limit: what came stays


@pytest.mark.parametrize("tail", ["", "}", "}\n", "}\n<", "}\n</tool_call", " }</tool"])
def test_the_end_of_a_call_that_is_cut_is_no_text(tail: str) -> None:
    reader = CallReader()
    events = reader.push('<tool_call>\n{"name": "f", "arguments": {"a": 1}' + tail) + reader.finish()
    assert not reader.cut and not any(isinstance(event, TextDelta) for event in events)


def test_arguments_without_an_end_are_known() -> None:
    reader = CallReader()
    reader.push('<tool_call>\n{"name": "f", "arguments": {"a": {}')
    assert reader.finish() == [] and reader.cut


def test_a_call_that_never_ends_is_text_before_it_takes_all_memory() -> None:
    reader = CallReader()
    reader.push("<tool_call>")
    events = [event for _ in range(70) for event in reader.push("x" * (MAX_CALL_CHARS // 64))]
    assert isinstance(events[0], TextDelta) and events[0].text.startswith("<tool_call>xxx")


TOOL = Tool(name="f", description="Does f.", parameters=Raw(b'{"type":"object","properties":{"x":{"type":"integer"}}}'), strict=True)


def test_tools_are_told_as_templates_want_them() -> None:
    assert described([TOOL, Tool(name="g")]) == [
        {
            "type": "function",
            "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
        {"type": "function", "function": {"name": "g", "description": "", "parameters": {"type": "object"}}},
    ]
    assert '"name": "f"' in instructions([TOOL]) and "<tool_call>" in instructions([TOOL])
    assert read(written(Call("c", 'we"ird', '{"a": 1}'))) == ("", [('we"ird', {"a": 1})])
    for no_object in (b"[1]", b'{"type":"string"}', b'{"type":["object","null"]}'):
        with pytest.raises(Rejected, match="the parameters of f must be a JSON schema of an object") as wrong:
            parameters_of(Tool(name="f", parameters=Raw(no_object)))
        assert wrong.value.param == "tools"


def test_grammars_name_every_tool_and_strictness() -> None:
    rules = grammar([TOOL, Tool(name="g")], forced=True, several=True)
    assert 'start: call ("\\n" call)*' in rules and '\\"name\\": \\"g\\"' in rules
    assert '"lenient": false' in rules.split("call_1:")[0] and '"lenient": true' in rules.split("call_1:")[1]
    assert guided({"type": "string"}, strict=True)["x-guidance"]["lenient"] is False
