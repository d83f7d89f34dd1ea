"""What stands on the wire: the events of a stream, usage in both directions, and why an answer ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from providers.dialects.usage import Nesting, to_wire


class Block(Struct, gc=False):
    """A content block. A member that servers disagree about is Any: one odd member must not cost the whole event."""

    type: str = ""
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: Raw = Raw()
    citations: list[Raw] | None = None


class Delta(Struct, gc=False):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Raw = Raw()
    stop_reason: Any = None
    stop_sequence: Any = None


class Message(Struct, gc=False):
    """A whole answer, and the empty one that a stream begins with."""

    type: Any = None
    id: Any = None
    model: Any = None
    content: list[Raw] | None = None
    stop_reason: Any = None
    stop_sequence: Any = None
    usage: Any = None
    error: Any = None


class StreamEvent(Struct, gc=False):
    type: str
    index: int = 0
    message: Message | None = None
    content_block: Raw = Raw()
    delta: Delta | None = None
    usage: Any = None


decode_event = msgspec.json.Decoder(StreamEvent).decode
decode_message = msgspec.json.Decoder(Message).decode
decode_block = msgspec.json.Decoder(Block).decode

STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal", "pause_turn": "pause_turn"}


_SPLIT = [f"cache_creation.ephemeral_{time}_input_tokens" for time in ("5m", "1h")]
NESTING = Nesting(
    prompt="input_tokens",
    completion="output_tokens",
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    cache_write_5m="cache_creation.ephemeral_5m_input_tokens",
    cache_write_1h=("cache_creation.ephemeral_1h_input_tokens",),
    reasoning=("output_tokens_details.thinking_tokens",),
    outside_cache=True,
    zeros=frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", *_SPLIT}),
)
usage_to_wire = partial(to_wire, nesting=NESTING)
