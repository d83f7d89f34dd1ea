"""The table of request fields: a wrong value is refused and its field named; what needs stored state is refused whatever its value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS, DecodeError, Quirks, to_neutral
from providers.dialects.openai_responses.fields import FIELDS
from providers.dialects.openai_responses.requests import decode_request
from providers.errors import Unsupported
from providers.types import Target

HI = {"role": "user", "content": "hi"}


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


# ---- what becomes of every field abroad ---------------------------------------------------------------------------------------------
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
# field -> a value that says something, and what it is in chat completions and in Anthropic Messages: a member of the body and its value,
# "refused" (by the name that is given), or "dropped" (and named)
ABROAD: dict[str, tuple[Any, Any, Any]] = {
    "instructions": ("Be brief.", ("messages", [{"role": "system", "content": "Be brief."}, HI]), ("system", "Be brief.")),
    "stream": (True, ("stream", True), ("stream", True)),
    "stream_options": ({"include_obfuscation": False}, None, None),  # nothing is padded here
    "max_output_tokens": (77, ("max_tokens", 77), ("max_tokens", 77)),
    "temperature": (0.5, ("temperature", 0.5), ("temperature", 0.5)),
    "top_p": (0.5, ("top_p", 0.5), ("top_p", 0.5)),
    "tools": ([{"type": "function", "name": "f"}], ("tools", [{"type": "function", "function": {"name": "f"}}]), ("tools", None)),
    "tool_choice": ("required", ("tool_choice", "required"), ("tool_choice", {"type": "any"})),
    "parallel_tool_calls": (False, ("parallel_tool_calls", False), ("tool_choice", {"type": "auto", "disable_parallel_tool_use": True})),
    "text": ({"format": SCHEMA}, ("response_format", None), ("output_config", None)),
    "reasoning": ({"effort": "low"}, ("reasoning_effort", "low"), ("thinking", {"type": "enabled", "budget_tokens": 2048})),
    "include": (["message.output_text.logprobs"], ("logprobs", True), "refused logprobs"),
    "top_logprobs": (2, ("top_logprobs", 2), "refused"),
    "user": ("u", ("user", "u"), ("metadata", {"user_id": "u"})),
    "safety_identifier": ("s", ("user", "s"), ("metadata", {"user_id": "s"})),
    "store": (True, "dropped", "dropped"),
    "metadata": ({"a": "b"}, ("metadata", {"a": "b"}), "dropped"),
    "service_tier": ("flex", ("service_tier", "flex"), "dropped"),
    "truncation": ("auto", "dropped", "dropped"),
    "prompt_cache_key": ("k", ("prompt_cache_key", "k"), "dropped"),
    "prompt_cache_retention": ("24h", ("prompt_cache_retention", "24h"), "dropped"),
    "prompt_cache_options": ({"mode": "explicit"}, "dropped", "dropped"),
    "max_tool_calls": (3, "dropped", "dropped"),
    "context_management": ([{"type": "compaction"}], "refused", "refused"),
    "moderation": ({"model": "m"}, ("moderation", {"model": "m"}), "refused"),
}
REFUSED_EVERYWHERE = {"previous_response_id", "conversation", "prompt", "background"}
TAKES = Quirks(takes=frozenset({"reasoning_effort"}))


def test_every_field_of_the_table_is_accounted_for() -> None:
    assert set(ABROAD) | REFUSED_EVERYWHERE | {"model", "input"} == set(FIELDS)


@pytest.mark.parametrize("name", sorted(ABROAD))
@pytest.mark.parametrize("language", ["openai_chat", "anthropic_messages"])
def test_every_field_is_translated_refused_or_dropped_and_named(name: str, language: str) -> None:
    value, *outcomes = ABROAD[name]
    outcome = outcomes[language == "anthropic_messages"]
    more = {"tools": ABROAD["tools"][0]} if "tool" in name else {"max_output_tokens": 9000} if name == "reasoning" else {}
    request = asked(**{**more, name: value})
    to_neutral(request)
    if isinstance(outcome, str) and outcome.startswith("refused"):
        with pytest.raises(Unsupported) as refused:
            DIALECTS[language].encode_request(request, Target(backend="b", model="m"), TAKES)
        assert refused.value.param == (outcome.partition(" ")[2] or name)
        return
    body = json.loads(DIALECTS[language].encode_request(request, Target(backend="b", model="m"), TAKES))
    assert request.dropped == ((name,) if outcome == "dropped" else ())
    if isinstance(outcome, tuple):
        member, expected = outcome
        assert member in body if expected is None else body[member] == expected
    elif outcome == "dropped":
        assert name not in body
