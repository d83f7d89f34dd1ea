"""The table of request fields: a wrong value is refused and its field named; what needs stored state is refused whatever its value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DecodeError
from providers.dialects.openai_responses.fields import FIELDS
from providers.dialects.openai_responses.requests import decode_request


def asked(**members: Any) -> Any:
    return decode_request(json.dumps({"model": "route", "input": "hi", **members}).encode())


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [7]}, "input"),
        ({"input": [{"role": "king", "content": "x"}]}, "input"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": None}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": {"a": 1}}]}, "input[0].output"),
        ({"instructions": ["x"]}, "instructions"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 2**62}, "max_output_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"tools": {}}, "tools"),
        ({"tools": [7]}, "tools"),
        ({"tool_choice": 7}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"text": {"format": {"type": "poem"}}}, "text.format.type"),
        ({"text": {"format": {}}}, "text.format.type"),
        ({"text": "json"}, "text"),
        ({"reasoning": "high"}, "reasoning"),
        ({"include": "all"}, "include"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"metadata": "x"}, "metadata"),
        ({"truncation": 7}, "truncation"),
        ({"context_management": {}}, "context_management"),
    ],
)
def test_wrong_values_name_the_field(members: dict[str, Any], param: str) -> None:
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == param
    assert refused.value.message.startswith((f"`{param}`", f"`{param.partition('.')[0]}`"))


@pytest.mark.parametrize(
    ("members", "remedy"),
    [
        ({"previous_response_id": "resp_1"}, "send the earlier items in `input`"),
        ({"conversation": "conv_1"}, "send the earlier items in `input`"),
        ({"conversation": {"id": "conv_1"}}, "send the earlier items in `input`"),
        ({"prompt": {"id": "pmpt_1"}}, "send its text in `instructions` and `input`"),
        ({"background": True}, "stream a long answer"),
    ],
)
def test_what_needs_stored_state_is_refused_by_name_with_a_remedy(members: dict[str, Any], remedy: str) -> None:
    with pytest.raises(DecodeError) as refused:
        asked(**members)
    assert refused.value.param == next(iter(members))
    assert remedy in refused.value.message and "keeps no state" in refused.value.message


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "msg_1"}, {"id": "rs_1"}])
def test_references_to_stored_items_are_refused_by_name(item: dict[str, Any]) -> None:
    with pytest.raises(DecodeError) as refused:
        asked(input=[{"role": "user", "content": "x"}, item])
    assert (refused.value.param, refused.value.code) == ("input[1]", "unsupported_parameter")
    assert "send the item itself" in refused.value.message


def test_state_that_is_not_asked_for_is_nothing() -> None:
    assert asked(background=False, previous_response_id=None, conversation=None, prompt=None).unknown == ()


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"model", "input"}))
def test_no_known_field_is_unknown_and_null_is_absent(name: str) -> None:
    assert asked(**{name: None}).unknown == ()


@pytest.mark.parametrize(
    ("members", "needs"),
    [
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, set()),
        ({"text": {"format": {"type": "json_object"}}}, {"json_mode"}),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}, {"json_schema"}),
        ({"include": ["reasoning.encrypted_content"]}, set()),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs"}),
        ({"top_logprobs": 2}, {"logprobs"}),
        ({"top_logprobs": 0}, set()),
        ({"tools": [{"type": "function", "name": "f"}]}, {"tools"}),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, {"tools"}),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]}, {"images"}),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_url": "u"}]}]},
            {"tools", "documents"},
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]}]}, {"audio"}),
    ],
)
def test_what_a_backend_must_be_able_to_do(members: dict[str, Any], needs: set[str]) -> None:
    assert asked(**members).needs == needs
