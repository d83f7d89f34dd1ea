"""Every recorded request goes out as it came in, and what is in it survives the neutral model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import PLAIN, DecodeError
from providers.dialects.anthropic_messages import content as messages_content
from providers.dialects.openai_chat import content as chat_content
from providers.dialects.openai_responses import content as responses_content
from providers.types import Request, Target
from tests.conformance.recordings import LANGUAGES, STATEFUL, Record, dialect, language, needed, records

pytestmark = needed


def taken(record: Record) -> Request | None:
    """The request, None where we refuse what the recorded server refused too, or what needs stored state, by its name."""
    try:
        return dialect(record).decode_request(json.dumps(record["request"]["json"], ensure_ascii=False).encode())
    except DecodeError as error:
        stateful = error.param in STATEFUL and record["request"]["json"].get(error.param)
        assert record["response"]["status"] == 400 or stateful, (record["id"], error.message)
        return None


def test_recorded_requests_go_out_as_they_came_in() -> None:
    """But for usage that is always asked for in a stream of the chat language, and nothing stored by the responses language."""
    count = 0
    for record in records():
        request = taken(record)
        if request is None:
            continue
        sent = json.loads(dialect(record).encode_request(request, Target(backend="b", model=request.model), PLAIN))
        expected = dict(record["request"]["json"])
        if language(record) == "chat" and request.stream:
            expected["stream_options"] = {**(expected.get("stream_options") or {}), "include_usage": True}
        if language(record) == "responses":
            expected["store"] = False
        assert sent == expected, record["id"]
        assert not request.dropped
        count += 1
    assert count > 350


def test_no_recorded_field_of_the_vendors_own_language_is_news() -> None:
    """What the vendors of a language send to their own servers stands in its table."""
    own = {"openai": ("chat", "responses"), "anthropic": ("messages",)}
    for record in records():
        request = taken(record)
        if request is not None and language(record) in own.get(record["provider"], ()):
            assert [name for name in request.unknown if "[" not in name] == [], record["id"]


@pytest.mark.parametrize("name", LANGUAGES)
def test_recorded_conversations_survive_the_neutral_model(name: str) -> None:
    count = 0
    for record in records():
        request = taken(record) if language(record) == name else None
        if request is None:
            continue
        raw, speaks = record["request"]["json"], dialect(record)
        if name == "chat":
            assert json.loads(bytes(chat_content.encode_messages(speaks.messages(request)))) == [chat_normal(m) for m in raw["messages"]]
            tools = json.loads(bytes(chat_content.encode_tools(speaks.tools(request))))
            assert tools == [tool_normal(tool) for tool in raw.get("tools") or [] if tool.get("type", "function") == "function"], record[
                "id"
            ]
        elif name == "responses":
            written = json.loads(bytes(responses_content.encode_messages(speaks.messages(request))["input"]))
            assert turns(written) == turns(responses_items(raw)), record["id"]
        else:
            written = messages_content.encode_messages(speaks.messages(request))
            assert json.loads(bytes(written["messages"])) == [messages_normal(message) for message in raw["messages"]], record["id"]
            assert json.loads(bytes(written.get("system", b"null"))) == raw.get("system")
            own = [tool for tool in raw.get("tools", []) if tool.get("type", "custom") == "custom"]
            assert json.loads(bytes(messages_content.encode_tools(speaks.tools(request)))) == own
        speaks.parameters(request)
        count += 1
    assert count > 20


def chat_normal(message: dict[str, Any]) -> dict[str, Any]:
    """The documented normalisation: null is absent, calls have their type, no index, and arguments that are JSON, and signed
    thinking has its text in `reasoning_content` too and no format, index or id.
    """
    kept = {name: value for name, value in message.items() if value is not None}
    kept.setdefault("content", None)
    calls = kept.get("tool_calls")
    if calls == []:
        del kept["tool_calls"]
    elif calls:
        functions = [{**call["function"], "arguments": call["function"]["arguments"] or "{}"} for call in calls]
        functions = [
            {**function, "arguments": "{}" if function["arguments"] == "null" else function["arguments"]} for function in functions
        ]
        kept["tool_calls"] = [{"id": c.get("id") or "", "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
    content = kept["content"]
    details = kept.get("reasoning_details") or []
    if details and all(str(detail.get("format")).startswith("anthropic") for detail in details):
        own = ("type", "text", "signature", "data")
        kept["reasoning_details"] = [{name: detail[name] for name in own if name in detail} for detail in details]
        kept["reasoning_content"] = "".join(detail["text"] for detail in details if "text" in detail)
    if "reasoning_content" in kept and isinstance(content, list) and len(content) == 1 and set(content[0]) == {"type", "text"}:
        kept["content"] = content[0]["text"]
    return kept


def tool_normal(tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **tool, "function": {name: value for name, value in tool["function"].items() if value is not None}}


def messages_normal(message: dict[str, Any]) -> dict[str, Any]:
    """The documented normalisation: nothing in a recorded history needs more than null left out."""
    if isinstance(message["content"], str):
        return message
    return {**message, "content": [{name: value for name, value in block.items() if value is not None} for block in message["content"]]}


def responses_items(raw: dict[str, Any]) -> list[dict[str, Any]]:
    told = [{"role": "system", "content": raw["instructions"]}] if raw.get("instructions") else []
    return told + ([{"role": "user", "content": raw["input"]}] if isinstance(raw["input"], str) else raw["input"])


def turns(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the assistant did in a row: its texts in one message where nothing stands between them, then its calls."""
    found: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for item in [normal for told in items for normal in responses_normal(told)]:
        assistant = item.get("role") == "assistant" or item["type"] == "reasoning"
        if item["type"] == "function_call":
            calls.append(item)
            continue
        if not assistant:
            found += calls
            calls = []
        last = found[-1] if found else {}
        if last.get("role") == item.get("role") == "assistant":
            last["content"] = last["content"] + item["content"]
        else:
            found.append(item)
    return found + calls


def responses_normal(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The documented normalisation: ids, states and log probabilities of earlier items are left out, a reasoning's text stands once,
    and what the assistant said is one form, be it a text or a list of one."""
    kept = {"type": "message", **{name: value for name, value in item.items() if value is not None and name not in ("id", "status")}}
    if kept["type"] == "reasoning":
        told = "\n\n".join(piece["text"] for piece in kept.get("content") or kept["summary"])
        sealed = kept.get("encrypted_content")
        if not told and sealed is None:
            return []  # it says nothing
        summary = [{"type": "summary_text", "text": told}] if told and sealed is not None else []
        text = {"encrypted_content": sealed} if sealed is not None else {"content": [{"type": "reasoning_text", "text": told}]}
        return [{"type": "reasoning", "summary": summary, **text}]
    if kept.get("role") == "assistant" and isinstance(kept["content"], str):
        kept["content"] = [{"type": "output_text", "text": kept["content"]}]
    for name in ("content", "output"):
        if isinstance(kept.get(name), list):
            kept[name] = [{k: v for k, v in part.items() if v not in (None, []) and k != "logprobs"} for part in kept[name]]
    return [kept]
