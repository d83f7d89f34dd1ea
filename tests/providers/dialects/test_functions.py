"""Tools, formats and reasoning, under whatever names a language has for them."""

from __future__ import annotations

import pytest
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.functions import BUDGETS, arguments_of, budget_of, effort_of, own_tools, read_format, read_tool, write_tool
from providers.errors import Rejected
from providers.types import Call, OutputFormat, Reasoning, Tool

MEMBERS = {"name": Raw(b'"f"'), "description": Raw(b'"d"'), "schema": Raw(b"{}"), "strict": Raw(b"true"), "x": Raw(b"1"), "y": Raw(b"null")}


def test_a_tool_under_a_languages_own_names():
    tool = read_tool(MEMBERS, "tools[0]", "schema", None, {"type"})
    assert tool == Tool(name="f", description="d", parameters=Raw(b"{}"), strict=True, extra={"x": Raw(b"1")})
    assert write_tool(tool, "schema") == {"name": "f", "description": "d", "schema": Raw(b"{}"), "strict": True}
    assert read_tool(MEMBERS, "tools[0]", "other", Raw(b"1")) == Tool(name="f", description="d", strict=True, cache_control=Raw(b"1"))
    assert write_tool(Tool(name="g"), "schema") == {"name": "g"}


@pytest.mark.parametrize(("name", "value"), [("name", b"null"), ("name", b"5"), ("description", b"[]")])
def test_a_tool_that_cannot_be_read_is_named(name: str, value: bytes):
    with pytest.raises(DecodeError) as refused:
        read_tool({**MEMBERS, name: Raw(value)}, "tools[3]", "schema", None)
    assert refused.value.param == f"tools[3].{name}"


def test_a_vendors_own_tools_are_left_out_and_the_others_keep_their_places():
    tools = Raw(b'[{"type":"custom","name":"a"},{"type":"web_search"},{"name":"b"},{"type":null}]')
    assert [path for path, _ in own_tools(tools, "custom")] == ["tools[0]", "tools[2]", "tools[3]"]
    assert own_tools(tools, "web_search")[0] == ("tools[1]", {"type": Raw(b'"web_search"')})
    assert own_tools(Raw(b"null"), "custom") == []


def test_a_calls_arguments_are_an_object_or_are_refused_by_their_place():
    assert bytes(arguments_of(Call("a", "f", '{"x": 1.0}'), "p")) == b'{"x": 1.0}'
    assert bytes(arguments_of(Call("a", "f", ""), "p")) == b"{}"
    for arguments in ('{"x', "[1]", "5"):
        with pytest.raises(Rejected) as refused:
            arguments_of(Call("a", "f", arguments), "messages[1].tool_calls[0]")
        assert (refused.value.param, refused.value.sent) == ("messages[1].tool_calls[0].function.arguments", False)


def test_a_format_needs_its_schema():
    assert read_format({"schema": Raw(b"{}"), "strict": Raw(b"false")}, "p") == OutputFormat(schema=Raw(b"{}"), strict=False)
    with pytest.raises(DecodeError) as refused:
        read_format({"schema": Raw(b"null")}, "p")
    assert refused.value.param == "p"


def test_a_budget_and_its_effort_are_one_table():
    assert [effort_of(Reasoning(budget_tokens=BUDGETS[word])) for word in ("low", "medium", "high")] == ["low", "medium", "high"]
    assert budget_of(Reasoning(effort="low")) == 2048 and budget_of(Reasoning()) == budget_of(Reasoning(effort="news")) == 8192
    assert (effort_of(Reasoning()), effort_of(Reasoning(effort="max")), budget_of(Reasoning(budget_tokens=5))) == ("medium", "xhigh", 5)
