"""One conversation by every surface and out by every language, and back: two parallel calls, an image, thinking and a JSON schema.

What must stand on the wire is written by hand for each language; nothing but what docs/languages.md names may be lost on the way.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import Quirks, to_neutral
from providers.types import Request, Target
from tests.conformance import reading
from tests.conformance.recordings import API_OF, LANGUAGES, play, told

PICTURE = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
ANSWER = {"type": "object", "properties": {"warmer": {"type": "string"}}, "required": ["warmer"], "additionalProperties": False}
SIGNATURE = "EqQBCkgIARABGAIiQ=="
TAKES = Quirks(takes=frozenset({"reasoning_effort", "reasoning_details", "adaptive_thinking"}))
CALLS = [("call_a", {"city": "Bonn"}), ("call_b", {"city": "Kiel"})]
RESULTS = [("call_a", "18 degrees"), ("call_b", "15 degrees")]
INTENT = {"type": "text", "text": "Which city is warmer?"}

CHAT: dict[str, Any] = {
    "model": "route",
    "max_completion_tokens": 9000,
    "reasoning_effort": "low",
    "messages": [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": [INTENT, {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PICTURE}}]},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Two cities.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Two cities.", "signature": SIGNATURE}],
            "tool_calls": [
                {"id": name, "type": "function", "function": {"name": "weather", "arguments": json.dumps(args)}} for name, args in CALLS
            ],
        },
        *({"role": "tool", "tool_call_id": name, "content": text} for name, text in RESULTS),
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER, "strict": True}},
}
MESSAGES: dict[str, Any] = {
    "model": "route",
    "max_tokens": 9000,
    "system": "Answer in JSON.",
    "thinking": {"type": "adaptive"},
    "messages": [
        {
            "role": "user",
            "content": [INTENT, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two cities.", "signature": SIGNATURE},
                {"type": "text", "text": "I look."},
                *({"type": "tool_use", "id": name, "name": "weather", "input": args} for name, args in CALLS),
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in RESULTS]},
    ],
    "tools": [{"name": "weather", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": ANSWER}},
}
RESPONSES: dict[str, Any] = {
    "model": "route",
    "store": False,
    "max_output_tokens": 9000,
    "instructions": "Answer in JSON.",
    "reasoning": {"effort": "low"},
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": INTENT["text"]},
                {"type": "input_image", "image_url": "data:image/png;base64," + PICTURE},
            ],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        *({"type": "function_call", "call_id": name, "name": "weather", "arguments": json.dumps(args)} for name, args in CALLS),
        *({"type": "function_call_output", "call_id": name, "output": text} for name, text in RESULTS),
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": ANSWER, "strict": True}},
}
BODIES = {name: body for name, body in (("chat", CHAT), ("messages", MESSAGES), ("responses", RESPONSES)) if name in LANGUAGES}
PAIRS = [(surface, language) for surface in BODIES for language in BODIES]


def asked(surface: str) -> Request:
    return LANGUAGES[surface].decode_request(json.dumps(BODIES[surface]).encode())


def sent(surface: str, language: str, request: Request) -> dict[str, Any]:
    if surface != language:
        to_neutral(request)
    found: dict[str, Any] = json.loads(LANGUAGES[language].encode_request(request, Target(backend="b", model="route"), TAKES))
    return found


# ---- what a conversation says, language by language --------------------------------------------------------------------------------
def gist(language: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"chat": chat_gist, "messages": messages_gist, "responses": responses_gist}[language](body)


def chat_gist(body: dict[str, Any]) -> dict[str, Any]:
    turns = {role: [m for m in body["messages"] if m["role"] == role] for role in ("system", "developer", "user", "assistant", "tool")}
    (user,), spoken = turns["user"], turns["assistant"]
    details = [detail for message in spoken for detail in message.get("reasoning_details", [])]
    return {
        "system": [m["content"] for m in turns["system"] + turns["developer"]],
        "asked": [part["text"] for part in user["content"] if part["type"] == "text"],
        "picture": [part["image_url"]["url"] for part in user["content"] if part["type"] == "image_url"],
        "said": [m["content"] for m in spoken if m.get("content")],
        "thinking": [(detail.get("text"), detail.get("signature")) for detail in details],
        "calls": [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for message in spoken
            for call in message.get("tool_calls", [])
        ],
        "results": [(m["tool_call_id"], m["content"]) for m in turns["tool"]],
        "tools": [(tool["function"]["name"], tool["function"]["parameters"], tool["function"]["strict"]) for tool in body["tools"]],
        "choice": (body["tool_choice"], body["parallel_tool_calls"]),
        "schema": body["response_format"]["json_schema"]["schema"],
        "effort": body.get("reasoning_effort"),
        "limit": body.get("max_completion_tokens", body.get("max_tokens")),
    }


def messages_gist(body: dict[str, Any]) -> dict[str, Any]:
    user, results = (m["content"] for m in body["messages"] if m["role"] == "user")
    spoken = [block for m in body["messages"] if m["role"] == "assistant" for block in m["content"]]
    images = [block["source"] for block in user if block["type"] == "image"]
    return {
        "system": [body["system"]],
        "asked": [block["text"] for block in user if block["type"] == "text"],
        "picture": [f"data:{source['media_type']};base64,{source['data']}" for source in images],
        "said": [block["text"] for block in spoken if block["type"] == "text"],
        "thinking": [(block["thinking"], block["signature"]) for block in spoken if block["type"] == "thinking"],
        "calls": [(block["id"], block["name"], block["input"]) for block in spoken if block["type"] == "tool_use"],
        "results": [(block["tool_use_id"], block["content"]) for block in results],
        "tools": [(tool["name"], tool["input_schema"], tool["strict"]) for tool in body["tools"]],
        "choice": (body["tool_choice"]["type"], not body["tool_choice"]["disable_parallel_tool_use"]),
        "schema": body["output_config"]["format"]["schema"],
        "effort": body["output_config"].get("effort"),
        "limit": body["max_tokens"],
    }


def responses_gist(body: dict[str, Any]) -> dict[str, Any]:
    items = [{"type": "message", **item} for item in body["input"]]
    parts = [(item["role"], part) for item in items if item["type"] == "message" for part in parts_of(item)]
    roles = ("system", "developer")
    leading = [body["instructions"]] if body.get("instructions") else []
    return {
        "system": leading + [part["text"] for role, part in parts if role in roles],
        "asked": [part["text"] for role, part in parts if role == "user" and part["type"] == "input_text"],
        "picture": [part["image_url"] for role, part in parts if part["type"] == "input_image"],
        "said": [part["text"] for role, part in parts if role == "assistant"],
        "thinking": [],  # sealed: what is in it shows on the way back
        "calls": [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in items if item["type"] == "function_call"],
        "results": [(item["call_id"], item["output"]) for item in items if item["type"] == "function_call_output"],
        "tools": [(tool["name"], tool["parameters"], tool["strict"]) for tool in body["tools"]],
        "choice": (body["tool_choice"], body["parallel_tool_calls"]),
        "schema": body["text"]["format"]["schema"],
        "effort": body.get("reasoning", {}).get("effort"),
        "limit": body["max_output_tokens"],
    }


def parts_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item["content"]
    if isinstance(content, str):
        return [{"type": "output_text" if item["role"] == "assistant" else "input_text", "text": content}]
    return list(content)


# What docs/languages.md says is left out and named: thinking that another vendor signed is nothing to a backend of the responses
# language, and a messages backend must not think in a turn whose history lacks its signed thinking.
NAMED = {
    ("chat", "responses"): ["messages.thinking"],
    ("messages", "responses"): ["messages.thinking"],
    ("responses", "messages"): ["reasoning.effort"],
}


def unsayable(surface: str, language: str) -> dict[str, Any]:
    if language == "responses":
        return {"thinking": []}
    return {"effort": None} if (surface, language) == ("responses", "messages") else {}


@pytest.mark.parametrize(("surface", "language"), PAIRS)
def test_a_conversation_goes_out_in_every_language(surface: str, language: str):
    request = asked(surface)
    found, expected = gist(language, sent(surface, language, request)), gist(surface, BODIES[surface])
    assert found == {**expected, **unsayable(surface, language)}
    assert request.dropped == tuple(NAMED.get((surface, language), ()))


@pytest.mark.parametrize(("surface", "language"), PAIRS)
def test_and_comes_back_as_it_was(surface: str, language: str):
    """Out by one language and, read there as a client's request, out by the first again."""
    there = sent(surface, language, asked(surface))
    back = LANGUAGES[language].decode_request(json.dumps(there).encode())
    found, expected = gist(surface, sent(language, surface, back)), gist(surface, BODIES[surface])
    lost = {**unsayable(surface, language), **unsayable(language, surface)}
    assert found == {**expected, **lost}


# ---- the answer's way back ----------------------------------------------------------------------------------------------------------
def test_the_answers_of_every_language_say_the_same_on_every_surface():
    """Thinking, text and two parallel calls, whole and streamed."""
    wanted = [("call_a", "weather", {"city": "Bonn"}), ("call_b", "weather", {"city": "Kiel"})]
    for surface, own in BODIES.items():
        for stream in (False, True):
            request = LANGUAGES[surface].decode_request(json.dumps({**own, "stream": stream}).encode())
            first = play(answer_of("messages", stream))
            for language, other in BODIES.items():  # the answer in one language's words, read again as a backend's, on this surface
                speaks = LANGUAGES[language].decode_request(json.dumps({**other, "stream": stream}).encode())
                text = told(first, language, speaks)
                again = {"api": API_OF[language], "response": {"kind": "sse" if stream else "json", "status": 200}}
                again["response"] |= {"sse": text} if stream else {"json": json.loads(text)}
                said = reading.said(surface, told(play(again), surface, request), stream).choice()
                assert (said.text, said.reasoning, said.calls, said.finish) == ("I look.", "Two cities.", wanted, "tool_calls")


def answer_of(language: str, stream: bool) -> dict[str, Any]:
    content = [
        {"type": "thinking", "thinking": "Two cities.", "signature": SIGNATURE},
        {"type": "text", "text": "I look."},
        *({"type": "tool_use", "id": name, "name": "weather", "input": args} for name, args in CALLS),
    ]
    usage = {"input_tokens": 20, "output_tokens": 9}
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use",
        "usage": usage,
    }
    if not stream:
        return {"api": API_OF[language], "response": {"kind": "json", "status": 200, "json": answer}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}]
    for index, block in enumerate(content):
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[block["type"]]
        deltas = {
            "thinking": [{"type": "thinking_delta", "thinking": "Two cities."}, {"type": "signature_delta", "signature": SIGNATURE}],
            "text": [{"type": "text_delta", "text": "I look."}],
            "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}],
        }[block["type"]]
        events.append({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}, {"type": "message_stop"}]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return {"api": API_OF[language], "response": {"kind": "sse", "status": 200, "sse": text}}
