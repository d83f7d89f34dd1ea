"""What a chat request asks for beside its messages, to the neutral model and from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import PLAIN, DecodeError, Quirks
from providers.dialects.openai_chat.parameters import decode_parameters, encode_parameters
from providers.dialects.openai_chat.requests import decode_request
from providers.errors import Unsupported
from providers.types import OutputFormat, Parameters, Reasoning, Request, Tool, ToolChoice

HI = [{"role": "user", "content": "hi"}]
TAKES = Quirks(takes=frozenset({"reasoning_effort", "top_k"}))


def asked(**members: Any) -> Parameters:
    return decode_parameters(decode_request(json.dumps({"model": "m", "messages": HI, **members}, separators=(",", ":")).encode()))


def written(parameters: Parameters, quirks: Quirks = PLAIN, **request: Any) -> tuple[dict[str, Any], list[str]]:
    fields, dropped = encode_parameters(Request(**{"dialect": "other", "fields": {}, "model": "m", **request}), parameters, quirks)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}, dropped


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, Parameters()),
        ({"stop": "END", "top_p": 0.5}, Parameters(stop=("END",), top_p=0.5)),
        ({"stop": ["a", "b"]}, Parameters(stop=("a", "b"))),
        ({"tool_choice": "required", "parallel_tool_calls": False}, Parameters(tool_choice=ToolChoice("required"), parallel_calls=False)),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, Parameters(tool_choice=ToolChoice("tool", "f"))),
        ({"tool_choice": "any"}, Parameters(tool_choice=ToolChoice("required"))),
        ({"tool_choice": {"function": {"name": "f"}}}, Parameters(tool_choice=ToolChoice("tool", "f"))),
        ({"response_format": {"type": "text"}}, Parameters()),
        ({"response_format": {"type": "json_object"}}, Parameters(output_format=OutputFormat())),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": True}}},
            Parameters(output_format=OutputFormat(schema=Raw(b'{"a":1}'), name="n", strict=True)),
        ),
        ({"reasoning_effort": "low"}, Parameters(reasoning=Reasoning(effort="low", named="reasoning_effort"))),
        ({"user": "u", "safety_identifier": "s"}, Parameters(user="u")),
        ({"safety_identifier": "s"}, Parameters(user="s")),
        ({"store": False, "service_tier": "auto", "modalities": ["text"], "n": 1, "logprobs": False}, Parameters()),
        ({"seed": 7, "logit_bias": {"5": 1}}, Parameters(refused={"logit_bias": Raw(b'{"5":1}')}, dropped={"seed": Raw(b"7")})),
    ],
)
def test_to_the_neutral_model(members: dict[str, Any], expected: Parameters):
    assert asked(**members) == expected


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tool_choice": "news"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_what_cannot_pass_is_named(members: dict[str, Any], param: str):
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (Reasoning(effort="high"), "high"),
        (Reasoning(effort="max"), "xhigh"),
        (Reasoning(budget_tokens=2048), "low"),
        (Reasoning(budget_tokens=8000), "medium"),
        (Reasoning(budget_tokens=9000), "high"),
        (Reasoning(), "medium"),
    ],
)
def test_thinking_becomes_an_effort_where_the_target_takes_it(reasoning: Reasoning, effort: str):
    assert written(Parameters(reasoning=reasoning), TAKES) == ({"reasoning_effort": effort}, [])
    assert written(Parameters(reasoning=reasoning)) == ({}, ["reasoning"])
    assert written(Parameters(reasoning=Reasoning(effort="none")), TAKES) == ({}, [])


def test_fields_of_a_kindred_language_keep_their_names_and_others_do_not():
    parameters = Parameters(refused={"logit_bias": Raw(b"{}")}, dropped={"service_tier": Raw(b'"flex"'), "container": Raw(b"1")})
    assert written(parameters, dialect="openai_responses") == ({"logit_bias": {}, "service_tier": "flex"}, ["container"])
    with pytest.raises(Unsupported):
        written(parameters)


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
formats = st.sampled_from([None, OutputFormat(), OutputFormat(schema=Raw(b'{"a":1}'), name="n", description="d", strict=False)])
parameters = st.builds(
    Parameters,
    top_p=st.none() | st.floats(0, 0.9),
    stop=st.lists(words, max_size=3).map(tuple),
    tool_choice=st.sampled_from([None, ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f")]),
    parallel_calls=st.none() | st.booleans(),
    output_format=formats,
    reasoning=st.sampled_from([None, Reasoning(effort="low", named="reasoning_effort")]),
    user=st.none() | words,
)


@given(parameters)
def test_parameters_survive_the_wire(wanted):
    found, dropped = written(wanted, TAKES, decoded_tools=(Tool(name="f"),))
    assert asked(**found) == wanted and dropped == []


@pytest.mark.parametrize(
    ("wanted", "known", "sent"),
    [
        ("max", (), "xhigh"),
        ("xhigh", ("low", "medium", "high"), "high"),
        ("minimal", ("low", "medium", "high"), "low"),
        ("medium", ("low", "high"), "low"),
        ("high", ("none", "low", "high"), "high"),
        ("minimal", ("none", "low"), "low"),
        ("of-tomorrow", ("low",), "of-tomorrow"),
    ],
)
def test_an_effort_is_said_in_a_word_that_the_model_knows(wanted, known, sent):
    quirks = Quirks(takes=frozenset({"reasoning_effort"}), efforts=known)
    request = Request(dialect="other", fields={}, model="m")
    found, dropped = encode_parameters(request, Parameters(reasoning=Reasoning(effort=wanted)), quirks)
    assert json.loads(bytes(found["reasoning_effort"])) == sent and dropped == []
