"""Messages and tools of this language to and from the neutral model.

A tool's result is a message of its own there and a block of the user's message here. Blocks that only this language has stay as they
came (Opaque). Normalised as turns.py says, and empty text is nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from providers.dialects import rawjson
from providers.dialects.base import DecodeError
from providers.dialects.crossing import Carries
from providers.dialects.functions import read_tool, write_tool
from providers.dialects.quirks import unsupported
from providers.dialects.turns import messages_of, turns_of
from providers.errors import Rejected
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
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DIRECT = {"type": "direct"}
_ANY_OBJECT = Raw(b'{"type":"object"}')


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def decode_messages(raw: Raw, system: Raw = rawjson.NULL) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    found = [] if system == rawjson.NULL else [Message(role="system", content=_content(system, "system"))]
    for position, members in enumerate(rawjson.decode_objects(raw)):
        path, role, content = f"messages[{position}].content", rawjson.decode_any(members["role"]), members["content"]
        if rawjson.first_byte(content) == rawjson.LIST:
            found += messages_of(role, [_read(block, f"{path}[{n}]") for n, block in enumerate(rawjson.decode_raws(content))])
        else:
            found.append(Message(role=role, content=_string(content, path)))
    return tuple(found)


def _read(raw: Raw, path: str) -> Message | Call | Part:
    block = rawjson.typed(raw, path)
    if block["type"] == "tool_result":
        return _result(raw, block, path)
    if block["type"] == "tool_use" and _plain_call(block):
        inner = rawjson.decode_object(raw)
        arguments = bytes(inner.get("input", b"{}")).decode()
        return Call(block["id"], block["name"], arguments, rawjson.copied(inner, "cache_control"))
    return _part(raw, block)


def _string(raw: Raw, path: str) -> str:
    return rawjson.string(raw, path, "a text or a list of blocks")


def _content(raw: Raw, path: str) -> str | tuple[Part, ...]:
    if rawjson.first_byte(raw) != rawjson.LIST:
        return _string(raw, path)
    return tuple([_part(block, rawjson.typed(block, f"{path}[{n}]")) for n, block in enumerate(rawjson.decode_raws(raw))])


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


def _part(raw: Raw, block: Mapping[str, Any]) -> Part:
    kind, said = (
        block["type"],
        {name: value for name, value in block.items() if value is not None and name not in ("type", "cache_control")},
    )
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
    return tuple(
        [
            read_tool(members, f"tools[{n}]", "input_schema", rawjson.copied(members, "cache_control"), {"type", "cache_control"})
            for n, members in enumerate([] if raw == rawjson.NULL else rawjson.decode_objects(raw))
            if rawjson.decode_any(members.get("type", rawjson.NULL)) in (None, "custom")
        ]
    )


# ---- to the wire --------------------------------------------------------------------------------------------------------------------
def encode_messages(messages: Sequence[Message]) -> dict[str, Raw]:
    """The members `system`, where there is one, and `messages`. Raises Unsupported or Rejected for what cannot be written here."""
    system, turns = turns_of(messages, _write_result, _blocks)
    found = [{"role": role, "content": content} for role, content in turns]
    told = {"messages": Raw(rawjson.encode_json(found))}
    if not system:
        return told
    lone = system[0].content if len(system) == 1 and isinstance(system[0].content, str) else None
    parts = [block for message in system for block in _parts(message.content, "messages")]
    return {"system": Raw(rawjson.encode_json(parts if lone is None else lone)), **told}


def _blocks(message: Message, path: str) -> str | list[Any]:
    if isinstance(message.content, str) and not message.calls:
        return message.content
    blocks = _parts(message.content, path)
    for n, call in enumerate(message.calls):
        arguments = _arguments(call, f"{path}.tool_calls[{n}]")
        blocks.append(_marked({"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments}, call.cache_control))
    return blocks


def _write_result(message: Message, path: str) -> dict[str, Any]:
    content = message.content if isinstance(message.content, str | None) else _parts(message.content, path)
    block = {"type": "tool_result", "tool_use_id": _id(message.call_id or ""), "content": content, "is_error": message.is_error}
    return {**rawjson.written(block), **message.extra}


def _parts(content: str | tuple[Part, ...] | None, path: str) -> list[Any]:
    parts = (Text(content),) if isinstance(content, str) else content or ()
    return [_block(part, path) for part in parts if not isinstance(part, Text) or part.text]  # an empty text is refused


def _block(part: Part, path: str) -> Any:
    if isinstance(part, Opaque):
        return part.raw
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
    if isinstance(part, RedactedThinking):
        return {"type": "redacted_thinking", "data": part.data}
    if isinstance(part, Text):
        return _marked(rawjson.written({"type": "text", "text": part.text, "citations": part.citations}), part.cache_control)
    if isinstance(part, Image):
        return _marked({"type": "image", "source": _source(part)}, part.cache_control)
    if isinstance(part, Document):
        block = rawjson.written({"type": "document", "source": _source(part), "title": part.name})
        return _marked(block, part.cache_control)
    raise unsupported(f"`{path}` has a part that this backend does not take.", path)


def _marked(block: dict[str, Any], cache: Raw | None) -> dict[str, Any]:
    return block if cache is None else {**block, "cache_control": cache}


def _source(part: Image | Document) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": part.url}
    if isinstance(part, Document) and part.media_type == "text/plain":
        return {"type": "text", "media_type": "text/plain", "data": rawjson.base64_to_text(part.data)}
    return {"type": "base64", "media_type": part.media_type or "application/pdf", "data": part.data}


def _id(text: str) -> str:
    """Ids here have letters, digits, `_` and `-`; the same change for a call and its result."""
    return _NO_ID.sub("_", text) or "call"


def _arguments(call: Call, path: str) -> Raw:
    found = rawjson.object_or_none(call.arguments)
    if found is None:
        where = f"{path}.function.arguments"
        message = f"`{where}` is not a JSON object; send what the model wrote, whole."
        raise Rejected(message, sent=False, param=where, code="invalid_json")
    return found


def encode_tools(tools: Sequence[Tool]) -> Raw:
    found = [{"input_schema": _ANY_OBJECT, **write_tool(tool, "input_schema"), **tool.extra} for tool in tools]
    return Raw(rawjson.encode_json([_marked(entry, tool.cache_control) for entry, tool in zip(found, tools, strict=True)]))
