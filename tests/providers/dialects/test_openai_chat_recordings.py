"""Recorded answers of many servers through the codec, where the folder TOLLWAY_RECORDINGS names is at hand.

What is expected is read off each recording here, with plain json and without the code under test.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError
from providers.dialects.openai_chat.content import encode_messages
from providers.errors import ContextTooLong, ProviderError, RateLimited, Unauthorized
from providers.types import Failed, Finished, Metered, ReasoningDelta, Request, Target, TextDelta, ToolCallDelta

FOLDER = os.environ.get("TOLLWAY_RECORDINGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TOLLWAY_RECORDINGS names no folder of recordings")

CHAT = DIALECTS["openai_chat"]
SAME = {"eos": "stop", "function_call": "tool_calls", "model_length": "length"}
CHUNKINGS = ("whole", "event", 1, 2, 3)
MAX_UNEXPLAINED = 0.03
EXPLAINED: dict[str, str] = {}  # recording -> why its answer cannot be given as it says


def records() -> list[dict[str, Any]]:
    if not FOLDER:
        return []
    found = [
        json.loads(line) for path in sorted(Path(FOLDER).glob("*.jsonl")) for line in path.read_text(encoding="utf-8").split("\n") if line
    ]
    return [record for record in found if record["api"] == "chat.completions"]


# ---- what a recording says ----------------------------------------------------------------------------------------------------------
def objects(record: dict[str, Any]) -> list[dict[str, Any]]:
    response = record["response"]
    if response["kind"] != "sse":
        return [response["json"]]
    found = []
    for line in response["sse"].replace("\r\n", "\n").split("\n"):
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            found.append(json.loads(line[5:]))
        elif line.strip() == "data: [DONE]":
            break
    return found


def thoughts_and_text(content: Any) -> tuple[str, str]:
    thoughts = text = ""
    for part in content if isinstance(content, list) else []:
        if part["type"] == "thinking":
            thoughts += "".join(piece["text"] for piece in part["thinking"])
        else:
            text += part.get("text", "")
    return thoughts, content if isinstance(content, str) else text


def stated(record: dict[str, Any]) -> dict[str, Any]:
    text, reasoning, refusal, finish = defaultdict(str), defaultdict(str), defaultdict(str), {}
    calls: dict[int, list[list[str]]] = defaultdict(list)
    usage: dict[str, Any] = {}
    streamed = record["response"]["kind"] == "sse"
    for chunk in objects(record):
        for choice in chunk.get("choices") or []:
            number = choice.get("index") or 0
            body = (choice.get("delta") if streamed else choice["message"]) or {}
            inner, said = thoughts_and_text(body.get("content"))
            text[number] += said
            details = "".join(d.get("text") or d.get("summary") or "" for d in body.get("reasoning_details") or [])
            reasoning[number] += inner or body.get("reasoning_content") or body.get("reasoning") or details
            refusal[number] += body.get("refusal") or ""
            pieces = body.get("tool_calls") or []
            if body.get("function_call") and (body["function_call"].get("name") or body["function_call"].get("arguments")):
                pieces = [{"index": 0, "id": "", "function": body["function_call"]}]
            for piece in pieces:
                function = piece.get("function") or {}
                known = calls[number]
                if not streamed or piece.get("index", 0) >= len(known):
                    known.append([function.get("name") or "", function.get("arguments") or ""])
                else:
                    known[piece.get("index", 0)][1] += function.get("arguments") or ""
            if choice.get("finish_reason"):
                finish.setdefault(number, SAME.get(choice["finish_reason"], choice["finish_reason"]))
        told = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or {}
        for name, value in told.items():
            if isinstance(value, dict):
                usage[name] = {**usage.get(name, {}), **{k: v for k, v in value.items() if v is not None}}
            elif value is not None:
                usage[name] = value
    return {
        "text": {k: v for k, v in text.items() if v},
        "reasoning": {k: v for k, v in reasoning.items() if v},
        "refusal": {k: v for k, v in refusal.items() if v},
        "calls": {k: v for k, v in calls.items() if v},
        "finish": finish,
        "usage": stated_usage(usage),
    }


def stated_usage(usage: dict[str, Any]) -> tuple[int, int, int, int] | None:
    """(prompt, completion, cached, reasoning), with completion taken from the total where thinking is counted outside of it."""
    if not usage:
        return None
    prompt, completion, total = usage["prompt_tokens"], usage["completion_tokens"], usage.get("total_tokens")
    inner, outer = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    names = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
    cached = next((v for v in (inner.get("cached_tokens"), *(usage.get(name) for name in names)) if v is not None), 0)
    if cached > prompt:  # cannot be a part of it, so it stands beside it
        return prompt + cached, completion, cached, outer.get("reasoning_tokens") or 0
    reasoning = outer.get("reasoning_tokens") or 0
    if total is not None and total > prompt + completion:
        if usage.get("prompt_audio_seconds") is not None:
            prompt = total - completion
        else:
            reasoning, completion = max(reasoning, total - prompt - completion), total - prompt
    return prompt, completion, cached, min(reasoning, completion)


# ---- what the codec says ------------------------------------------------------------------------------------------------------------
def reads(data: bytes, chunking: str | int) -> list[bytes]:
    if chunking == "whole":
        return [data]
    if chunking == "event":
        return [piece + b"\n" for piece in data.split(b"\n")]
    assert isinstance(chunking, int)
    return [data[at : at + chunking] for at in range(0, len(data), chunking)]


def events_of(record: dict[str, Any], chunking: str | int) -> list[Any]:
    response = record["response"]
    if response["kind"] != "sse":
        return CHAT.decode_answer(json.dumps(response["json"]).encode()).events
    decoder, events = CHAT.stream_decoder(), []
    for data in reads(response["sse"].encode(), chunking):
        events += decoder.feed(data).events
    return events + decoder.close().events


def collected(events: list[Any]) -> dict[str, Any]:
    text, reasoning, refusal, finish, usage = defaultdict(str), defaultdict(str), defaultdict(str), {}, None
    calls: dict[int, list[list[str]]] = defaultdict(list)
    for event in events:
        if isinstance(event, TextDelta):
            (refusal if event.refusal else text)[event.choice] += event.text
        elif isinstance(event, ReasoningDelta):
            reasoning[event.choice] += event.text
        elif isinstance(event, ToolCallDelta):
            if event.index == len(calls[event.choice]):
                calls[event.choice].append([event.name or "", ""])
            calls[event.choice][event.index][1] += event.arguments
        elif isinstance(event, Finished):
            finish[event.choice] = event.reason
        elif isinstance(event, Metered):
            u = event.usage
            usage = (u.prompt_tokens, u.completion_tokens, u.cache_read, u.reasoning)
    found = {"text": text, "reasoning": reasoning, "refusal": refusal, "calls": calls}
    return {**{name: {k: v for k, v in value.items() if v} for name, value in found.items()}, "finish": finish, "usage": usage}


def test_recorded_answers_say_what_the_recording_says(capsys):
    table: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, str] = {}
    for record in records():
        if record["response"]["status"] != 200 or {"error", "mid_stream_error", "error_in_200"} & set(record["tags"]):
            continue
        expected = stated(record)
        table[record["provider"]]["answers"] += 1
        for chunking in CHUNKINGS if record["response"]["kind"] == "sse" else ("whole",):
            try:
                found = collected(events_of(record, chunking))
            except ProviderError as error:
                found = {"raised": repr(error)}
            differing = {
                name: (expected.get(name), found.get(name)) for name in {*expected, *found} if expected.get(name) != found.get(name)
            }
            if differing:
                wrong[record["id"]] = f"{chunking}: {json.dumps(differing, default=str)[:400]}"
                table[record["provider"]]["wrong"] += 1
                break
    lines = [f"{vendor:16} {count['answers']:4} answers {count['wrong']:3} wrong" for vendor, count in sorted(table.items())]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines + [f"{name} {why}" for name, why in wrong.items()]) + "\n")
    assert set(wrong) == set(EXPLAINED)
    assert len(wrong) <= MAX_UNEXPLAINED * sum(count["answers"] for count in table.values())


def test_recorded_errors_come_out_by_kind():
    found = Counter()
    for record in records():
        response = record["response"]
        if response["status"] == 200:
            continue
        body = json.dumps(response["json"]).encode() if "json" in response else response.get("text", "").encode()
        error = CHAT.http_error(response["status"], response["headers"], body)
        found[type(error).__name__] += 1
        assert error.answered
        words = json.dumps(response.get("json")).lower()
        if response["status"] in (401, 403):
            assert isinstance(error, Unauthorized), record["id"]
        if response["status"] == 429:
            assert isinstance(error, RateLimited), record["id"]
        if any(wording in words for wording in ("context size", "context length", "too long", "too_many_prompt_tokens")):
            assert isinstance(error, ContextTooLong), record["id"]
        else:
            assert not isinstance(error, ContextTooLong), record["id"]
        if response["status"] == 500:
            assert not error.retryable, record["id"]  # each recorded 500 is a request that this server cannot carry
    assert found


def test_recorded_errors_inside_a_stream_become_errors():
    seen = 0
    for record in records():
        if record["response"]["status"] != 200 or not {"mid_stream_error", "error_in_200"} & set(record["tags"]):
            continue
        seen += 1
        for chunking in CHUNKINGS if record["response"]["kind"] == "sse" else ("whole",):
            try:
                events = events_of(record, chunking)
            except ProviderError as error:
                assert error.message
            else:
                assert isinstance(events[-1], Failed), record["id"]
    assert seen


def taken(record: dict[str, Any]) -> Request | None:
    """The request, None where we refuse what the recorded server refused too."""
    try:
        return CHAT.decode_request(json.dumps(record["request"]["json"], ensure_ascii=False).encode())
    except DecodeError as error:
        assert record["response"]["status"] == 400, (record["id"], error.message)
        return None


def test_recorded_requests_go_out_as_they_came_in():
    for record in records():
        request = taken(record)
        if request is None:
            continue
        sent = json.loads(CHAT.encode_request(request, Target(backend="b", model=request.model), PLAIN))
        if request.stream:
            assert sent.pop("stream_options")["include_usage"] is True
        expected = {name: value for name, value in record["request"]["json"].items() if not (request.stream and name == "stream_options")}
        assert sent == expected, record["id"]


def test_recorded_messages_survive_the_neutral_model():
    for record in records():
        raw = record["request"]["json"]
        request = taken(record)
        if request is None:
            continue
        written = json.loads(bytes(encode_messages(CHAT.messages(request))))
        assert written == [normal(message) for message in raw["messages"]], record["id"]
        CHAT.tools(request)


def normal(message: dict[str, Any]) -> dict[str, Any]:
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
