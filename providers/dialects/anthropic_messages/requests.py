"""Requests of this language: from the client (checked one level deep, the rest on demand) and to the backend.

The fast lane writes the client's own bytes again with what the target needs changed at top level; nested values stay byte for byte.
Knows no vendor by name: what a backend takes comes as Quirks.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from providers.dialects import look
from providers.dialects.anthropic_messages import content
from providers.dialects.anthropic_messages.fields import FIELDS, BlockPeek, MessagePeek, SourcePeek
from providers.dialects.anthropic_messages.parameters import encode_parameters
from providers.dialects.base import PLAIN, Quirks, reading
from providers.dialects.body import required
from providers.dialects.crossing import Crossing
from providers.dialects.crossing import foreign_fields as crossed
from providers.dialects.quirks import for_target, set_limit
from providers.dialects.rawjson import LIST, STRING, first_byte
from providers.dialects.sealed import holds_sealed, without_sealed
from providers.dialects.thinking_forms import may_think, own_thinking
from providers.types import Parameters, Request, Target

NAME = content.NAME
DEFAULT_MAX_TOKENS = 4096  # where neither the client nor the catalog names a limit: every model of this language takes it

_messages = msgspec.json.Decoder(list[MessagePeek]).decode
_blocks = msgspec.json.Decoder(list[BlockPeek]).decode
_source = msgspec.json.Decoder(SourcePeek).decode
_PLAIN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking"})
_SOURCES = {"image": ("base64", "url"), "document": ("base64", "url", "text")}


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request = decode_count(body)
    required({"max_tokens": request.max_tokens}, "max_tokens", FIELDS)
    return request


def decode_count(body: bytes) -> Request:
    """The same for a request to count tokens, which has no limit of its answer."""
    request, values, seen = look.begin(NAME, body, FIELDS)
    request.max_tokens = values.get("max_tokens")
    if values.get("stop_sequences"):
        request.asks |= {"stop"}
    for position, message in enumerate(look.messages(_messages, seen, request.fields)):
        first = memoryview(message.content)[0]
        if first == LIST:
            _look_at_blocks(seen, message.content, f"messages[{position}].content")
        elif first != STRING:
            raise look.odd_content(position, "a text or a list of blocks")
    seen.tools(request.fields, "custom")
    seen.text(request.fields, "system", "output_config", "output_format")
    return seen.into(request)


def _look_at_blocks(seen: look.Look, raw: Raw, path: str) -> None:
    for position, block in enumerate(look.peek(_blocks, raw, path, "a list of blocks, each with a `type`")):
        here = f"{path}[{position}]"
        kind = block.type
        if kind in _PLAIN_BLOCKS:
            seen.sealed = seen.sealed or (kind != "text" and holds_sealed(block.signature or block.data))
            continue
        if kind in ("tool_use", "tool_result"):
            seen.needs.add("tools")
            if kind == "tool_result" and block.content and first_byte(block.content) == LIST:
                _look_at_blocks(seen, block.content, f"{here}.content")
        elif kind in _SOURCES:
            _look_at_media(seen, block, here)
        else:
            seen.unknown.append(f"{here}.type={kind[:40]}")


def _look_at_media(seen: look.Look, block: BlockPeek, path: str) -> None:
    with reading(f"{path}.source"):
        source = _source(block.source)
    if source.type not in _SOURCES[block.type]:
        seen.unknown.append(f"{path}.source.type={source.type[:40]}")
    seen.unknown += [f"{path}.{name}" for name in ("citations", "context") if bytes(getattr(block, name)) not in (b"", b"null")]
    if source.type != "text":
        seen.payload(block.type + "s", source.data)


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target. Sets `request.dropped`. Raises Unsupported for what the target cannot carry and may not drop."""
    fields, request.dropped = (dict(request.fields), ()) if request.dialect == NAME else foreign_fields(request, target, quirks)
    if request.sealed and request.dialect == NAME:
        request.dropped = _without_sealed(fields)
    if target.max_tokens is not None:
        set_limit(fields, target.max_tokens, ("max_tokens",), "")
    if quirks.thinking and request.dialect == NAME and "thinking" in fields:
        limit = request.max_tokens if target.max_tokens is None else target.max_tokens
        request.dropped += own_thinking(fields, limit, quirks.thinking)
    return for_target(fields, request, target, quirks, FIELDS)


def _without_sealed(fields: dict[str, Raw]) -> tuple[str, ...]:
    """Take out thinking that another language's backend sealed, and do not think on where it began the turn; the names of what went."""
    fields["messages"] = without_sealed(fields["messages"])
    if "thinking" not in fields or may_think(content.decode_messages(fields["messages"])):
        return ("messages.thinking",)
    del fields["thinking"]
    return ("messages.thinking", "thinking")


def foreign_fields(request: Request, target: Target, quirks: Quirks = PLAIN) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """As crossing.foreign_fields. Raises Unsupported for what this language cannot say, Rejected for what is wrong."""
    limits = (target.max_tokens, request.max_tokens, target.most_tokens)
    limit = next((limit for limit in limits if limit is not None), DEFAULT_MAX_TOKENS)
    told = encode_parameters(request, request.parameters or Parameters(), limit, quirks)
    return crossed(request, Crossing(content.CARRIES, quirks.takes), content.encode_messages, content.encode_tools, told)
