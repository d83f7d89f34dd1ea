"""What stands on the wire: the events of a stream, usage in both directions, and why an answer ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from providers.types import Usage

MAX_COUNT = 1_000_000_000  # tokens; a larger count is a vendor's mistake


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
    error: Any = None


decode_event = msgspec.json.Decoder(StreamEvent).decode
decode_message = msgspec.json.Decoder(Message).decode
decode_block = msgspec.json.Decoder(Block).decode
decode_any = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode

STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal", "pause_turn": "pause_turn"}


def merge(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of one stream are running totals: the last non-null value of each counts, nothing is summed."""
    return {**old, **{name: value for name, value in new.items() if value is not None}}


def usage_from_wire(wire: Mapping[str, Any]) -> Usage | None:
    """The classes are disjoint on this wire, but for thinking, which stands inside the output. None for counts that cannot be."""
    counts = {name: value for name, value in wire.items() if name.endswith("_tokens")}
    split, details = wire.get("cache_creation"), wire.get("output_tokens_details")
    for inner in (split, details):
        counts |= inner if isinstance(inner, dict) else {}
    counts = {name: value for name, value in counts.items() if value is not None}
    if not counts or any(type(value) is not int or not 0 <= value <= MAX_COUNT for value in counts.values()):
        return None
    written, hour = counts.get("cache_creation_input_tokens", 0), counts.get("ephemeral_1h_input_tokens", 0)
    output = counts.get("output_tokens", 0)
    reasoning = min(counts.get("thinking_tokens", 0), output)
    return Usage(
        input=counts.get("input_tokens", 0),
        cache_read=counts.get("cache_read_input_tokens", 0),
        cache_write_5m=max(counts.get("ephemeral_5m_input_tokens", 0), written - hour),  # a total without a split is the short kind
        cache_write_1h=hour,
        output=output - reasoning,
        reasoning=reasoning,
    )


def usage_to_wire(usage: Usage) -> dict[str, Any]:
    short, hour = usage.cache_write_5m, usage.cache_write_1h
    wire: dict[str, Any] = {
        "input_tokens": usage.input + usage.input_audio + usage.input_image,
        "cache_creation_input_tokens": short + hour,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.completion_tokens,
    }
    if short or hour:
        wire["cache_creation"] = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": hour}
    if usage.reasoning:
        wire["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return wire
