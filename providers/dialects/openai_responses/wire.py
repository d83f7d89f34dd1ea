"""What stands on the wire: typed structs for events and answers, liberal where servers differ, and where usage is counted.

A member that servers disagree about is Any and looked at by the code that needs it: one odd member must not cost the whole event.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from providers.dialects.usage import Nesting, as_decimal, to_wire


class Response(Struct, gc=False):
    """A whole answer, and what the events of a stream say of it."""

    id: Any = None
    model: Any = None
    created_at: Any = None
    status: Any = None
    output: list[Raw] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None


class StreamEvent(Struct, gc=False):
    type: str = ""
    output_index: Any = 0
    summary_index: Any = 0
    delta: Any = None
    logprobs: Any = None
    annotation: Raw = Raw()
    item: Raw = Raw()
    response: Response | None = None


class Item(Struct, gc=False):
    """An item of the output. Members of a kind that only this language has stay in its bytes."""

    type: str
    call_id: Any = None
    id: Any = None
    name: Any = None
    arguments: Any = None
    content: Any = None


decode_event = msgspec.json.Decoder(StreamEvent, float_hook=as_decimal).decode
decode_response = msgspec.json.Decoder(Response, float_hook=as_decimal).decode
decode_item = msgspec.json.Decoder(Item).decode

REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}  # why an answer is incomplete
FINISH = {wire: reason for reason, wire in REASONS.items()}

_INPUT, _OUTPUT = "input_tokens_details.", "output_tokens_details."
_COUNTS = ("input_tokens", "output_tokens", "total_tokens", _INPUT + "cached_tokens", _INPUT + "cache_write_tokens")
NESTING = Nesting(
    prompt="input_tokens",
    completion="output_tokens",
    total="total_tokens",
    cache_read=(_INPUT + "cached_tokens",),
    cache_write=(_INPUT + "cache_write_tokens",),
    cache_write_5m=_INPUT + "cache_write_tokens_details.ttl_30m_tokens",
    cache_write_1h=(_INPUT + "cache_write_tokens_details.ttl_12h_tokens",),
    input_audio=_INPUT + "audio_tokens",
    reasoning=(_OUTPUT + "reasoning_tokens",),
    output_audio=_OUTPUT + "audio_tokens",
    zeros=frozenset({*_COUNTS, _OUTPUT + "reasoning_tokens"}),
)
usage_to_wire = partial(to_wire, nesting=NESTING)
