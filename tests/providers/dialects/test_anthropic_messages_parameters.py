"""What a messages request asks for beside its messages, to the neutral model and from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import PLAIN, DecodeError, Quirks
from providers.dialects.anthropic_messages.parameters import decode_parameters, encode_parameters
from providers.dialects.anthropic_messages.requests import decode_request
from providers.errors import Unsupported
from providers.types import Message, OutputFormat, Parameters, Reasoning, Request, Tool, ToolChoice

HI = [{"role": "user", "content": "hi"}]


def asked(**members: Any) -> Parameters:
    return decode_parameters(
        decode_request(json.dumps({"model": "m", "max_tokens": 9, "messages": HI, **members}, separators=(",", ":")).encode())
    )


def written(parameters: Parameters, quirks: Quirks = PLAIN, limit: int = 100_000, **request: Any) -> tuple[dict[str, Any], list[str]]:
    base: dict[str, Any] = {"dialect": "other", "fields": {}, "model": "m", "decoded": (Message(role="user", content="hi"),)}
    fields, dropped = encode_parameters(Request(**{**base, **request}), parameters, limit, quirks)
    return {name: json.loads(bytes(value)) for name, value in fields.items() if name not in ("max_tokens",)}, dropped


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, Parameters()),
        ({"top_p": 0.5, "top_k": 3, "stop_sequences": ["a", "b"]}, Parameters(top_p=0.5, top_k=3, stop=("a", "b"))),
        ({"tool_choice": {"type": "auto"}}, Parameters(tool_choice=ToolChoice("auto"))),
        ({"tool_choice": {"type": "none"}}, Parameters(tool_choice=ToolChoice("none"))),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            Parameters(tool_choice=ToolChoice("required"), parallel_calls=False),
        ),
        ({"tool_choice": {"type": "tool", "name": "f"}}, Parameters(tool_choice=ToolChoice("tool", "f"))),
        ({"metadata": {"user_id": "u"}}, Parameters(user="u")),
        ({"metadata": {"user_id": "u", "x": 1}}, Parameters(user="u", dropped={"metadata": Raw(b'{"user_id":"u","x":1}')})),
        ({"thinking": {"type": "disabled"}}, Parameters(reasoning=Reasoning(effort="none", named="thinking"))),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, Parameters(reasoning=Reasoning(budget_tokens=2000, named="thinking"))),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            Parameters(reasoning=Reasoning(effort="high", named="thinking")),
        ),
        ({"output_config": {"effort": "low"}}, Parameters(reasoning=Reasoning(effort="low", named="output_config.effort"))),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
            Parameters(output_format=OutputFormat(schema=Raw(b'{"a":1}'))),
        ),
        ({"output_format": {"type": "json_schema", "schema": {}}}, Parameters(output_format=OutputFormat(schema=Raw(b"{}")))),
        ({"service_tier": "auto", "speed": "standard", "mcp_servers": []}, Parameters()),
    ],
)
def test_to_the_neutral_model(members: dict[str, Any], expected: Parameters):
    assert asked(**members) == expected


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tool_choice": {"type": "news"}}, "tool_choice.type"),
        ({"output_config": {"format": {"type": "news"}}}, "output_config.format"),
        ({"output_format": {"type": "json_schema"}}, "output_config.format"),
    ],
)
def test_what_cannot_be_read_is_named(members: dict[str, Any], param: str):
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("effort", "limit", "budget"),
    [
        ("minimal", 100_000, 1024),
        ("low", 100_000, 2048),
        ("medium", 100_000, 8192),
        ("high", 100_000, 16384),
        ("xhigh", 100_000, 32768),
        ("high", 5000, 3976),
        ("low", 2048, 1024),
    ],
)
def test_an_effort_becomes_a_budget_that_leaves_room_for_the_answer(effort: str, limit: int, budget: int):
    found, dropped = written(Parameters(reasoning=Reasoning(effort=effort)), limit=limit)
    assert found == {"thinking": {"type": "enabled", "budget_tokens": budget}} and dropped == []


def test_thinking_that_is_not_possible_is_named():
    wanted = Reasoning(effort="low", named="reasoning_effort")
    assert written(Parameters(reasoning=wanted), limit=2047) == ({}, ["reasoning_effort"])
    forced = Parameters(reasoning=wanted, tool_choice=ToolChoice("required"))
    assert written(forced, decoded_tools=(Tool(name="f"),)) == ({"tool_choice": {"type": "any"}}, ["reasoning_effort"])
    assert written(Parameters(reasoning=Reasoning(effort="none"))) == ({}, [])


def test_models_that_think_as_they_see_fit():
    adaptive = Quirks(takes=frozenset({"adaptive_thinking"}))
    found, _ = written(Parameters(reasoning=Reasoning(effort="minimal")), adaptive)
    assert found == {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}


def test_sampling_is_left_out_beside_thinking():
    found, dropped = written(Parameters(reasoning=Reasoning(effort="low"), top_p=0.5, top_k=3), temperature=0.2)
    assert set(found) == {"thinking"} and dropped == ["temperature", "top_p", "top_k"]


@pytest.mark.parametrize(
    ("parameters", "request_members", "param"),
    [
        (Parameters(), {"n": 2}, "n"),
        (Parameters(), {"temperature": 1.2}, "temperature"),
        (Parameters(output_format=OutputFormat()), {}, "response_format"),
        (Parameters(refused={"logit_bias": Raw(b'{"5":1}')}), {}, "logit_bias"),
    ],
)
def test_what_this_language_cannot_say_is_refused_by_name(parameters: Parameters, request_members: dict[str, Any], param: str):
    with pytest.raises(Unsupported) as refused:
        written(parameters, **request_members)
    assert refused.value.param == param and not refused.value.sent


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
choices = st.sampled_from([ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f")])
wishes = st.sampled_from([Reasoning(budget_tokens=2000, named="thinking"), None])
parameters = st.builds(
    Parameters,
    stop=st.lists(words, max_size=3).map(tuple),
    tool_choice=st.none() | choices,
    output_format=st.none() | st.just(OutputFormat(schema=Raw(b'{"type":"object"}'))),
    user=st.none() | words,
    top_k=st.none() | st.integers(0, 99),
    top_p=st.none() | st.floats(0, 0.9),
)


@given(parameters)
def test_parameters_survive_the_wire(wanted):
    found, dropped = written(wanted, decoded_tools=(Tool(name="f"),))
    assert asked(**found) == wanted and dropped == []


@given(wishes)
def test_a_budget_survives_the_wire(wish):
    assert asked(**written(Parameters(reasoning=wish))[0]).reasoning == wish


def test_a_model_that_does_not_think_is_not_asked_to():
    found, dropped = written(Parameters(reasoning=Reasoning(effort="high", named="reasoning_effort")), Quirks(thinking="none"))
    assert found == {} and dropped == ["reasoning_effort"]
    found, _ = written(Parameters(reasoning=Reasoning(effort="high")), Quirks(thinking="adaptive_only"))
    assert found == {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}


@pytest.mark.parametrize("budget", ["x", "2048", 1.5, True, -5, 0, [], {}])
def test_a_thinking_budget_that_is_no_number_is_named_and_never_compared(budget: Any) -> None:
    with pytest.raises(DecodeError, match=r"thinking\.budget_tokens") as wrong:
        asked(thinking={"type": "enabled", "budget_tokens": budget})
    assert wrong.value.param == "thinking.budget_tokens"


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive"}])
@pytest.mark.parametrize("effort", [5, {}, ["high"], True])
def test_an_effort_that_is_no_text_is_named(effort: Any, thinking: Any) -> None:
    with pytest.raises(DecodeError, match=r"output_config\.effort") as wrong:
        asked(thinking=thinking, output_config={"effort": effort})
    assert wrong.value.param == "output_config.effort"
