"""What stands on the wire: typed structs for chunks and answers, liberal where servers differ, and where usage is counted.

A member that servers disagree about is Any and looked at by the code that needs it: one odd member must not cost the whole event.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from providers.dialects.usage import Nesting, as_decimal, to_wire


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


class StreamChoice(Struct, gc=False):
    """A choice of a chunk. Without `message`: some servers repeat the whole answer there in every chunk."""

    index: Any = 0
    delta: Delta | None = None
    finish_reason: Any = None
    logprobs: Any = None
    usage: Any = None


class Choice(StreamChoice, gc=False):
    message: Delta | None = None


class Groq(Struct, gc=False):
    usage: Any = None


class StreamChunk(Struct, gc=False):
    """One event of a stream."""

    id: Any = None
    model: Any = None
    created: Any = None
    choices: list[StreamChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Groq | None = None
    cost: Any = None


class Chunk(StreamChunk, gc=False):
    """A whole answer."""

    choices: list[Choice] | None = None  # type: ignore[assignment]


decode_chunk = msgspec.json.Decoder(StreamChunk, float_hook=as_decimal).decode
decode_whole = msgspec.json.Decoder(Chunk, float_hook=as_decimal).decode

FINISH = {
    **dict.fromkeys(("stop", "eos", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "model_length", "max_tokens"), "length"),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), "tool_calls"),
    "content_filter": "content_filter",
}

_IN, _OUT, _WRITTEN = "prompt_tokens_details.", "completion_tokens_details.", "cache_creation.ephemeral_"
_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")
NESTING = Nesting(
    prompt="prompt_tokens",
    completion="completion_tokens",
    total="total_tokens",
    cache_read=(_IN + "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens"),
    cache_write=(_IN + "cache_write_tokens", _IN + "cache_creation_tokens", "cache_creation_input_tokens"),
    cache_write_5m=_WRITTEN + "5m_input_tokens",
    cache_write_1h=(_WRITTEN + "1h_input_tokens", _WRITTEN + "24h_input_tokens"),
    input_audio=_IN + "audio_tokens",
    reasoning=(_OUT + "reasoning_tokens", "reasoning_tokens"),
    output_audio=_OUT + "audio_tokens",
    input_image=_IN + "image_tokens",
    output_image=_OUT + "image_tokens",
    audio_mark="prompt_audio_seconds",
    zeros=frozenset({*_TOTALS, _IN + "cached_tokens", _IN + "audio_tokens", _OUT + "reasoning_tokens", _OUT + "audio_tokens"}),
)
usage_to_wire = partial(to_wire, nesting=NESTING)
