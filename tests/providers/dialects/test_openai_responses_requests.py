"""Requests of the responses language: what is read of them, the fast lane's bytes, and requests that came in another language."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError, Quirks, to_neutral
from providers.dialects.openai_responses.requests import NAME, decode_request, encode_request
from providers.errors import Unsupported
from providers.types import Request, Target

TARGET = Target(backend="b", model="gpt-up")
PNG = "iVBORw0KGgoAAAANSUhEUg=="


def asked(**members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "input": "hi", **members}).encode())


def sent(request: Request, target: Target = TARGET, quirks: Quirks = PLAIN) -> Any:
    return json.loads(encode_request(request, target, quirks))


# ---- what is read of a request ------------------------------------------------------------------------------------------------------
def test_the_eager_fields() -> None:
    request = asked(stream=True, temperature=0, max_output_tokens=9)
    assert (request.dialect, request.model, request.stream) == (NAME, "route", True)
    assert (request.temperature, request.max_tokens, request.n) == (0, 9, 1)


def test_text_counts_and_payloads_do_not() -> None:
    plain = asked(input=[{"role": "user", "content": [{"type": "input_text", "text": "look"}]}])
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG * 1000}"}
    seen = asked(input=[{"role": "user", "content": [{"type": "input_text", "text": "look"}, image]}])
    assert seen.media == 1
    assert plain.prompt_bytes < seen.prompt_bytes < plain.prompt_bytes + 200
    assert asked(instructions="x" * 500).prompt_bytes >= 500 + asked().prompt_bytes
    assert asked(text={"format": {"type": "json_object"}, "verbosity": "x" * 300}).prompt_bytes > 300


@pytest.mark.parametrize(
    ("members", "unknown"),
    [
        ({"tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}, ("tools[0].type=web_search",)),
        ({"tools": [{"type": "mcp", "server_label": "s", "server_url": "https://x"}]}, ("tools[0].type=mcp",)),
        ({"tools": [{"type": "custom", "name": "f"}]}, ("tools[0].type=custom",)),
        ({"tool_choice": {"type": "function", "name": "f"}}, ()),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, ("tool_choice.type=allowed_tools",)),
        ({"tool_choice": {"type": "web_search_preview"}}, ("tool_choice.type=web_search_preview",)),
        ({"input": [{"type": "web_search_call", "id": "ws", "status": "completed"}]}, ("input[0].type=web_search_call",)),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}]}, ("input[0].type=custom_tool_call",)),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"}]}, ("input[0].namespace",)),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, ("input[0].content[0].file_id",)),
        ({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}, ("input[0].content[0].type=input_video",)),
        ({"brand_new": 1}, ("brand_new",)),
    ],
)
def test_what_only_this_language_has_binds_the_request_to_it(members: dict[str, Any], unknown: tuple[str, ...]) -> None:
    assert asked(**members).unknown == unknown


def test_names_that_steer_the_gateway_are_refused() -> None:
    for members in ({"api_base": "http://x"}, {"metadata": {"api_key": "k"}}, {"reasoning": {"base_url": "u"}}):
        with pytest.raises(DecodeError) as refused:
            asked(**members)
        assert refused.value.code == "steering_field"
    # what a tool's server is told is the client's own
    assert asked(tools=[{"type": "mcp", "server_url": "https://x", "headers": {"authorization": "t"}}]).unknown == ("tools[0].type=mcp",)


def test_a_repeated_field_is_refused() -> None:
    with pytest.raises(DecodeError) as refused:
        decode_request(b'{"model":"m","input":"a","input":"b"}')
    assert refused.value.code == "repeated_parameter"


# ---- the fast lane ------------------------------------------------------------------------------------------------------------------
def test_the_body_differs_in_model_and_store_alone() -> None:
    body = (
        b'{"model": "route", "input": [{"role":"user","content" : [ {"type":"input_text","text":"\\u00e9"} ]}], "include":[ "x" ],'
        b'"reasoning":{"effort" : "low"}, "tools": [ {"type":"web_search"} ], "max_output_tokens": 1e2, "brand_new":{ "a":1.50 }}'
    )
    body = body.replace(b"1e2", b"100")
    out = encode_request(decode_request(body), TARGET)
    assert json.loads(out) == {**json.loads(body), "model": "gpt-up", "store": False}
    for piece in (b'"content" : [ {"type":"input_text","text":"\\u00e9"} ]', b'[ "x" ]', b'{"effort" : "low"}', b'{ "a":1.50 }', b"100"):
        assert piece in out


def test_nothing_is_stored_upstream_and_who_asked_for_it_is_told() -> None:
    for said, dropped in ((True, ("store",)), (False, ()), (None, ())):
        request = asked(store=said)
        assert sent(request)["store"] is False
        assert request.dropped == dropped


def test_a_limit_of_the_targets_replaces_the_clients() -> None:
    request = asked(max_output_tokens=500)
    assert sent(request)["max_output_tokens"] == 500
    assert sent(request, Target(backend="b", model="m", max_tokens=40))["max_output_tokens"] == 40


def test_quirks_drop_refuse_and_rename() -> None:
    request = asked(temperature=0.5, service_tier="flex", top_p=1, user="u")
    quirks = Quirks(drop=frozenset({"temperature", "top_p"}), names={"user": "safety_identifier"})
    body = sent(request, quirks=quirks)
    assert "temperature" not in body and "top_p" not in body
    assert request.dropped == ("temperature",)  # the default of top_p said nothing
    assert "user" not in body and body["safety_identifier"] == "u"
    with pytest.raises(Unsupported) as refused:
        sent(request, quirks=Quirks(refuse=frozenset({"service_tier"})))
    assert refused.value.param == "service_tier"


# ---- from other languages -----------------------------------------------------------------------------------------------------------
CHAT = {
    "model": "route",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
    "max_completion_tokens": 77,
    "temperature": 0.2,
    "top_p": 0.9,
    "user": "u1",
    "stream": True,
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "verbosity": "low",
    "logprobs": True,
    "top_logprobs": 3,
    "seed": 7,
}


def test_a_chat_request_field_by_field() -> None:
    request = DIALECTS["openai_chat"].decode_request(json.dumps(CHAT).encode())
    to_neutral(request)
    assert sent(request) == {
        "model": "gpt-up",
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
        ],
        # a function is strict in this language unless it says that it is not
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}, "verbosity": "low"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 3,
        "max_output_tokens": 77,
        "temperature": 0.2,
        "top_p": 0.9,
        "user": "u1",
        "stream": True,
        "metadata": {"a": "b"},
        "service_tier": "flex",
        "store": False,
    }
    assert request.dropped == ("seed",)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"n": 2}, "n"),
        ({"stop": ["END"]}, "stop"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": [{"name": "f"}]}, "functions"),
    ],
)
def test_what_chat_has_and_this_language_has_not_is_refused_by_name(members: dict[str, Any], param: str) -> None:
    request = DIALECTS["openai_chat"].decode_request(json.dumps({"model": "m", "messages": CHAT["messages"][:1], **members}).encode())
    to_neutral(request)
    with pytest.raises(Unsupported) as refused:
        encode_request(request, TARGET)
    assert refused.value.param == param and not refused.value.sent


def test_a_messages_request_with_thinking_of_two_makers() -> None:
    sealed = 'tollway:openai_responses:{"encrypted_content":"gAAA"}'
    body = {
        "model": "route",
        "max_tokens": 50,
        "system": "Be brief.",
        "thinking": {"type": "enabled", "budget_tokens": 3000},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "ours", "signature": sealed},
                    {"type": "redacted_thinking", "data": sealed},
                    {"type": "thinking", "thinking": "theirs", "signature": "EqQB"},
                    {"type": "redacted_thinking", "data": "EqQB"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        ],
                    }
                ],
            },
        ],
    }
    request = DIALECTS["anthropic_messages"].decode_request(json.dumps(body).encode())
    to_neutral(request)
    assert sent(request, quirks=Quirks(takes=frozenset({"reasoning_effort"}))) == {
        "model": "gpt-up",
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ours"}], "encrypted_content": "gAAA"},
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "call_id": "t1", "name": "f", "arguments": '{"a": 1}'},
            {
                "type": "function_call_output",
                "call_id": "t1",
                "output": [
                    {"type": "input_text", "text": "Error: no"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
        ],
        "max_output_tokens": 50,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium"},
        "store": False,
    }
    assert set(request.dropped) == {"messages.cache_control", "messages.thinking"}


def test_a_request_of_this_language_to_the_others() -> None:
    body = {
        "model": "route",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"b":2}'},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "defer_loading": False}],
        "tool_choice": "required",
        "max_output_tokens": 99,
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"verbosity": "low"},
        "truncation": "auto",
        "store": True,
    }
    chat = decode_request(json.dumps(body).encode())
    to_neutral(chat)
    assert json.loads(DIALECTS["openai_chat"].encode_request(chat, TARGET, Quirks(takes=frozenset({"reasoning_effort"})))) == {
        "model": "gpt-up",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is this?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"b":2}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
        "tool_choice": "required",
        "max_tokens": 99,
        "reasoning_effort": "high",
        "verbosity": "low",
    }
    assert set(chat.dropped) == {"truncation", "store", "tools.defer_loading", "messages.thinking"}

    messages = decode_request(json.dumps(body).encode())
    to_neutral(messages)
    found = json.loads(DIALECTS["anthropic_messages"].encode_request(messages, TARGET, Quirks()))
    assert found["system"] == "Be brief."
    assert [block["type"] for block in found["messages"][1]["content"]] == ["tool_use", "tool_use"]
    assert [block["tool_use_id"] for block in found["messages"][2]["content"]] == ["c1", "c2"]
    assert found["tool_choice"] == {"type": "any"} and found["max_tokens"] == 99
    assert {"store", "truncation", "verbosity"} <= set(messages.dropped)


def test_a_signature_of_another_maker_goes_back_to_it_and_not_elsewhere() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "tollway:signature:EqQB"}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "tollway:redacted:HIDDEN"}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "x"}, reasoning, hidden, call, {"type": "function_call_output", "call_id": "c1", "output": "1"}]
    request = asked(input=items, tools=[{"type": "function", "name": "f"}], reasoning={"effort": "low"}, max_output_tokens=5000)
    to_neutral(request)
    found = json.loads(DIALECTS["anthropic_messages"].encode_request(request, TARGET, Quirks()))
    assert found["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "HIDDEN"},
    ]
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 2048}


def test_a_tool_turn_that_another_makers_reasoning_began_goes_on_without_thinking() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "x"}, reasoning, call, {"type": "function_call_output", "call_id": "c1", "output": "1"}]
    request = asked(input=items, tools=[{"type": "function", "name": "f"}], reasoning={"effort": "low"}, max_output_tokens=5000)
    to_neutral(request)
    found = json.loads(DIALECTS["anthropic_messages"].encode_request(request, TARGET, PLAIN))
    assert "thinking" not in found and [block["type"] for block in found["messages"][1]["content"]] == ["tool_use"]
    assert set(request.dropped) == {"reasoning.effort", "messages.thinking"}
