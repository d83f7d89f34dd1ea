"""What no body may be or have, whatever the dialect: broken JSON, repeated keys, names that would steer the gateway or the target."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DecodeError
from providers.dialects.body import MAX_CONFIGURATION_BYTES, MAX_DEPTH, STEERING, check_steering
from providers.dialects.openai_chat.requests import decode_request

HI = [{"role": "user", "content": "hi"}]


def asked(**members: Any) -> Any:
    return decode_request(json.dumps({"model": "route", "messages": HI, **members}).encode())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"model":"m","messages":[}', "byte 25"),
        (b'{"model":"m"} x', "JSON"),
        (b"[1]", "JSON object"),
        (b'"text"', "JSON object"),
        (b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', "UTF-8 (byte 51)"),
        (b'{"model":"m","\xff":1}', "UTF-8"),
        (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', "JSON"),
        (b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply"),
        (b'{"model":"m","messages":[],"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "too deeply"),
    ],
)
def test_bodies_that_are_no_json_object(raw, says):
    with pytest.raises(DecodeError) as refused:
        decode_request(raw)
    assert refused.value.code == "invalid_json"
    assert says in refused.value.message


@pytest.mark.parametrize("space", ["", " ", "\n\t"])
@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ('{"model":"a","model":"b","messages":[]}', "model"),
        ('{"model":"a","model":"a","messages":[]}', "model"),
        ('{"a\\"}{":[1,{"x":2}],"model":"a","messages":[],"a\\"}{":[1,{"x":2}]}', 'a"}{'),
        ('{"model":"a","mod\\u0065l":"b"}', "model"),
        ('{"n":1,"messages":[{"n":1,"n":2}],"n":1}', "n"),
    ],
)
def test_a_repeated_key_is_refused(raw, name, space):
    spaced = raw.replace(",", space + "," + space).replace("{", "{" + space, 1)
    with pytest.raises(DecodeError) as refused:
        decode_request(spaced.encode())
    assert (refused.value.code, refused.value.param) == ("repeated_parameter", name.replace(",", space + "," + space))


def test_white_space_and_nested_repeats_are_taken():
    raw = b' {\n "model" : "m" , "messages":[ {"role":"user","content":"hi","content":"ho"} ],"mod\\u0065":1 } \n'
    assert decode_request(raw).unknown == ("mode",)


@pytest.mark.parametrize(
    "name", ["api_base", "base_url", "api_key", "Host", "host", "API-Base", "extra_headers", "Authorization", "x-api-key"]
)
def test_g07_at_top_level(name):
    with pytest.raises(DecodeError) as refused:
        asked(**{name: "http://169.254.169.254/"})
    assert (refused.value.param, refused.value.code) == (name, "steering_field")
    assert f"`{name}`" in refused.value.message


@pytest.mark.parametrize("name", sorted(STEERING))
def test_g07_every_name_of_the_table(name):
    with pytest.raises(DecodeError):
        check_steering(name, None)


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"extra_body": {"api_base": "http://x"}}, "extra_body.api_base"),
        ({"extra_body": {"a": [{"b": {"base_url": "http://x"}}]}}, "extra_body.a[0].b.base_url"),
        ({"metadata": {"api_key": "sk"}}, "metadata.api_key"),
        ({"web_search_options": {"user_location": {"API_BASE": "x"}}}, "web_search_options.user_location.API_BASE"),
        ({"provider": {"order": [], "api_key": "sk"}}, "provider.api_key"),
        ({"stream_options": {"host": "x"}}, "stream_options.host"),
        ({"audio": {"voice": "x", "base_url": "x"}}, "audio.base_url"),
    ],
)
def test_g07_inside_configuration(members, path):
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == path


def test_a_clients_own_data_may_use_any_name():
    schema = {"type": "object", "properties": {"api_key": {}, "base_url": {}, "host": {}}}
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"api_base": 1}'}}
    request = asked(
        messages=[*HI, {"role": "assistant", "content": None, "tool_calls": [call], "api_key": "x"}],
        tools=[{"type": "function", "function": {"name": "host", "parameters": schema}}],
        tool_choice={"type": "function", "function": {"name": "host"}, "host": 1},
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        stop=["api_key"],
        user="host",
        metadata={"page": "api_key"},
        logit_bias={"1": 2},
    )
    assert request.unknown == ()


def test_configuration_may_not_be_nested_without_end():
    value: Any = 1
    for _ in range(MAX_DEPTH + 1):
        value = {"a": value}
    with pytest.raises(DecodeError):
        asked(odd=value)
    assert asked(odd=value["a"]["a"]).unknown == ("odd",)


def test_configuration_is_bounded():
    with pytest.raises(DecodeError):
        asked(odd=["x" * MAX_CONFIGURATION_BYTES])


@pytest.mark.parametrize(
    ("members", "names"),
    [
        ({}, set()),
        ({"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "logit_bias": {}, "stop": [], "frequency_penalty": None}, set()),
        ({"temperature": 0}, {"temperature"}),
        ({"temperature": 0.3, "stop": "END", "logit_bias": {"5": 1}}, {"temperature", "stop", "logit_bias"}),
    ],
)
def test_parameters_that_say_something_are_known_to_routing(members, names):
    assert asked(**members).asks == names
