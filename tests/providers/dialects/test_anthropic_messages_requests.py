"""Requests of the messages language: what is refused and how it is told, what routing reads, and the bytes that go to a target."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DIALECTS, PLAIN, DecodeError, Quirks, to_neutral
from providers.dialects.anthropic_messages.requests import DEFAULT_MAX_TOKENS, decode_count, decode_request, encode_request
from providers.errors import Unsupported
from providers.types import Call, Image, Message, OutputFormat, Parameters, Reasoning, Request, Target, Text, Thinking, Tool, ToolChoice

HI = [{"role": "user", "content": "hi"}]
TARGET = Target(backend="b", model="upstream-model")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400}}


def body(**members: Any) -> bytes:
    return json.dumps({"model": "route", "max_tokens": 9, "messages": HI, **members}, ensure_ascii=False, separators=(",", ":")).encode()


def asked(**members: Any) -> Request:
    return decode_request(body(**members))


def sent(request: Request, quirks: Quirks = PLAIN, target: Target = TARGET) -> Any:
    return json.loads(encode_request(request, target, quirks))


# ---- what is refused ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", ["model", "messages", "max_tokens"])
def test_missing_fields_are_named(missing: str):
    members = {"model": "m", "messages": HI, "max_tokens": 5}
    del members[missing]
    with pytest.raises(DecodeError) as refused:
        decode_request(json.dumps(members).encode())
    assert (refused.value.param, refused.value.code) == (missing, "missing_required_parameter")


def test_counting_needs_no_limit():
    request = decode_count(json.dumps({"model": "m", "messages": HI, "system": "Be kind."}).encode())
    assert request.max_tokens is None and len(DIALECTS["anthropic_messages"].messages(request)) == 2


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"system": 5}, "system"),
        ({"tools": 5}, "tools"),
        ({"api_base": "http://127.0.0.1:1"}, "api_base"),
        ({"metadata": {"base_url": "x"}}, "metadata.base_url"),
        ({"thinking": {"api_key": "x"}}, "thinking.api_key"),
    ],
)
def test_wrong_fields_are_named(members: dict[str, Any], param: str):
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param


def test_a_repeated_field_is_refused():
    with pytest.raises(DecodeError) as refused:
        decode_request(b'{"model":"a","max_tokens":1,"messages":[],"model":"b"}')
    assert refused.value.code == "repeated_parameter"


# ---- what routing and money read ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("members", "needs"),
    [
        ({}, set()),
        ({"tools": [{"name": "f", "input_schema": {}}]}, {"tools"}),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, {"images"}),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}]}]},
            {"tools", "images"},
        ),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "x"}}]}]}, {"documents"}),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]}]}, set()),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, {"json_schema"}),
        ({"output_config": {"effort": "low"}}, set()),
    ],
)
def test_what_a_backend_must_be_able_to(members: dict[str, Any], needs: set[str]):
    assert asked(**members).needs == needs and asked(**members).unknown == ()


@pytest.mark.parametrize(
    ("members", "unknown"),
    [
        ({"news": 1}, "news"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type=bash_20250124"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0].type=search_result"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
            "messages[0].content[0].source.type=file",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url"}, "citations": {"enabled": True}}]}]},
            "messages[0].content[0].citations",
        ),
    ],
)
def test_what_binds_to_backends_of_this_language(members: dict[str, Any], unknown: str):
    assert asked(**members).unknown == (unknown,)


def test_the_size_of_a_prompt_leaves_base64_out():
    small = asked(messages=[{"role": "user", "content": [{"type": "text", "text": "x" * 50}]}], system="y" * 30)
    assert 80 < small.prompt_bytes < 200 and small.media == 0
    pictured = asked(messages=[{"role": "user", "content": [IMAGE]}])
    assert pictured.media == 1 and pictured.prompt_bytes < 300


# ---- the fast lane ------------------------------------------------------------------------------------------------------------------
def test_only_the_model_and_a_supplied_limit_change():
    members = body(
        system=[{"type": "text", "text": "é", "cache_control": {"type": "ephemeral"}}], stream=True, thinking={"type": "adaptive"}, news=1.0
    )
    request = decode_request(members)
    assert encode_request(request, TARGET) == members.replace(b'"route"', b'"upstream-model"')
    limited = encode_request(request, Target(backend="b", model="upstream-model", max_tokens=4))
    assert limited == members.replace(b'"route"', b'"upstream-model"').replace(b'"max_tokens":9', b'"max_tokens":4')


def test_quirks_of_a_target():
    request = asked(service_tier="standard_only", top_k=5, speed="standard")
    assert sent(request, Quirks(drop=frozenset({"service_tier", "speed"}))) == {
        "model": "upstream-model",
        "max_tokens": 9,
        "messages": HI,
        "top_k": 5,
    }
    assert request.dropped == ("service_tier",)
    with pytest.raises(Unsupported) as refused:
        sent(request, Quirks(refuse=frozenset({"top_k"})))
    assert refused.value.param == "top_k" and not refused.value.sent


leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2))


@given(st.dictionaries(st.text(min_size=1, max_size=5).map(lambda name: "x_" + name), values, max_size=4))
def test_every_field_comes_out_as_it_went_in(odd):
    raw = json.dumps({"model": "route", "max_tokens": 9, "messages": HI, **odd}).encode("utf-8", "surrogatepass")
    request = decode_request(raw)
    assert sent(request) == {"model": "upstream-model", "max_tokens": 9, "messages": HI, **odd}
    assert set(request.unknown) == {name for name, value in odd.items() if value is not None}


@given(
    st.binary(max_size=80)
    | st.text(max_size=80).map(lambda text: ('{"model":"m","max_tokens":1,"messages":' + text).encode("utf-8", "surrogatepass"))
)
def test_no_body_breaks_the_decoder_in_another_way(raw):
    with pytest.raises(DecodeError):
        decode_request(raw)


# ---- from other languages -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "target", "limit"),
    [
        (7, Target(backend="b", model="m", most_tokens=100), 7),
        (None, Target(backend="b", model="m", most_tokens=100), 100),
        (None, Target(backend="b", model="m"), DEFAULT_MAX_TOKENS),
        (7, Target(backend="b", model="m", max_tokens=3, most_tokens=100), 3),
    ],
)
def test_the_limit_that_is_due_here(given: int | None, target: Target, limit: int):
    request = Request(dialect="other", fields={}, model="route", max_tokens=given, decoded=(Message(role="user", content="hi"),))
    assert sent(request, target=target) == {"model": "m", "messages": HI, "max_tokens": limit}


def test_a_request_of_another_language_is_written_from_the_neutral_model():
    request = Request(
        dialect="other",
        fields={},
        model="route",
        stream=True,
        max_tokens=5000,
        temperature=0.5,
        decoded=(
            Message(role="system", content="Be kind."),
            Message(role="user", content=(Text("hi"), Image(data="AA==", media_type="image/png"))),
        ),
        decoded_tools=(Tool(name="f", parameters=Raw(b"{}")),),
        parameters=Parameters(
            top_p=0.9,
            top_k=5,
            stop=("END",),
            tool_choice=ToolChoice("tool", "f"),
            parallel_calls=True,
            output_format=OutputFormat(schema=Raw(b'{"type":"object"}'), name="x"),
            user="u",
            dropped={"seed": Raw(b"7")},
        ),
    )
    assert sent(request) == {
        "model": "upstream-model",
        "system": "Be kind.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                ],
            }
        ],
        "tools": [{"name": "f", "input_schema": {}}],
        "max_tokens": 5000,
        "stream": True,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": False},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    }
    assert request.dropped == ("seed",)


def test_a_conversation_goes_through_both_languages_and_back():
    """Messages -> chat -> messages, thinking and cache marks included, where the chat side carries them."""
    chat = DIALECTS["openai_chat"]
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}, IMAGE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s=="},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "Two."},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": "rain"} for name in ("a", "b")]},
    ]
    tools = [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    there = asked(messages=turns, tools=tools, tool_choice=choice, stop_sequences=["END"], system="Be kind.", max_tokens=9000)
    to_neutral(there)
    quirks = Quirks(takes=frozenset({"cache_control", "reasoning_details"}))
    middle = chat.decode_request(chat.encode_request(there, TARGET, quirks))
    assert there.dropped == ()
    to_neutral(middle)
    assert sent(middle) == {
        "model": "upstream-model",
        "system": "Be kind.",
        "messages": turns,
        "tools": tools,
        "max_tokens": 9000,
        "stop_sequences": ["END"],
        "tool_choice": choice,
    }


@pytest.mark.parametrize(
    ("history", "thinks"),
    [
        ((), True),
        ((Message(role="assistant", content="So."), Message(role="user", content="and?")), True),
        ((Message(role="assistant", content=(Thinking("hm", "s"),), calls=(Call("a", "f", ""),)), Message(role="tool", call_id="a")), True),
        ((Message(role="assistant", content=(Thinking("hm"),), calls=(Call("a", "f", ""),)), Message(role="tool", call_id="a")), False),
        ((Message(role="assistant", calls=(Call("a", "f", ""),)), Message(role="tool", call_id="a")), False),
        ((Message(role="assistant", content="So"),), False),
    ],
)
def test_g36_thinking_is_off_for_a_turn_whose_history_cannot_carry_it(history: tuple[Message, ...], thinks: bool):
    request = Request(
        dialect="other",
        fields={},
        model="route",
        max_tokens=9000,
        decoded=(Message(role="user", content="hi"), *history),
        parameters=Parameters(reasoning=Reasoning(effort="medium", named="reasoning_effort")),
    )
    assert ("thinking" in sent(request)) == thinks
    assert ("reasoning_effort" in request.dropped) != thinks
