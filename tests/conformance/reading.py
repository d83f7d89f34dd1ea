"""What an answer says, read off its JSON with plain code that shares nothing with ours: recordings and our own surfaces alike.

The rules are the documents' of each language and what recorded servers do (tests/conformance/test_traps.py names those). One reader per
language; all of them fill the same `Said`, so that an answer can be compared across languages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

FINISH = {
    "chat": {"eos": "stop", "function_call": "tool_calls", "model_length": "length"},
    "messages": {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    },
    "responses": {"max_output_tokens": "length", "content_filter": "content_filter"},
}
Tokens = dict[str, int]


@dataclass
class Choice:
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)  # id, name, arguments: the JSON they are, or the text they were cut to
    signatures: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    finish: str | None = None


@dataclass
class Said:
    """usage: prompt, completion, cached, written, reasoning; None where nothing was stated."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Tokens | None = None
    error: Any = None

    def choice(self, number: int = 0) -> Choice:
        return self.choices.setdefault(number, Choice())


def arguments(text: str | None) -> Any:
    text = (text or "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
        return {} if found is None else found
    except ValueError:
        return text  # cut off by the limit


def events(text: str) -> list[tuple[str, str]]:
    """(event name, data) of an event stream, up to its end mark."""
    found = []
    for block in text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            member, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if member == "event":
                name = value
            elif member == "data":
                data.append(value)
        if data == ["[DONE]"]:
            break
        if data:
            found.append((name, "\n".join(data)))
    return found


def said(language: str, body: str, streamed: bool) -> Said:
    """language: chat | messages | responses."""
    objects = [json.loads(data) for _, data in events(body)] if streamed else [json.loads(body)]
    return {"chat": chat, "messages": messages, "responses": responses}[language](objects, streamed)


def merged(old: dict[str, Any], new: Any) -> dict[str, Any]:
    """Counts of a stream are running totals: the last one that is no null."""
    for name, value in (new or {}).items():
        if isinstance(value, dict):
            old[name] = merged(dict(old.get(name) or {}), value)
        elif value is not None:
            old[name] = value
    return old


# ---- chat completions ---------------------------------------------------------------------------------------------------------------
def chat(objects: list[dict[str, Any]], streamed: bool) -> Said:
    found, usage = Said(), {}
    pieces: dict[int, list[list[str]]] = {}
    for chunk in objects:
        found.error = chunk.get("error") or found.error
        for place, choice in enumerate(chunk.get("choices") or []):
            number = choice.get("index")
            number = (0 if streamed else place) if number is None else number
            body = (choice.get("delta") if streamed else choice.get("message")) or {}
            _chat_body(found.choice(number), body, pieces.setdefault(number, []), streamed)
            if choice.get("finish_reason") and found.choice(number).finish is None:
                found.choice(number).finish = FINISH["chat"].get(choice["finish_reason"], choice["finish_reason"])
            merged(usage, choice.get("usage"))
        merged(usage, chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage"))
    for number, calls in pieces.items():
        found.choice(number).calls = [(call_id, name, arguments(text)) for call_id, name, text in calls]
    found.usage = inside(usage, "prompt_tokens", "completion_tokens")
    return found


def _chat_body(choice: Choice, body: dict[str, Any], calls: list[list[str]], streamed: bool) -> None:
    content = body.get("content")
    thoughts = ""
    for part in content if isinstance(content, list) else []:
        if part["type"] == "thinking":
            thoughts += "".join(piece["text"] for piece in part["thinking"])
        else:
            choice.text += part.get("text", "")
    choice.text += content if isinstance(content, str) else ""
    details = body.get("reasoning_details") or []
    told = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
    choice.reasoning += thoughts or body.get("reasoning_content") or body.get("reasoning") or told
    choice.refusal += body.get("refusal") or ""
    choice.signatures += [detail["signature"] for detail in details if detail.get("signature")]
    choice.hidden += [detail["data"] for detail in details if detail.get("type") == "reasoning.encrypted"]
    old = body.get("function_call") or {}
    found = body.get("tool_calls") or ([{"index": 0, "function": old}] if old.get("name") or old.get("arguments") else [])
    for piece in found:
        function, index = piece.get("function") or {}, piece.get("index", len(calls))
        if not streamed or index >= len(calls):
            calls.append(["", "", ""])
            index = -1
        known = calls[index]
        known[0] = known[0] or piece.get("id") or ""
        known[1] = known[1] or function.get("name") or ""
        known[2] += function.get("arguments") or ""


def inside(usage: dict[str, Any], prompt_name: str, completion_name: str) -> Tokens | None:
    """Cached and written tokens stand in the prompt's count, thinking in the completion's, unless the vendor's total says otherwise."""
    prompt, completion = usage.get(prompt_name), usage.get(completion_name)
    if prompt is None and completion is None:
        return None
    prompt, completion, total = prompt or 0, completion or 0, usage.get("total_tokens")
    inner = usage.get(prompt_name + "_details") or {}
    outer = usage.get(completion_name + "_details") or {}
    cached = _first(inner.get("cached_tokens"), *(usage.get(name) for name in ("prompt_cache_hit_tokens", "cache_read_input_tokens")))
    cached = cached if cached is not None else _first(usage.get("cached_tokens"), usage.get("num_cached_tokens")) or 0
    split = usage.get("cache_creation") or {}
    written = _first(inner.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"), sum(v or 0 for v in split.values())) or 0
    reasoning = outer.get("reasoning_tokens") or 0
    if cached + written > prompt:  # cannot be a part of it, so it stands beside it
        prompt += cached + written
    elif total is not None and total > prompt + completion:
        beyond = total - prompt - completion
        if usage.get("prompt_audio_seconds") is not None or beyond == cached + written:
            prompt += beyond
        else:
            reasoning, completion = max(reasoning, beyond), completion + beyond
    reasoning = min(reasoning, completion)  # some state more thinking than output
    return {"prompt": prompt, "completion": completion, "cached": cached, "written": written, "reasoning": reasoning}


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


# ---- messages -----------------------------------------------------------------------------------------------------------------------
def messages(objects: list[dict[str, Any]], streamed: bool) -> Said:
    if not streamed:
        whole = objects[0]
        content, usage, stop, error = whole.get("content") or [], whole.get("usage"), whole.get("stop_reason"), whole.get("error")
    else:
        content, usage, stop, error = _message_of(objects)
    found = Said(error=error)
    choice = found.choice()
    choice.finish = None if stop is None else FINISH["messages"].get(stop, stop)
    for block in content:
        kind = block["type"]
        if kind == "text":
            choice.text += block["text"]
        elif kind == "thinking":
            choice.reasoning += block["thinking"]
            choice.signatures += [block["signature"]] if block.get("signature") else []
        elif kind == "redacted_thinking":
            choice.hidden.append(block["data"])
        elif kind == "tool_use":
            choice.calls.append((block["id"], block["name"], block["input"]))
    if usage:
        read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
        thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
        prompt, completion = (usage.get("input_tokens") or 0) + read + written, usage.get("output_tokens") or 0
        found.usage = {"prompt": prompt, "completion": completion, "cached": read, "written": written, "reasoning": thought}
    return found


def _message_of(objects: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any], str | None, Any]:
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    stop = error = None
    for event in objects:
        merged(usage, event.get("usage") or (event.get("message") or {}).get("usage"))
        if event["type"] == "error":
            error = event["error"]
        elif event["type"] == "content_block_start":
            assert event["index"] == len(blocks), "blocks are counted from 0, one after the other"
            blocks[event["index"]] = {**event["content_block"], "pieces": ""}
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            for name in {"text", "thinking", "signature"} & set(delta):
                block[name] = block.get(name, "") + delta[name]
            block["pieces"] += delta.get("partial_json", "")
        elif event["type"] == "message_delta":
            stop = event["delta"]["stop_reason"]
    for block in blocks.values():
        if block["type"] == "tool_use":
            block["input"] = arguments(block["pieces"]) if block["pieces"].strip() else block["input"]
    return [blocks[index] for index in sorted(blocks)], usage, stop, error


# ---- responses ----------------------------------------------------------------------------------------------------------------------
def responses(objects: list[dict[str, Any]], streamed: bool) -> Said:
    response, items = (_response_of(objects)) if streamed else (objects[0], objects[0].get("output") or [])
    found = Said(error=response.get("error"))
    choice = found.choice()
    for item in items:
        kind = item["type"]
        if kind == "message":
            for part in item["content"]:
                choice.text += part.get("text") or ""
                choice.refusal += part.get("refusal") or ""
        elif kind == "reasoning":
            full = "".join(part.get("text") or "" for part in item.get("content") or [])
            choice.reasoning += full or "\n\n".join(part.get("text") or "" for part in item.get("summary") or [])
            choice.hidden += [item["encrypted_content"]] if item.get("encrypted_content") else []
        elif kind == "function_call":
            choice.calls.append((item.get("call_id") or item.get("id") or "", item["name"], arguments(item.get("arguments"))))
    if response.get("status") == "completed":
        choice.finish = "tool_calls" if choice.calls else "stop"
    elif response.get("status") == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        choice.finish = FINISH["responses"].get(reason, reason)
    found.usage = inside(response.get("usage") or {}, "input_tokens", "output_tokens")
    return found


def _response_of(objects: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last state of the response, and its items: as they were done, put together where they were not."""
    done: dict[int, dict[str, Any]] = {}
    response: dict[str, Any] = {}
    for event in objects:
        if event["type"] == "error":
            response = {**response, "error": event.get("error") or event, "status": "failed"}
        elif "response" in event:
            response = event["response"]
        elif event["type"] == "response.output_item.done":
            done[event["output_index"]] = event["item"]
    return response, [done[index] for index in sorted(done)] or response.get("output") or []


def pieces(objects: list[dict[str, Any]]) -> tuple[str, dict[int, str]]:
    """Text and arguments as a responses stream gave them away bit by bit."""
    text, calls = "", {}
    for event in objects:
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "response.function_call_arguments.delta":
            calls[event["output_index"]] = calls.get(event["output_index"], "") + event["delta"]
    return text, calls
