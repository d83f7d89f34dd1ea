"""Messages and tools of this language to and from the neutral model.

A tool's result is a message of its own there and a block of the user's message here. Blocks that only this language has stay as they
came (Opaque). Normalised as turns.py says, and empty text is nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from providers.dialects import rawjson
from providers.dialects.base import DecodeError
from providers.dialects.calls import plain_id
from providers.dialects.crossing import Carries
from providers.dialects.functions import arguments_of, own_tools, read_tool, write_tool
from providers.dialects.quirks import unsupported
from providers.dialects.turns import messages_of, turns_of
from providers.types import Call, Document, Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, Tool

NAME = "anthropic_messages"
CARRIES = Carries(
    language=NAME,
    unsigned="unsigned_thinking",
    cache_control=True,
    result_cache=True,
    result_media=True,
    failed=True,
    document_url=True,
    text_documents=True,
)
_CONTENT = "a text or a list of blocks"
_DIRECT = {"type": "direct"}
_ANY_OBJECT = Raw(b'{"type":"object"}')


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def decode_messages(raw: Raw, system: Raw = rawjson.NULL) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    found = [] if system == rawjson.NULL else [Message(role="system", content=_content(system, "system"))]
    for position, members in enumerate(rawjson.decode_objects(raw)):
        role = rawjson.decode_any(members["role"])
        content = rawjson.parts_of(members["content"], f"messages[{position}].content", _read, _CONTENT)
        found += [Message(role=role, content=content)] if isinstance(content, str) else messages_of(role, content)
    return tuple(found)


def _read(raw: Raw, block: Mapping[str, Any], path: str) -> Message | Call | Part:
    if block["type"] == "tool_result":
        return _result(raw, block, path)
    if block["type"] == "tool_use" and _plain_call(block):
        inner = rawjson.decode_object(raw)
        arguments = bytes(inner.get("input", b"{}")).decode()
        return Call(block["id"], block["name"], arguments, rawjson.copied(inner, "cache_control"))
    return _part(raw, block, path)


def _content(raw: Raw, path: str) -> str | tuple[Part, ...]:
    found = rawjson.parts_of(raw, path, _part, _CONTENT)
    return found if isinstance(found, str) else tuple(found)


def _plain_call(block: Mapping[str, Any]) -> bool:
    texts = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
    own = {name for name, value in block.items() if value is not None} <= {"type", "id", "name", "input", "cache_control", "caller"}
    return texts and own and block.get("caller") in (None, _DIRECT) and isinstance(block.get("input", {}), dict)


def _result(raw: Raw, block: Mapping[str, Any], path: str) -> Message:
    members = rawjson.decode_object(raw)
    content, is_error, call_id = members.get("content", rawjson.NULL), block.get("is_error"), block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise DecodeError(f"`{path}.tool_use_id` is missing: name the call that this answers.", param=f"{path}.tool_use_id")
    return Message(
        role="tool",
        call_id=call_id,
        content=None if content == rawjson.NULL else _content(content, f"{path}.content"),
        is_error=is_error if isinstance(is_error, bool) else None,
        extra=rawjson.kept(members, {"type", "tool_use_id", "content", "is_error"}),
    )


def _part(raw: Raw, block: Mapping[str, Any], path: str) -> Part:
    said = rawjson.written({**block, "cache_control": None})
    kind = said.pop("type")
    inner = rawjson.decode_object(raw)
    cache = rawjson.copied(inner, "cache_control")
    part: Part | None = None
    if kind == "text" and isinstance(block.get("text"), str) and said.keys() <= {"text", "citations"}:
        part = Text(block["text"], cache, inner["citations"].copy() if block.get("citations") else None)
    elif kind == "thinking" and cache is None and said.keys() <= {"thinking", "signature"} and rawjson.all_texts(said.values()):
        part = Thinking(said.get("thinking", ""), said.get("signature"))
    elif kind == "redacted_thinking" and cache is None and said.keys() == {"data"} and rawjson.all_texts(said.values()):
        part = RedactedThinking(said["data"])
    elif kind in ("image", "document") and isinstance(said.get("source"), dict):
        part = _media(kind, said, cache)
    return part or Opaque(NAME, kind, raw.copy())


def _media(kind: str, said: Mapping[str, Any], cache: Raw | None) -> Part | None:
    source, title = rawjson.written(said["source"]), said.get("title")
    form, data, media_type = source.get("type"), source.get("data"), source.get("media_type")
    if not rawjson.all_texts([data, media_type] if form == "base64" else [source.get("url")] if form == "url" else []):
        return None
    if kind == "image":
        known = said.keys() == {"source"} and form in ("base64", "url")
        return Image(url=source.get("url"), data=data, media_type=media_type, cache_control=cache) if known else None
    if said.keys() - {"source", "title"} or not isinstance(title, str | None):
        return None
    if form == "text" and isinstance(data, str):
        data, media_type, form = rawjson.text_to_base64(data), "text/plain", "base64"
    if form == "base64":
        return Document(data=data, media_type=media_type, name=title, cache_control=cache)
    return Document(url=source.get("url"), name=title, cache_control=cache) if form == "url" else None


def decode_tools(raw: Raw) -> tuple[Tool, ...]:
    """The client's own tools; those of the vendor bind a request to this language and are not here. Raises DecodeError."""
    known = {"type", "cache_control"}
    own = [(path, members, rawjson.copied(members, "cache_control")) for path, members in own_tools(raw, "custom")]
    return tuple([read_tool(members, path, "input_schema", cache, known) for path, members, cache in own])


# ---- to the wire --------------------------------------------------------------------------------------------------------------------
def encode_messages(messages: Sequence[Message]) -> dict[str, Raw]:
    """The members `system`, where there is one, and `messages`. Raises Unsupported or Rejected for what cannot be written here."""
    system, turns = turns_of(messages, _write_result, _blocks)
    found = [{"role": role, "content": content} for role, content in turns]
    lone = system[0].content if len(system) == 1 and isinstance(system[0].content, str) else None
    parts = [block for message in system for block in _parts(message.content, "messages")]
    told: Any = parts if lone is None else lone
    return rawjson.as_fields({"system": told if system else None, "messages": found})


def _blocks(message: Message, path: str) -> str | list[Any]:
    if isinstance(message.content, str) and not message.calls:
        return message.content
    blocks = _parts(message.content, path)
    for n, call in enumerate(message.calls):
        arguments = arguments_of(call, f"{path}.tool_calls[{n}]")
        blocks.append(_marked({"type": "tool_use", "id": plain_id(call.id), "name": call.name, "input": arguments}, call))
    return blocks


def _write_result(message: Message, path: str) -> dict[str, Any]:
    content = message.content if isinstance(message.content, str | None) else _parts(message.content, path)
    block = {"type": "tool_result", "tool_use_id": plain_id(message.call_id or ""), "content": content, "is_error": message.is_error}
    return {**rawjson.written(block), **message.extra}


def _parts(content: str | tuple[Part, ...] | None, path: str) -> list[Any]:
    parts = (Text(content),) if isinstance(content, str) else content or ()
    return [_block(part, path) for part in parts if not isinstance(part, Text) or part.text]  # an empty text is refused


def _block(part: Part, path: str) -> Any:
    if isinstance(part, Opaque):
        return part.raw
    if type(part) not in _WRITE:
        raise unsupported(f"`{path}` has a part that this backend does not take.", path)
    return _marked(rawjson.written(_WRITE[type(part)](part)), part)


def _marked(block: dict[str, Any], of: Any) -> dict[str, Any]:
    cache = getattr(of, "cache_control", None)
    return block if cache is None else {**block, "cache_control": cache}


def _source(part: Image | Document) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": part.url}
    if isinstance(part, Document) and part.media_type == "text/plain":
        return {"type": "text", "media_type": "text/plain", "data": rawjson.base64_to_text(part.data)}
    return {"type": "base64", "media_type": part.media_type or "application/pdf", "data": part.data}


_WRITE: dict[type, Any] = {
    Thinking: lambda part: {"type": "thinking", "thinking": part.text, "signature": part.signature or ""},
    RedactedThinking: lambda part: {"type": "redacted_thinking", "data": part.data},
    Text: lambda part: {"type": "text", "text": part.text, "citations": part.citations},
    Image: lambda part: {"type": "image", "source": _source(part)},
    Document: lambda part: {"type": "document", "source": _source(part), "title": part.name},
}


def encode_tools(tools: Sequence[Tool]) -> Raw:
    found = [{"input_schema": _ANY_OBJECT, **write_tool(tool, "input_schema"), **tool.extra} for tool in tools]
    return Raw(rawjson.encode_json([_marked(entry, tool) for entry, tool in zip(found, tools, strict=True)]))
