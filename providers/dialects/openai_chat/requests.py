"""Requests of this language: from the client (checked one level deep, the rest on demand) and to the backend.

The fast lane writes the client's own bytes again with what the target needs changed at top level; nested values stay byte for byte.
Knows no vendor by name: what a backend takes comes as Quirks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.body import asked, read_messages, read_request, reading, required
from providers.dialects.crossing import leave_out
from providers.dialects.openai_chat import content as codec
from providers.dialects.openai_chat.adapt import adapt
from providers.dialects.openai_chat.crossing import Crossing
from providers.dialects.openai_chat.fields import (
    FIELDS,
    FormatPeek,
    MessagePeek,
    OptionsPeek,
    PartPeek,
    ToolPeek,
)
from providers.dialects.openai_chat.parameters import decode_parameters, encode_parameters
from providers.types import Message, Parameters, Request, Target, Tool

NAME = "openai_chat"

_messages = msgspec.json.Decoder(list[MessagePeek]).decode
_parts = msgspec.json.Decoder(list[PartPeek]).decode
_tools = msgspec.json.Decoder(list[ToolPeek]).decode
_format = msgspec.json.Decoder(FormatPeek).decode
_options = msgspec.json.Decoder(OptionsPeek).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_INCLUDE_USAGE = Raw(b'{"include_usage":true}')
_FALSE = Raw(b"false")
_NULL = Raw(b"null")
_LIMITS = ("max_tokens", "max_completion_tokens")
_NEEDS = {"image_url": "images", "input_audio": "audio", "file": "documents"}
_TEXTS = ("text", "refusal")


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    fields, values, unknown = read_request(body, FIELDS)
    request = Request(dialect=NAME, fields=fields, model=required(values, "model", FIELDS), size_bytes=len(body))
    request.stream = values.get("stream") is True
    request.n = values.get("n") or 1
    request.temperature = values.get("temperature")
    request.max_tokens = _limit(values)
    if "stream_options" in values and values["stream_options"] is not None:
        request.include_usage = _include_usage(fields["stream_options"])
    needs = _needs(values, fields)
    _look_at_messages(request, needs, unknown)
    _look_at_tools(request, fields.get("tools"), needs, unknown)
    request.needs = frozenset(needs)
    request.asks = asked(values)
    request.unknown = tuple(unknown)
    return request


def _limit(values: dict[str, Any]) -> int | None:
    old, new = values.get("max_tokens"), values.get("max_completion_tokens")
    if old is not None and new is not None:
        raise DecodeError("`max_tokens` and `max_completion_tokens` mean the same; send one of them.", param="max_tokens")
    found = old if new is None else new
    return found if found is None else int(found)


def _include_usage(raw: Raw) -> bool:
    try:
        return _options(raw).include_usage is True
    except msgspec.ValidationError:
        message = "`stream_options.include_usage` must be true or false."
        raise DecodeError(message, param="stream_options.include_usage", code="invalid_type") from None


def _needs(values: dict[str, Any], fields: dict[str, Raw]) -> set[str]:
    needs = set()
    if (values.get("n") or 1) > 1:
        needs.add("n")
    if values.get("logprobs") or values.get("top_logprobs"):
        needs.add("logprobs")
    if values.get("functions"):
        needs.add("tools")
    if "audio" in (values.get("modalities") or ()):
        needs.add("audio")
    if values.get("response_format") is not None:
        try:
            kind = _format(fields["response_format"]).type
        except msgspec.ValidationError:
            message = '`response_format.type` must be "text", "json_object" or "json_schema".'
            raise DecodeError(message, param="response_format.type", code="invalid_value") from None
        if kind == "json_schema":
            needs.add("json_schema")
        elif kind == "json_object":
            needs.add("json_mode")
    return needs


def _look_at_messages(request: Request, needs: set[str], unknown: list[str]) -> None:
    """Roles, what kinds of content there are, and how many bytes of text at most."""
    raw, found = read_messages(_messages, request.fields)
    request.prompt_bytes = len(memoryview(raw))
    for position, message in enumerate(found):
        content = message.content
        first = memoryview(content)[0]
        if first == 0x5B:
            _look_at_parts(request, content, f"messages[{position}].content", needs, unknown)
        elif first not in b'"n':
            param = f"messages[{position}].content"
            raise DecodeError(f"`{param}` must be a text, null or a list of parts.", param=param, code="invalid_type")
        if message.role in ("tool", "function"):
            needs.add("tools")


def _look_at_parts(request: Request, raw: Raw, path: str, needs: set[str], unknown: list[str]) -> None:
    try:
        found = _parts(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(
            f"`{path}` must be a list of parts, each with a `type` ({str(fault)[:160]}).", param=path, code="invalid_type"
        ) from None
    for position, part in enumerate(found):
        if part.type in _TEXTS:
            continue
        need = _NEEDS.get(part.type)
        if need is None:
            unknown.append(f"{path}[{position}].type={part.type[:40]}")
            continue
        needs.add(need)
        request.media += 1
        request.prompt_bytes -= len(memoryview(getattr(part, part.type)))


def _look_at_tools(request: Request, raw: Raw | None, needs: set[str], unknown: list[str]) -> None:
    """Tools and schemas count as prompt text."""
    for name in ("functions", "response_format"):
        if name in request.fields:
            request.prompt_bytes += len(memoryview(request.fields[name]))
    if raw is None or raw == _NULL:
        return
    try:
        found = _tools(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(
            f"`tools` must be a list of objects with a `type` ({str(fault)[:160]}).", param="tools", code="invalid_type"
        ) from None
    request.prompt_bytes += len(memoryview(raw))
    if found:
        needs.add("tools")
    for position, tool in enumerate(found):
        if tool.type != "function":
            unknown.append(f"tools[{position}].type={tool.type[:40]}")


def messages(request: Request) -> tuple[Message, ...]:
    """The messages in the neutral model, decoded once. Raises DecodeError naming the message that is wrong."""
    if request.decoded is None:
        with reading("messages"):
            request.decoded = codec.decode_messages(request.fields["messages"])
    return request.decoded


def tools(request: Request) -> tuple[Tool, ...]:
    """The function tools, decoded once. Others bind a request to this language (`unknown`) and are not here."""
    if request.decoded_tools is None:
        with reading("tools"):
            request.decoded_tools = codec.decode_tools(request.fields.get("tools", _NULL))
    return request.decoded_tools


def parameters(request: Request) -> Parameters:
    """What else is asked for, decoded once. Raises DecodeError naming the field that is wrong."""
    if request.parameters is None:
        with reading("parameters"):
            request.parameters = decode_parameters(request)
    return request.parameters


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target. Sets `request.dropped`. Raises Unsupported for what the target cannot carry and may not drop."""
    fields, dropped = (dict(request.fields), ()) if request.dialect == NAME else foreign_fields(request, quirks)
    fields["model"] = _model(target.model)
    if request.stream and quirks.usage_option:
        if not request.include_usage:
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
    elif not quirks.usage_option:
        fields.pop("stream_options", None)
    if quirks.store and "store" not in fields:
        fields["store"] = _FALSE
    limit = request.max_tokens if target.max_tokens is None else target.max_tokens
    if limit is not None and (quirks.token_limit or target.max_tokens is not None):
        _set_limit(fields, limit, quirks.token_limit)
    fields["messages"] = adapt(fields["messages"], quirks)
    request.dropped = dropped + leave_out(fields, quirks, FIELDS) if quirks.drop or quirks.refuse else dropped
    for old, new in quirks.names.items():
        if old in fields:
            fields[new] = fields.pop(old)
    return _encode(fields)


@lru_cache(1024)
def _model(name: str) -> Raw:
    return Raw(_encode(name))


def _with_usage(raw: Raw | None) -> Raw:
    """The client's stream options with usage asked for."""
    if raw is None or raw == _NULL:
        return _INCLUDE_USAGE
    return Raw(_encode({**_any(raw), "include_usage": True}))


def _set_limit(fields: dict[str, Raw], limit: int, wanted: str) -> None:
    given = next((name for name in _LIMITS if fields.get(name, _NULL) != _NULL), "max_tokens")
    for name in _LIMITS:
        fields.pop(name, None)
    fields[wanted or given] = Raw(str(limit).encode())


def foreign_fields(request: Request, quirks: Quirks = PLAIN) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """The slow lane: fields of this language from a request that came in another one, whose own dialect has decoded it, and what was
    dropped on the way. Raises Unsupported for what this language or this target cannot say.
    """
    crossing = Crossing(quirks.takes)
    fields = {"model": _NULL, "messages": codec.encode_messages(request.decoded or (), crossing)}
    if request.decoded_tools:
        fields["tools"] = codec.encode_tools(request.decoded_tools, crossing)
    more, dropped = encode_parameters(request, request.parameters or Parameters(), quirks)
    return {**fields, **more}, tuple(dict.fromkeys([*dropped, *crossing.dropped]))
