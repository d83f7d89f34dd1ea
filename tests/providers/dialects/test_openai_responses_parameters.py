"""What a responses request asks for beside its items, to the neutral model and from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import PLAIN, DecodeError, Quirks
from providers.dialects.openai_responses.parameters import decode_parameters, encode_parameters
from providers.dialects.openai_responses.requests import decode_request
from providers.errors import Unsupported
from providers.types import OutputFormat, Parameters, Reasoning, Request, Tool, ToolChoice

TAKES = Quirks(takes=frozenset({"reasoning_effort", "top_k"}))
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True}
NULL = Raw(b"null")


def asked(**members: Any) -> Parameters:
    return decode_parameters(decode_request(json.dumps({"model": "m", "input": "hi", **members}, separators=(",", ":")).encode()))


def written(parameters: Parameters, quirks: Quirks = PLAIN, **request: Any) -> tuple[dict[str, Any], list[str]]:
    fields, dropped = encode_parameters(Request(**{"dialect": "other", "fields": {}, "model": "m", **request}), parameters, quirks)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}, dropped


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, Parameters()),
        (
            {"top_p": 0.5, "tool_choice": "required", "parallel_tool_calls": False},
            Parameters(top_p=0.5, tool_choice=ToolChoice("required"), parallel_calls=False),
        ),
        ({"tool_choice": {"type": "function", "name": "f"}}, Parameters(tool_choice=ToolChoice("tool", "f"))),
        ({"text": {"format": {"type": "text"}}}, Parameters()),
        ({"text": {"format": None}}, Parameters()),
        ({"text": {"format": {"type": "json_object"}}}, Parameters(output_format=OutputFormat())),
        ({"text": {"format": SCHEMA}}, Parameters(output_format=OutputFormat(schema=Raw(b'{"a":1}'), name="n", strict=True))),
        ({"text": {"verbosity": "low"}}, Parameters(dropped={"verbosity": Raw(b'"low"')})),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, Parameters(reasoning=Reasoning(effort="low", named="reasoning.effort"))),
        ({"reasoning": {"summary": "auto", "effort": None}}, Parameters(dropped={"reasoning.summary": NULL})),
        ({"reasoning": {"context": "all_turns"}}, Parameters(dropped={"reasoning.context": NULL})),
        ({"user": "u", "safety_identifier": "s"}, Parameters(user="u")),
        ({"safety_identifier": "s"}, Parameters(user="s")),
        ({"include": ["reasoning.encrypted_content"]}, Parameters()),
        ({"include": ["message.output_text.logprobs"]}, Parameters(refused={"logprobs": Raw(b"true")})),
        ({"top_logprobs": 2}, Parameters(refused={"top_logprobs": Raw(b"2"), "logprobs": Raw(b"true")})),
        ({"store": False, "service_tier": "auto", "truncation": "disabled", "metadata": {}, "top_logprobs": 0}, Parameters()),
        ({"context_management": [{"type": "compaction"}]}, Parameters(refused={"context_management": Raw(b'[{"type":"compaction"}]')})),
        ({"truncation": "auto", "max_tool_calls": 3}, Parameters(dropped={"truncation": Raw(b'"auto"'), "max_tool_calls": Raw(b"3")})),
    ],
)
def test_to_the_neutral_model(members: dict[str, Any], expected: Parameters) -> None:
    assert asked(**members) == expected


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tool_choice": "news"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format"),
    ],
)
def test_what_cannot_pass_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (Reasoning(effort="high"), "high"),
        (Reasoning(effort="max"), "xhigh"),
        (Reasoning(budget_tokens=2048), "low"),
        (Reasoning(), "medium"),
    ],
)
def test_thinking_becomes_an_effort_where_the_target_takes_it(reasoning: Reasoning, effort: str) -> None:
    encrypted = {"include": ["reasoning.encrypted_content"]}  # a model that reasons gives what carries its reasoning to the next turn
    assert written(Parameters(reasoning=reasoning), TAKES) == ({"reasoning": {"effort": effort}, **encrypted}, [])
    assert written(Parameters(reasoning=reasoning)) == ({}, ["reasoning"])
    assert written(Parameters(reasoning=Reasoning(effort="none")), TAKES) == (encrypted, [])


def test_fields_of_a_kindred_language_keep_their_names_and_others_do_not() -> None:
    parameters = Parameters(refused={"logprobs": Raw(b"true")}, dropped={"service_tier": Raw(b'"flex"'), "seed": Raw(b"1")})
    kept = {"service_tier": "flex", "include": ["message.output_text.logprobs"]}
    assert written(parameters, dialect="openai_chat") == (kept, ["seed"])
    with pytest.raises(Unsupported):
        written(parameters)
    assert written(Parameters(top_k=5)) == ({}, ["top_k"])
    assert written(Parameters(top_k=5), TAKES)[0]["top_k"] == 5


@pytest.mark.parametrize(
    ("parameters", "request_of", "param"),
    [(Parameters(stop=("a",)), {}, "stop"), (Parameters(), {"n": 2}, "n"), (Parameters(refused={"container": Raw(b"1")}), {}, "container")],
)
def test_what_this_language_cannot_say_is_refused_by_name(parameters: Parameters, request_of: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as refused:
        written(parameters, **request_of)
    assert refused.value.param == param and not refused.value.sent


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
formats = st.sampled_from([None, OutputFormat(), OutputFormat(schema=Raw(b'{"a":1}'), name="n", description="d", strict=False)])
parameters = st.builds(
    Parameters,
    top_p=st.none() | st.floats(0, 0.9),
    tool_choice=st.sampled_from([None, ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f")]),
    parallel_calls=st.none() | st.booleans(),
    output_format=formats,
    reasoning=st.sampled_from([None, Reasoning(effort="low", named="reasoning.effort")]),
    user=st.none() | words,
)


@given(parameters)
def test_parameters_survive_the_wire(wanted: Parameters) -> None:
    found, dropped = written(wanted, TAKES, decoded_tools=(Tool(name="f"),))
    assert asked(**found) == wanted and dropped == []
