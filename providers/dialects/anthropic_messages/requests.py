"""Requests of this language: from the client (checked one level deep, the rest on demand) and to the backend.

The fast lane writes the client's own bytes again with what the target needs changed at top level; nested values stay byte for byte.
Knows no vendor by name: what a backend takes comes as Quirks.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec import Raw

from providers.dialects.anthropic_messages import content as codec
from providers.dialects.anthropic_messages.fields import FIELDS, BlockPeek, MessagePeek, SourcePeek, ToolPeek
from providers.dialects.anthropic_messages.parameters import decode_parameters, encode_parameters, own_thinking
from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.body import asked, read_messages, read_request, reading, required
from providers.dialects.crossing import leave_out
from providers.types import Message, Parameters, Request, Target, Tool

NAME = "anthropic_messages"
DEFAULT_MAX_TOKENS = 4096  # where neither the client nor the catalog names a limit: every model of this language takes it

_messages = msgspec.json.Decoder(list[MessagePeek]).decode
_blocks = msgspec.json.Decoder(list[BlockPeek]).decode
_tools = msgspec.json.Decoder(list[ToolPeek]).decode
_source = msgspec.json.Decoder(SourcePeek).decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_PLAIN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking"})
_SOURCES = {"image": ("base64", "url"), "document": ("base64", "url", "text")}
_COUNTED = ("system", "tools", "output_config", "output_format")  # prompt text beside the messages


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request = decode_count(body)
    required({"max_tokens": request.max_tokens}, "max_tokens", FIELDS)
    return request


def decode_count(body: bytes) -> Request:
    """The same for a request to count tokens, which has no limit of its answer."""
    fields, values, unknown = read_request(body, FIELDS)
    request = Request(dialect=NAME, fields=fields, model=required(values, "model", FIELDS), size_bytes=len(body))
    request.stream = values.get("stream") is True
    request.temperature = values.get("temperature")
    request.max_tokens = values.get("max_tokens")
    request.prompt_bytes = sum(len(memoryview(fields[name])) for name in _COUNTED if name in fields)
    needs: set[str] = set()
    if values.get("output_format") or (values.get("output_config") or {}).get("format", _NULL) != _NULL:
        needs.add("json_schema")
    _look_at_messages(request, needs, unknown)
    if fields.get("tools", _NULL) != _NULL:
        _look_at_tools(fields["tools"], needs, unknown)
    request.needs = frozenset(needs)
    request.asks = asked(values) | ({"stop"} if values.get("stop_sequences") else frozenset())
    request.unknown = tuple(unknown)
    return request


def _look_at_messages(request: Request, needs: set[str], unknown: list[str]) -> None:
    """Roles, what kinds of content there are, and how many bytes of text at most."""
    raw, found = read_messages(_messages, request.fields)
    request.prompt_bytes += len(memoryview(raw))
    for position, message in enumerate(found):
        path = f"messages[{position}].content"
        first = codec.first_byte(message.content)
        if first == 0x5B:
            _look_at_blocks(request, message.content, path, needs, unknown)
        elif first != 0x22:
            raise DecodeError(f"`{path}` must be a text or a list of blocks.", param=path, code="invalid_type")


def _look_at_blocks(request: Request, raw: Raw, path: str, needs: set[str], unknown: list[str]) -> None:
    try:
        for position, block in enumerate(_blocks(raw)):
            here = f"{path}[{position}]"
            kind = block.type
            if kind in _PLAIN_BLOCKS:
                continue
            if kind == "tool_use":
                needs.add("tools")
            elif kind == "tool_result":
                needs.add("tools")
                if memoryview(block.content)[:1].tobytes() == b"[":
                    _look_at_blocks(request, block.content, f"{here}.content", needs, unknown)
            elif kind in _SOURCES:
                _look_at_media(request, block, here, needs, unknown)
            else:
                unknown.append(f"{here}.type={kind[:40]}")
    except msgspec.ValidationError as fault:
        message = f"`{path}` must be a list of blocks, each with a `type` ({str(fault)[:160]})."
        raise DecodeError(message, param=path, code="invalid_type") from None


def _look_at_media(request: Request, block: BlockPeek, path: str, needs: set[str], unknown: list[str]) -> None:
    with reading(f"{path}.source"):
        source = _source(block.source)
    if source.type not in _SOURCES[block.type]:
        unknown.append(f"{path}.source.type={source.type[:40]}")
    unknown += [f"{path}.{name}" for name in ("citations", "context") if bytes(getattr(block, name)) not in (b"", b"null")]
    if source.type == "text":
        return
    needs.add(block.type + "s")
    request.media += 1
    request.prompt_bytes -= len(memoryview(source.data))


def _look_at_tools(raw: Raw, needs: set[str], unknown: list[str]) -> None:
    try:
        found = _tools(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(f"`tools` must be a list of objects ({str(fault)[:160]}).", param="tools", code="invalid_type") from None
    if found:
        needs.add("tools")
    unknown += [f"tools[{n}].type={tool.type[:40]}" for n, tool in enumerate(found) if tool.type not in (None, "custom")]


def messages(request: Request) -> tuple[Message, ...]:
    """The messages in the neutral model, the system prompt first, decoded once. Raises DecodeError naming the one that is wrong."""
    if request.decoded is None:
        with reading("messages"):
            request.decoded = codec.decode_messages(request.fields["messages"], request.fields.get("system", _NULL))
    return request.decoded


def tools(request: Request) -> tuple[Tool, ...]:
    """The client's own tools, decoded once."""
    if request.decoded_tools is None:
        raw = request.fields.get("tools", _NULL)
        with reading("tools"):
            request.decoded_tools = () if raw == _NULL else codec.decode_tools(raw)
    return request.decoded_tools


def parameters(request: Request) -> Parameters:
    """What else is asked for, decoded once. Raises DecodeError naming the field that is wrong."""
    if request.parameters is None:
        with reading("parameters"):
            request.parameters = decode_parameters(request)
    return request.parameters


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target. Sets `request.dropped`. Raises Unsupported for what the target cannot carry and may not drop."""
    own = request.dialect == NAME
    fields, dropped = (dict(request.fields), ()) if own else foreign_fields(request, target, quirks)
    fields["model"] = _model(target.model)
    if target.max_tokens is not None:
        fields["max_tokens"] = Raw(str(target.max_tokens).encode())
    if own and quirks.thinking and "thinking" in fields:
        dropped = own_thinking(fields, request.max_tokens if target.max_tokens is None else target.max_tokens, quirks.thinking)
    request.dropped = dropped + leave_out(fields, quirks, FIELDS) if quirks.drop or quirks.refuse else dropped
    return _encode(fields)


@lru_cache(1024)
def _model(name: str) -> Raw:
    return Raw(_encode(name))


def foreign_fields(request: Request, target: Target, quirks: Quirks = PLAIN) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """The slow lane: fields of this language from a request that came in another one, whose own dialect has decoded it, and what was
    dropped on the way. Raises Unsupported for what this language cannot say, Rejected for what is wrong.
    """
    limits = (target.max_tokens, request.max_tokens, target.most_tokens)
    limit = next((limit for limit in limits if limit is not None), DEFAULT_MAX_TOKENS)
    writer = codec.Writer(quirks.takes)
    fields: dict[str, Raw] = {"model": _NULL, **writer.messages(request.decoded or ())}
    if request.decoded_tools:
        fields["tools"] = codec.encode_tools(request.decoded_tools)
    more, dropped = encode_parameters(request, request.parameters or Parameters(), limit, quirks)
    return {**fields, **more}, tuple(dict.fromkeys([*dropped, *writer.dropped]))
