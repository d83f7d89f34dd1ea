"""The tables of both languages, walked: what becomes of every field on the way to the other one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, Dialect, to_neutral
from providers.dialects.anthropic_messages.fields import FIELDS as MESSAGES
from providers.dialects.openai_chat.fields import FIELDS as CHAT
from providers.errors import Unsupported
from providers.types import Target

HI = [{"role": "user", "content": "hi"}]
TARGET = Target(backend="b", model="m")
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

# A value of each field that says something, and what has to stand on the other side; None: not on the wire but in the way it is sent.
FROM_MESSAGES: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "model": ("route", {"model": "m"}),
    "messages": (HI, {"messages": HI}),
    "max_tokens": (7, {"max_tokens": 7}),
    "system": ("Be kind.", {"messages": [{"role": "system", "content": "Be kind."}, *HI]}),
    "stream": (True, {"stream": True}),
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.5, {"top_p": 0.5}),
    "stop_sequences": (["END"], {"stop": ["END"]}),
    "tools": (TOOLS, {"tools": CHAT_TOOLS}),
    "tool_choice": ({"type": "any"}, {"tool_choice": "required"}),
    "output_config": (
        {"format": {"type": "json_schema", "schema": {}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}}}},
    ),
    "output_format": (
        {"type": "json_schema", "schema": {}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}}}},
    ),
    "metadata": ({"user_id": "u"}, {"user": "u"}),
    "top_k": (5, None),
    "thinking": ({"type": "enabled", "budget_tokens": 2000}, None),
    "service_tier": ("standard_only", None),
    "speed": ("fast", None),
    "cache_control": ({"type": "ephemeral"}, None),
    "diagnostics": ({"previous_message_id": "x"}, None),
    "context_management": ({"edits": []}, None),
    "inference_geo": ("us", None),
    "container": ("c1", None),
    "mcp_servers": ([{"type": "url", "name": "x"}], None),
}
FROM_CHAT: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "model": ("route", {"model": "m"}),
    "messages": (HI, {"messages": HI}),
    "max_tokens": (7, {"max_tokens": 7}),
    "max_completion_tokens": (7, {"max_tokens": 7}),
    "stream": (True, {"stream": True}),
    "stream_options": ({"include_usage": True}, {}),
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.5, {"top_p": 0.5}),
    "stop": ("END", {"stop_sequences": ["END"]}),
    "tools": (CHAT_TOOLS, {"tools": TOOLS}),
    "tool_choice": ({"type": "function", "function": {"name": "f"}}, {"tool_choice": {"type": "tool", "name": "f"}}),
    "parallel_tool_calls": (False, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    "response_format": (
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    ),
    "reasoning_effort": ("low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    "user": ("u", {"metadata": {"user_id": "u"}}),
    "safety_identifier": ("u", {"metadata": {"user_id": "u"}}),
    "n": (2, None),
    "presence_penalty": (1, None),
    "frequency_penalty": (1, None),
    "logit_bias": ({"5": 1}, None),
    "logprobs": (True, None),
    "top_logprobs": (2, None),
    "seed": (7, None),
    "functions": ([{"name": "f"}], None),
    "function_call": ("auto", None),
    "verbosity": ("low", None),
    "service_tier": ("flex", None),
    "store": (True, None),
    "metadata": ({"a": "b"}, None),
    "modalities": (["text", "audio"], None),
    "audio": ({"voice": "x"}, None),
    "prediction": ({"type": "content"}, None),
    "moderation": ({"model": "x"}, None),
    "web_search_options": ({}, None),
    "prompt_cache_key": ("k", None),
    "prompt_cache_retention": ("24h", None),
}
DROPPED_BY_TARGET = {"top_k", "thinking"}  # translated where the target takes them, else dropped and named
REFUSED_BY_TARGET = {"n"}


def test_every_field_of_both_tables_is_walked():
    assert set(FROM_MESSAGES) == set(MESSAGES)
    assert set(FROM_CHAT) == set(CHAT)


def carried(source: Dialect, target: Dialect, body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    request = source.decode_request(json.dumps(body).encode())
    assert request.unknown == ()
    to_neutral(request)
    return json.loads(target.encode_request(request, TARGET, PLAIN)), request.dropped


WALK = [("anthropic_messages", "openai_chat", name, *row) for name, row in FROM_MESSAGES.items()]
WALK += [("openai_chat", "anthropic_messages", name, *row) for name, row in FROM_CHAT.items()]


@pytest.mark.parametrize(("source", "target", "name", "value", "expected"), WALK, ids=[f"{row[0]}-{row[2]}" for row in WALK])
def test_a_field_is_translated_refused_or_dropped_and_named(
    source: str, target: str, name: str, value: Any, expected: dict[str, Any] | None
):
    own = source == "anthropic_messages"
    abroad = (MESSAGES if own else CHAT)[name].abroad
    body: dict[str, Any] = {"model": "route", "messages": HI, name: value}
    if own:
        body.setdefault("max_tokens", 9000)
    elif name not in ("max_tokens", "max_completion_tokens"):
        body["max_tokens"] = 9000
    if name in ("tool_choice", "parallel_tool_calls"):
        body["tools"] = TOOLS if own else CHAT_TOOLS
    if abroad == "refused" or name in REFUSED_BY_TARGET:
        with pytest.raises(Unsupported) as refused:
            carried(DIALECTS[source], DIALECTS[target], body)
        assert refused.value.param == name and expected is None
        return
    found, dropped = carried(DIALECTS[source], DIALECTS[target], body)
    if abroad == "dropped" or name in DROPPED_BY_TARGET:
        assert dropped == (name,) and expected is None
    else:
        assert expected is not None and dropped == ()
        assert {key: found[key] for key in expected} == expected


def test_a_check_says_what_to_send():
    assert all(field.remedy for field in MESSAGES.values())
    assert {field.abroad for field in [*MESSAGES.values(), *CHAT.values()]} == {"translated", "refused", "dropped"}
