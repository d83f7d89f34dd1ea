"""Requests of the chat language: what is refused and how it is told, what routing reads, and the bytes that go to a target."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects import DIALECTS, PLAIN, DecodeError, Quirks
from providers.dialects.openai_chat.requests import decode_request, encode_request
from providers.errors import Unsupported
from providers.types import Message, Request, Target, Tool

CHAT = DIALECTS["openai_chat"]

HI = [{"role": "user", "content": "hi"}]
TARGET = Target(backend="b", model="upstream-model")


def body(**members: Any) -> bytes:
    return json.dumps({"model": "route", "messages": HI, **members}, ensure_ascii=False, separators=(",", ":")).encode()


def asked(**members: Any) -> Request:
    return decode_request(body(**members))


def sent(request: Request, quirks: Quirks = PLAIN, target: Target = TARGET) -> Any:
    return json.loads(encode_request(request, target, quirks))


# ---- what is refused ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", ["model", "messages"])
def test_missing_fields_are_named(missing):
    members = {"model": "m", "messages": HI}
    del members[missing]
    with pytest.raises(DecodeError) as refused:
        decode_request(json.dumps(members).encode())
    assert (refused.value.param, refused.value.code) == (missing, "missing_required_parameter")


# ---- what routing and money read ----------------------------------------------------------------------------------------------------
def test_the_eager_values():
    request = asked(stream=True, stream_options={"include_usage": True}, max_completion_tokens=9, n=2, temperature=0)
    assert (request.model, request.stream, request.include_usage, request.max_tokens) == ("route", True, True, 9)
    assert (request.n, request.temperature, request.unknown, request.needs) == (2, 0.0, (), {"n"})


def test_null_is_absent():
    names = ("stream", "max_tokens", "n", "temperature", "stop", "tools", "tool_choice", "stream_options", "response_format", "odd")
    request = asked(**dict.fromkeys(names))
    assert (request.stream, request.max_tokens, request.n, request.needs, request.unknown) == (False, None, 1, frozenset(), ())


@pytest.mark.parametrize(
    ("members", "needs"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, {"tools"}),
        ({"tools": []}, set()),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"messages": [*HI, {"role": "tool", "tool_call_id": "x", "content": "1"}]}, {"tools"}),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]}, {"images"}),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, {"audio"}),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, {"documents"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": {"type": "json_object"}}, {"json_mode"}),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, {"json_schema"}),
        ({"logprobs": True}, {"logprobs"}),
        ({"logprobs": False}, set()),
        ({"modalities": ["text", "audio"]}, {"audio"}),
        ({"n": 1}, set()),
    ],
)
def test_capabilities_that_a_request_needs(members, needs):
    assert asked(**members).needs == needs


def test_what_only_this_language_knows_is_unknown_to_others():
    request = asked(
        thinking={"type": "enabled"},
        messages=[{"role": "user", "content": [{"type": "video_url", "video_url": {}}]}],
        tools=[{"type": "web_search"}],
    )
    assert request.unknown == ("thinking", "messages[0].content[0].type=video_url", "tools[0].type=web_search")


def test_null_content_null_calls_and_developer_role_are_taken():
    request = asked(messages=[{"role": "developer", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": None}, *HI])
    assert [message.content for message in CHAT.messages(request)] == ["x", None, "hi"]


def test_prompt_bytes_bound_the_text_and_leave_media_out():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    text = {"type": "text", "text": "何 " * 100}
    request = asked(
        messages=[{"role": "user", "content": [text, image]}, *HI], tools=[{"type": "function", "function": {"name": "f" * 50}}]
    )
    assert request.media == 1
    assert len(text["text"].encode()) + 50 <= request.prompt_bytes < 1000
    assert request.size_bytes > 100_000


def test_tools_decode_on_demand():
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}}}
    request = asked(tools=[{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}, {"type": "web_search"}])
    (tool,) = CHAT.tools(request)
    assert (tool.name, tool.description, tool.strict, json.loads(bytes(tool.parameters))) == ("f", None, True, schema)
    assert CHAT.tools(request) is CHAT.tools(request)
    assert CHAT.messages(request) is CHAT.messages(request)


# ---- to a target --------------------------------------------------------------------------------------------------------------------
def test_the_fast_lane_changes_the_model_and_nothing_else():
    nested = b'{"model":"route","messages":[ {"role":"user", "content":"\\u0041 \\/ 1e5"} ],"temperature":1.0e0,"odd":{"b":1,  "a":2}}'
    written = encode_request(decode_request(nested), TARGET, PLAIN)
    assert written == nested.replace(b'"route"', b'"upstream-model"')


def test_streams_ask_for_usage_where_it_is_known():
    assert sent(asked(stream=True))["stream_options"] == {"include_usage": True}
    assert sent(asked(stream=True, stream_options=None))["stream_options"] == {"include_usage": True}
    kept = {"include_obfuscation": False, "include_usage": False}
    assert sent(asked(stream=True, stream_options=kept))["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    assert "stream_options" not in sent(asked(stream=True, stream_options={"include_usage": True}), Quirks(usage_option=False))
    assert "stream_options" not in sent(asked())


def test_store_is_false_unless_the_client_says_otherwise():
    assert sent(asked(), Quirks(store=True))["store"] is False
    assert sent(asked(store=True), Quirks(store=True))["store"] is True
    assert "store" not in sent(asked())


@pytest.mark.parametrize(
    ("members", "wanted", "limit", "expected"),
    [
        ({"max_tokens": 200}, "max_completion_tokens", None, {"max_completion_tokens": 200}),
        ({"max_completion_tokens": 200}, "max_tokens", None, {"max_tokens": 200}),
        ({"max_tokens": 200}, "max_tokens", None, {"max_tokens": 200}),
        ({"max_tokens": 200}, "", None, {"max_tokens": 200}),
        ({"max_completion_tokens": 200}, "", 50, {"max_completion_tokens": 50}),
        ({"max_completion_tokens": 200, "max_tokens": None}, "max_tokens", 50, {"max_tokens": 50}),
        ({}, "", 50, {"max_tokens": 50}),
        ({}, "max_completion_tokens", 50, {"max_completion_tokens": 50}),
        ({}, "max_completion_tokens", None, {}),
    ],
)
def test_g33_the_token_limit_has_the_name_that_the_target_takes(members, wanted, limit, expected):
    target = Target(backend="b", model="m", max_tokens=limit)
    found = sent(asked(**members), Quirks(token_limit=wanted), target)
    assert {name: value for name, value in found.items() if name.startswith("max_")} == expected


def test_g33_a_refused_temperature_is_named_unless_it_is_the_default():
    strict, lenient = Quirks(refuse=frozenset({"temperature"})), Quirks(drop=frozenset({"temperature"}))
    with pytest.raises(Unsupported) as refused:
        sent(asked(temperature=0.3), strict)
    assert (refused.value.param, refused.value.code, refused.value.status) == ("temperature", "unsupported_value", 400)
    for quirks in (strict, lenient):
        request = asked(temperature=1)
        assert "temperature" not in sent(request, quirks)
        assert request.dropped == ()
    request = asked(temperature=0.3, seed=4)
    assert "temperature" not in sent(request, lenient)
    assert request.dropped == ("temperature",)
    sent(request, PLAIN)
    assert request.dropped == ()  # of the last target only


def test_roles_are_mapped_without_touching_the_rest():
    mapped = Quirks(roles={"developer": "system"})
    first = b'{"role":"developer","content":"\\u0041","x":{"a":1, "a":2}}'
    raw = b'{"model":"m","messages":[' + first + b',{"role":"user","content":"\\"developer\\""}]}'
    written = encode_request(decode_request(raw), TARGET, mapped)
    assert written == raw.replace(b'"role":"developer"', b'"role":"system"').replace(b'"m"', b'"upstream-model"')
    untouched = body(messages=[{"role": "user", "content": "x"}])
    assert encode_request(decode_request(untouched), TARGET, mapped) == untouched.replace(b"route", b"upstream-model")


def test_a_request_of_another_language_is_written_from_the_neutral_model():
    request = Request(
        dialect="other",
        fields={},
        model="route",
        stream=True,
        max_tokens=5,
        temperature=0.5,
        n=2,
        decoded=(Message(role="user", content="hi"),),
        decoded_tools=(Tool(name="f"),),
    )
    assert sent(request) == {
        "model": "upstream-model",
        "messages": HI,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0.5,
        "n": 2,
    }


leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2))
names = st.text(min_size=1, max_size=5).map(lambda name: "x_" + name)


@given(st.dictionaries(names, values, max_size=4), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_every_field_comes_out_as_it_went_in(odd, separators, ascii_only):
    members = {"model": "route", "messages": HI, **odd}
    raw = json.dumps(members, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    request = decode_request(raw)
    assert sent(request) == {**members, "model": "upstream-model"}
    assert set(request.unknown) == {name for name, value in odd.items() if value is not None}


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: ('{"model":"m","messages":' + text).encode("utf-8", "surrogatepass")))
def test_no_body_breaks_the_decoder_in_another_way(raw):
    with pytest.raises(DecodeError):
        decode_request(raw)
