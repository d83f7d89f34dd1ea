"""What stands on the wire: typed structs for chunks and answers, liberal where servers differ, and usage in both directions.

A member that servers disagree about is Any and looked at by the code that needs it: one odd member must not cost the whole event.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
from msgspec import Struct

from providers.types import Usage

MAX_COUNT = 1_000_000_000  # tokens, or USD; a larger count is a vendor's mistake
NANO = 1_000_000_000


class Function(Struct, gc=False):
    name: Any = None
    arguments: Any = None


class ToolPiece(Struct, gc=False):
    index: Any = None
    id: Any = None
    function: Function | None = None


class Delta(Struct, gc=False):
    """A delta of a chunk, or the message of a whole answer: the same members."""

    content: Any = None
    tool_calls: list[ToolPiece] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    function_call: Function | None = None
    audio: Any = None


class Choice(Struct, gc=False):
    index: Any = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: Any = None
    logprobs: Any = None
    usage: Any = None


class Groq(Struct, gc=False):
    usage: Any = None


class Chunk(Struct, gc=False):
    """One event of a stream, or a whole answer."""

    id: Any = None
    model: Any = None
    created: Any = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Groq | None = None
    cost: Any = None


class StreamChoice(Struct, gc=False):
    """Choice without `message`: some servers repeat the whole answer there in every chunk."""

    index: Any = 0
    delta: Delta | None = None
    finish_reason: Any = None
    logprobs: Any = None
    usage: Any = None


class StreamChunk(Struct, gc=False):
    id: Any = None
    model: Any = None
    created: Any = None
    choices: list[StreamChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Groq | None = None
    cost: Any = None


def _decimal(text: str) -> Decimal | None:
    """A vendor's stated cost is money. None for what no number can hold, as if it were not stated."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


decode_chunk = msgspec.json.Decoder(StreamChunk, float_hook=_decimal).decode
decode_whole = msgspec.json.Decoder(Chunk, float_hook=_decimal).decode
decode_any = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder(decimal_format="number").encode

FINISH = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def merge(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Running totals: the last non-null value of each member counts, nothing is summed."""
    merged = dict(old)
    for name, value in new.items():
        if isinstance(value, dict):
            before = merged.get(name)
            merged[name] = merge(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            merged[name] = value
    return merged


class _Bad(Exception):
    """A count that cannot be."""


def _count(*values: Any) -> int | None:
    """The first one that is there. Raises _Bad for one that is negative, absurd or no number."""
    for value in values:
        if value is None:
            continue
        if type(value) not in (int, Decimal) or not 0 <= value <= MAX_COUNT:
            raise _Bad
        count = int(value)  # once it is known to be small: the integer that 1e999999999 stands for takes minutes to make
        if count != value:
            raise _Bad
        return count
    return None


def _members(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def usage_from_wire(wire: Mapping[str, Any], cost: Any = None) -> Usage | None:
    """Disjoint classes from OpenAI's nesting (cached inside prompt, reasoning inside completion).

    None where it states nothing or a count cannot be (negative, absurd): the caller counts for itself and flags it. Where the
    vendor's own total shows that a class stands outside instead, the total decides.
    """
    try:
        return _disjoint(wire, cost)
    except _Bad:
        return None


def _disjoint(wire: Mapping[str, Any], cost: Any) -> Usage | None:
    prompt, completion = _count(wire.get("prompt_tokens")), _count(wire.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    inner, outer = _members(wire.get("prompt_tokens_details")), _members(wire.get("completion_tokens_details"))
    read = _count(
        inner.get("cached_tokens"),
        wire.get("prompt_cache_hit_tokens"),
        wire.get("cache_read_input_tokens"),
        wire.get("cached_tokens"),
        wire.get("num_cached_tokens"),
    )
    read = read or 0
    write_5m, write_1h = _cache_writes(wire, inner)
    audio = _count(inner.get("audio_tokens")) or 0
    reasoning = _count(outer.get("reasoning_tokens"), wire.get("reasoning_tokens")) or 0
    spoken = _count(outer.get("audio_tokens")) or 0
    seen, drawn = _count(inner.get("image_tokens")) or 0, _count(outer.get("image_tokens")) or 0
    cached = read + write_5m + write_1h
    total = _count(wire.get("total_tokens"))
    beyond = 0 if total is None else max(0, total - prompt - completion)  # what the vendor counts outside of both
    if cached and (cached > prompt or beyond == cached):
        prompt += cached
        beyond = 0 if beyond == cached else beyond
    elif beyond and wire.get("prompt_audio_seconds") is not None:
        prompt, audio, beyond = prompt + beyond, audio + beyond, 0
    if beyond:  # thinking that is counted outside of the completion
        reasoning = max(reasoning, beyond)
        completion += beyond
    reasoning = min(reasoning, completion)
    spoken = min(spoken, completion - reasoning)
    drawn = min(drawn, completion - reasoning - spoken)
    audio = min(audio, prompt - cached)
    seen = min(seen, prompt - cached - audio)  # part of them may have been read from the cache
    return Usage(
        input=prompt - cached - audio - seen,
        cache_read=read,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        input_audio=audio,
        input_image=seen,
        output=completion - reasoning - spoken - drawn,
        reasoning=reasoning,
        output_audio=spoken,
        output_image=drawn,
        stated_nanousd=_stated(wire, cost),
    )


def _cache_writes(wire: Mapping[str, Any], inner: Mapping[str, Any]) -> tuple[int, int]:
    """Five-minute and longer writes; a total without a split is the five-minute kind."""
    split = _members(wire.get("cache_creation"))
    long = (_count(split.get("ephemeral_1h_input_tokens")) or 0) + (_count(split.get("ephemeral_24h_input_tokens")) or 0)
    short = _count(split.get("ephemeral_5m_input_tokens")) or 0
    total = _count(inner.get("cache_write_tokens"), inner.get("cache_creation_tokens"), wire.get("cache_creation_input_tokens")) or 0
    return max(short, total - long), long


def _stated(wire: Mapping[str, Any], cost: Any) -> int | None:
    """The vendor's own figure in nano-USD."""
    ticks = wire.get("cost_in_usd_ticks")
    if type(ticks) is int and 0 <= ticks <= MAX_COUNT * NANO * 10:
        return ticks // 10
    value = wire.get("cost")
    if isinstance(value, dict):
        value = value.get("total_cost")
    if value is None:
        value = _members(cost).get("usd")
    if type(value) is int or isinstance(value, Decimal):
        return int(Decimal(value) * NANO) if 0 <= value <= MAX_COUNT else None
    return None


def usage_to_wire(usage: Usage) -> dict[str, Any]:
    """OpenAI's nesting from disjoint classes; the totals are those of `Usage`."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    inner: dict[str, Any] = {"cached_tokens": usage.cache_read, "audio_tokens": usage.input_audio}
    wire: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if usage.cache_write_5m or usage.cache_write_1h:
        inner["cache_write_tokens"] = usage.cache_write_5m + usage.cache_write_1h
    outer: dict[str, Any] = {"reasoning_tokens": usage.reasoning, "audio_tokens": usage.output_audio}
    for details, images in ((inner, usage.input_image), (outer, usage.output_image)):
        if images:
            details["image_tokens"] = images
    wire["prompt_tokens_details"] = inner
    wire["completion_tokens_details"] = outer
    if usage.cache_write_1h:
        wire["cache_creation"] = {"ephemeral_5m_input_tokens": usage.cache_write_5m, "ephemeral_1h_input_tokens": usage.cache_write_1h}
    return wire
