"""What a vendor that speaks OpenAI Responses sends, whole and streamed, for tests that script one."""

from __future__ import annotations

import json
from typing import Any

USAGE = {
    "input_tokens": 25,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens": 15,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 40,
}


def response(*output: Any, status: str = "completed", **members: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 7, "model": "gpt-x", "status": status, "output": list(output)}
    return {**head, "error": None, "incomplete_details": None, "usage": USAGE, **members}


def text(said: str, **members: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": said, "annotations": [], "logprobs": [], **members}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def reasoning(summary: str, encrypted: str | None = None) -> dict[str, Any]:
    pieces = [{"type": "summary_text", "text": summary}] if summary else []
    item = {"id": "rs_1", "type": "reasoning", "summary": pieces}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    item = {"id": "fc_" + call_id, "type": "function_call", "status": "completed", "call_id": call_id}
    return {**item, "name": name, "arguments": arguments}


def event(number: int, **data: Any) -> bytes:
    body = json.dumps({"sequence_number": number, **data}, separators=(",", ":")).encode()
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), body)


def stream(*output: dict[str, Any], pieces: int = 2, end: str | None = "completed", **members: Any) -> list[bytes]:
    """The events of a streamed answer, each text and each argument in so many pieces. end None: the stream breaks off."""
    found: list[dict[str, Any]] = []
    begun = response(status="in_progress", usage=None)
    found += [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
    for index, item in enumerate(output):
        found += _item(item, index, pieces)
    if end is not None:
        found.append({"type": f"response.{end}", "response": response(*output, status=end, **members)})
    return [event(number, **data) for number, data in enumerate(found)]


def _item(item: dict[str, Any], index: int, pieces: int) -> list[dict[str, Any]]:
    place = {"output_index": index, "item_id": item["id"]}
    empty = {**item, "status": "in_progress", **{name: [] for name in ("content", "summary") if name in item}}
    found = [{"type": "response.output_item.added", "output_index": index, "item": empty}]
    if item["type"] == "function_call":
        empty["arguments"] = ""
        found += _pieces("response.function_call_arguments", item["arguments"], "arguments", pieces, place)
    for n, part in enumerate(item.get("content", [])):
        member = "refusal" if part["type"] == "refusal" else "text"
        here = {**place, "content_index": n}
        found.append({"type": "response.content_part.added", **here, "part": {**part, member: "", "annotations": []}})
        found += _pieces(f"response.{part['type']}", part[member], member, pieces, here)
        for at, annotation in enumerate(part.get("annotations", [])):
            found.append({"type": "response.output_text.annotation.added", **here, "annotation_index": at, "annotation": annotation})
        found.append({"type": "response.content_part.done", **here, "part": part})
    for n, part in enumerate(item.get("summary", [])):
        here = {**place, "summary_index": n}
        found.append({"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}})
        found += _pieces("response.reasoning_summary_text", part["text"], "text", pieces, here)
        found.append({"type": "response.reasoning_summary_part.done", **here, "part": part})
    return [*found, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _pieces(name: str, whole: str, member: str, pieces: int, place: dict[str, Any]) -> list[dict[str, Any]]:
    size = max(1, -(-len(whole) // pieces))
    deltas = [{"type": name + ".delta", **place, "delta": whole[at : at + size]} for at in range(0, len(whole), size)]
    return [*deltas, {"type": name + ".done", **place, member: whole}]
