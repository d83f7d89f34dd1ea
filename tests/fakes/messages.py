"""What a vendor that speaks Anthropic Messages sends, whole and streamed, for tests that script one."""

from __future__ import annotations

import json
from typing import Any


def message(content: list[Any], stop: str = "end_turn", **usage: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 12, "output_tokens": 3},
    }


def event(**data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), json.dumps(data).encode())


def stream(content: list[tuple[dict[str, Any], list[dict[str, Any]]]], stop: str = "end_turn", end: bool = True) -> list[bytes]:
    """Events of a streamed message: blocks as they begin, each with its deltas; input 25, output 15 as in the vendor's own example."""
    head = {**message([], "", input_tokens=25, output_tokens=1), "stop_reason": None}
    events = [event(type="message_start", message=head), event(type="ping")]
    for index, (block, deltas) in enumerate(content):
        events.append(event(type="content_block_start", index=index, content_block=block))
        events += [event(type="content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(event(type="content_block_stop", index=index))
    if end:
        events.append(event(type="message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 15}))
        events.append(event(type="message_stop"))
    return events


def text_stream(*pieces: str, end: bool = True) -> list[bytes]:
    return stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces])], end=end)
