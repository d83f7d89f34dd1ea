"""The table of request fields: a wrong value is refused and its field named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DecodeError
from providers.dialects.openai_chat.fields import FIELDS
from providers.dialects.openai_chat.requests import decode_request

HI = [{"role": "user", "content": "hi"}]


def asked(**members: Any) -> Any:
    return decode_request(json.dumps({"model": "route", "messages": HI, **members}).encode())


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": [*HI, {"content": "x"}]}, "messages[1]"),
        ({"messages": [*HI, {"role": "king", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"text": "x"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**62}, "max_tokens"),
        ({"max_completion_tokens": 10**40}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(10**30)}, "seed"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"stop": 7}, "stop"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"tools": {}}, "tools"),
        ({"tools": [7]}, "tools"),
        ({"tool_choice": 7}, "tool_choice"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"metadata": "x"}, "metadata"),
    ],
)
def test_wrong_values_name_the_field(members, param):
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param
    assert f"`{param}`" in refused.value.message


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"model", "messages"}))
def test_no_known_field_is_unknown_and_null_is_absent(name):
    assert asked(**{name: None}).unknown == ()
