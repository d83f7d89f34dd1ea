"""Requests of this language: from the client (checked one level deep, the rest on demand) and to the backend.

The fast lane writes the client's own bytes again with what the target needs changed at top level; nested values stay byte for byte.
Knows no vendor by name: what a backend takes comes as Quirks.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects import look
from providers.dialects.adapt import adapt
from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.crossing import Crossing
from providers.dialects.crossing import foreign_fields as crossed
from providers.dialects.openai_chat import content
from providers.dialects.openai_chat.fields import FIELDS, MessagePeek, PartPeek
from providers.dialects.openai_chat.parameters import encode_parameters
from providers.dialects.quirks import ask_for_usage, for_target, set_limit
from providers.dialects.rawjson import LIST
from providers.dialects.sealed import holds_sealed, without_sealed
from providers.types import Parameters, Request, Target

NAME = content.NAME
_messages = msgspec.json.Decoder(list[MessagePeek]).decode
_parts = msgspec.json.Decoder(list[PartPeek]).decode
_FALSE = Raw(b"false")
_LIMITS = ("max_tokens", "max_completion_tokens")
_NEEDS = {"image_url": "images", "input_audio": "audio", "file": "documents"}
_TEXTS = ("text", "refusal")


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request, values, seen = look.begin(NAME, body, FIELDS)
    request.n = values.get("n") or 1
    request.max_tokens = _limit(values)
    options = values.get("stream_options")
    request.include_usage = options is not None and options.include_usage is True
    for position, message in enumerate(look.messages(_messages, seen, request.fields)):
        first = memoryview(message.content)[0]
        if first == LIST:
            _look_at_parts(seen, message.content, f"messages[{position}].content")
        elif first not in b'"n':
            raise look.odd_content(position, "a text, null or a list of parts")
        if message.role in ("tool", "function"):
            seen.needs.add("tools")
        if message.reasoning_details:
            seen.sealed = seen.sealed or holds_sealed(message.reasoning_details)
    seen.tools(request.fields, "function")
    seen.text(request.fields, "functions", "response_format")
    return seen.into(request)


def _limit(values: dict[str, Any]) -> int | None:
    old, new = values.get("max_tokens"), values.get("max_completion_tokens")
    if old is not None and new is not None:
        raise DecodeError("`max_tokens` and `max_completion_tokens` mean the same; send one of them.", param="max_tokens")
    return old if new is None else new


def _look_at_parts(seen: look.Look, raw: Raw, path: str) -> None:
    for position, part in enumerate(look.peek(_parts, raw, path, "a list of parts, each with a `type`")):
        kind = part.type
        if kind in _NEEDS:
            seen.payload(_NEEDS[kind], getattr(part, kind))
        elif kind not in _TEXTS:
            seen.unknown.append(f"{path}[{position}].type={kind[:40]}")


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target. Sets `request.dropped`. Raises Unsupported for what the target cannot carry and may not drop."""
    fields, request.dropped = (dict(request.fields), ()) if request.dialect == NAME else foreign_fields(request, quirks)
    if request.sealed and request.dialect == NAME:
        fields["messages"], request.dropped = without_sealed(fields["messages"]), ("messages.reasoning_details",)
    ask_for_usage(fields, request, quirks)
    if quirks.store and "store" not in fields:
        fields["store"] = _FALSE
    limit = request.max_tokens if target.max_tokens is None else target.max_tokens
    if limit is not None and (quirks.token_limit or target.max_tokens is not None):
        set_limit(fields, limit, _LIMITS, quirks.token_limit)
    fields["messages"], lost = adapt(fields["messages"], quirks)
    request.dropped += lost
    return for_target(fields, request, target, quirks, FIELDS)


def foreign_fields(request: Request, quirks: Quirks = PLAIN) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """As crossing.foreign_fields. Raises Unsupported for what this language or this target cannot say."""
    crossing, parameters = Crossing(content.CARRIES, quirks.takes), request.parameters or Parameters()
    told = encode_parameters(request, parameters, quirks)
    return crossed(request, crossing, lambda found: {"messages": content.encode_messages(found)}, content.encode_tools, told)
