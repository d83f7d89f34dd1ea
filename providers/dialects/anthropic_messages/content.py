"""Messages and tools of this language to and from the neutral model.

A tool's result is a message of its own there and a block of the user's message here. Blocks that only this language has stay as they
came (Opaque). Normalised: calls stand after the other parts, the user's parts after results in one message with them, system messages
at the top, empty text nowhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects.base import DecodeError
from providers.dialects.crossing import plain_text, unsupported
from providers.errors import Rejected
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Text, Thinking, Tool

NAME = "anthropic_messages"
_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def decode_messages(raw: Raw, system: Raw = _NULL) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    found = [] if system == _NULL else [Message(role="system", content=_content(system, "system"))]
    for position, members in enumerate(_objects(raw)):
        path, role, content = f"messages[{position}].content", _any(members["role"]), members["content"]
        if first_byte(content) != 0x5B:
            found.append(Message(role=role, content=_string(content, path)))
            continue
        parts: list[Part] = []
        calls: list[Call] = []
        results = 0
        for n, block in enumerate(_raws(content)):
            here = f"{path}[{n}]"
            block_of = _block(block, here)
            if block_of["type"] == "tool_result":
                if parts:
                    found.append(Message(role=role, content=tuple(parts)))
                    parts = []
                found.append(_result(block, block_of, here))
                results += 1
            elif block_of["type"] == "tool_use" and _plain_call(block_of):
                inner = _object(block)
                calls.append(Call(block_of["id"], block_of["name"], bytes(inner.get("input", b"{}")).decode(), _cache(inner)))
            else:
                parts.append(_part(block, block_of, here))
        if parts or calls or not results:
            found.append(Message(role=role, content=tuple(parts) if parts or not calls else None, calls=tuple(calls)))
    return tuple(found)


def first_byte(raw: Raw) -> int:
    return memoryview(raw)[0]


def _string(raw: Raw, path: str) -> str:
    value = _any(raw)
    if not isinstance(value, str):
        raise DecodeError(f"`{path}` must be a text or a list of blocks.", param=path, code="invalid_type")
    return value


def _content(raw: Raw, path: str) -> str | tuple[Part, ...]:
    if first_byte(raw) != 0x5B:
        return _string(raw, path)
    return tuple([_part(block, _block(block, f"{path}[{n}]"), f"{path}[{n}]") for n, block in enumerate(_raws(raw))])


def _block(raw: Raw, path: str) -> dict[str, Any]:
    block = _any(raw)
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise DecodeError(f"`{path}` must be an object with a `type`.", param=path, code="invalid_type")
    return block


def _cache(members: Mapping[str, Raw]) -> Raw | None:
    found = members.get("cache_control", _NULL)
    return None if found == _NULL else found.copy()


def _plain_call(block: Mapping[str, Any]) -> bool:
    texts = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
    own = set(block) <= {"type", "id", "name", "input", "cache_control", "caller"}
    return texts and own and block.get("caller", {"type": "direct"}) == {"type": "direct"} and isinstance(block.get("input", {}), dict)


def _result(raw: Raw, block: Mapping[str, Any], path: str) -> Message:
    members = _object(raw)
    content, is_error, call_id = members.get("content", _NULL), block.get("is_error"), block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise DecodeError(f"`{path}.tool_use_id` is missing: name the call that this answers.", param=f"{path}.tool_use_id")
    known = ("type", "tool_use_id", "content", "is_error")
    return Message(
        role="tool",
        call_id=call_id,
        content=None if content == _NULL else _content(content, f"{path}.content"),
        is_error=is_error if isinstance(is_error, bool) else None,
        extra={name: value.copy() for name, value in members.items() if name not in known and value != _NULL},
    )


def _part(raw: Raw, block: Mapping[str, Any], path: str) -> Part:
    kind, members = block["type"], {name for name, value in block.items() if value is not None}
    inner = _object(raw)
    part: Part | None = None
    if kind == "text" and isinstance(block.get("text"), str) and members <= {"type", "text", "cache_control", "citations"}:
        citations = inner["citations"].copy() if block.get("citations") else None
        part = Text(block["text"], _cache(inner), citations)
    elif kind == "thinking" and members <= {"type", "thinking", "signature"}:
        part = Thinking(str(block.get("thinking") or ""), block.get("signature"))
    elif kind == "redacted_thinking" and members == {"type", "data"}:
        part = RedactedThinking(str(block["data"]))
    elif kind in ("image", "document") and isinstance(block.get("source"), dict):
        part = _media(kind, block, members, _cache(inner))
    return part or Opaque(NAME, kind, raw.copy())


def _media(kind: str, block: Mapping[str, Any], members: set[str], cache: Raw | None) -> Part | None:
    source = block["source"]
    form, data, media_type = source.get("type"), source.get("data"), source.get("media_type")
    title = block.get("title")
    if not members <= {"type", "source", "cache_control"} | ({"title"} if kind == "document" else set()):
        return None
    if title is not None and not isinstance(title, str):
        return None
    if kind == "image" and form in ("base64", "url"):
        return Image(url=source.get("url"), data=data, media_type=media_type, cache_control=cache)
    if kind == "image":
        return None
    if form == "text" and isinstance(data, str):
        encoded = base64.b64encode(data.encode("utf-8", "surrogatepass")).decode()
        return Document(data=encoded, media_type="text/plain", name=title, cache_control=cache)
    if form == "base64":
        return Document(data=data, media_type=media_type, name=title, cache_control=cache)
    return Document(url=source.get("url"), name=title, cache_control=cache) if form == "url" else None


# ---- to the wire --------------------------------------------------------------------------------------------------------------------
class Writer:
    """Writes messages of the neutral model. dropped: names of what this language has no place for. Raises Unsupported or Rejected."""

    def __init__(self, takes: frozenset[str] = frozenset()) -> None:
        self.takes = takes
        self.dropped: list[str] = []

    def messages(self, messages: Sequence[Message]) -> dict[str, Raw]:
        """The members `system`, where there is one, and `messages`."""
        system: list[Message] = []
        written: list[dict[str, Any]] = []
        results: list[Any] | None = None  # the open list of blocks that tool results, and what the user says after them, go to
        for position, message in enumerate(messages):
            path = f"messages[{position}]"
            self._leave_out(message)
            if message.role in ("system", "developer"):
                system.append(message)
            elif message.role == "tool":
                if results is None:
                    results = []
                    written.append({"role": "user", "content": results})
                results.append(self._result(message, path))
            else:
                blocks = self._blocks(message, path)
                if results is not None and message.role == "user" and isinstance(blocks, list):
                    results += blocks
                elif blocks or message.role == "user":
                    written.append({"role": message.role, "content": blocks})
                results = None
        found = {"messages": Raw(_encode(written))}
        if not system:
            return found
        first = system[0].content
        lone = first if len(system) == 1 and isinstance(first, str) else None
        return {"system": Raw(_encode(self._system(system) if lone is None else lone)), **found}

    def _system(self, messages: Sequence[Message]) -> list[Any]:
        return [block for message in messages for block in self._parts(message.content, "messages")]

    def _leave_out(self, message: Message) -> None:
        if "function_call" in message.extra or "tool_calls" in message.extra or message.role == "function":
            raise unsupported("`messages` has a call of a kind that only its own language has.", "messages")
        names = [name for name in message.extra if not (name == "refusal" or (message.role == "tool" and name == "cache_control"))]
        self.dropped += [f"messages.{name}" for name in [*names, *(["name"] if message.name is not None else [])]]

    def _blocks(self, message: Message, path: str) -> str | list[Any]:
        refusal = message.extra.get("refusal")
        if isinstance(message.content, str) and not message.calls and refusal is None:
            return message.content
        blocks = self._parts(message.content, path)
        if refusal is not None:
            blocks.append({"type": "text", "text": _any(refusal)})
        for n, call in enumerate(message.calls):
            block = {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _arguments(call, f"{path}.tool_calls[{n}]")}
            blocks.append(block if call.cache_control is None else {**block, "cache_control": call.cache_control})
        return blocks

    def _result(self, message: Message, path: str) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.call_id or "")}
        if message.content is not None:
            block["content"] = message.content if isinstance(message.content, str) else self._parts(message.content, path)
        if message.is_error is not None:
            block["is_error"] = message.is_error
        cache = message.extra.get("cache_control")
        return block if cache is None else {**block, "cache_control": cache}

    def _parts(self, content: str | tuple[Part, ...] | None, path: str) -> list[Any]:
        if isinstance(content, str):
            content = (Text(content),)
        return [block for block in (self._block(part, path) for part in content or ()) if block is not None]

    def _block(self, part: Part, path: str) -> Any:
        if isinstance(part, Opaque):
            if part.dialect == NAME:
                return part.raw
            raise unsupported(f"`{path}` has a part of type {part.type!r}, which has no counterpart in the language of this backend.", path)
        if isinstance(part, Thinking):
            if part.signature is None and "unsigned_thinking" not in self.takes:
                self.dropped.append("messages.reasoning_content")  # without its signature it would be refused
                return None
            return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        if isinstance(part, RedactedThinking):
            return {"type": "redacted_thinking", "data": part.data}
        if isinstance(part, Refusal):
            part = Text(part.text)
        if isinstance(part, Audio):
            raise unsupported(f"`{path}` has audio, which this backend does not take.", path)
        block = _text(part) if isinstance(part, Text) else self._image(part) if isinstance(part, Image) else _document(part, path)
        if block is not None and part.cache_control is not None:
            block["cache_control"] = part.cache_control
        return block

    def _image(self, image: Image) -> dict[str, Any]:
        if image.detail not in (None, "auto"):
            self.dropped.append("messages.image_url.detail")
        if image.data is None:
            return {"type": "image", "source": {"type": "url", "url": image.url}}
        return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _text(part: Text) -> dict[str, Any] | None:
    if not part.text:
        return None  # an empty block is refused
    block: dict[str, Any] = {"type": "text", "text": part.text}
    return block if part.citations is None else {**block, "citations": part.citations}


def _document(document: Document, path: str) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "base64", "media_type": document.media_type or "application/pdf", "data": document.data}
    if document.url is not None:
        source = {"type": "url", "url": document.url}
    elif document.data is None:
        raise unsupported(f"`{path}` names a file by its id, which only the vendor that issued it knows; send its data.", path)
    elif document.media_type == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": plain_text(document, path)}
    block = {"type": "document", "source": source}
    return block if document.name is None else {**block, "title": document.name}


def _id(text: str) -> str:
    """Ids here have letters, digits, `_` and `-`; the same change for a call and its result."""
    return _NO_ID.sub("_", text) or "call"


def _arguments(call: Call, path: str) -> Raw:
    if not call.arguments.strip():
        return Raw(b"{}")
    try:
        _object(call.arguments)
    except msgspec.MsgspecError:
        where = f"{path}.function.arguments"
        raise Rejected(
            f"`{where}` is not a JSON object; send what the model wrote, whole.", sent=False, param=where, code="invalid_json"
        ) from None
    return Raw(call.arguments.encode())


# ---- tools --------------------------------------------------------------------------------------------------------------------------
_TOOL = ("type", "name", "description", "input_schema", "strict", "cache_control")


def decode_tools(raw: Raw) -> tuple[Tool, ...]:
    """The client's own tools; those of the vendor bind a request to this language and are not here. Raises DecodeError."""
    found = []
    for position, members in enumerate(_objects(raw)):
        if _any(members.get("type", _NULL)) not in (None, "custom"):
            continue
        schema, description, strict = members.get("input_schema", _NULL), members.get("description", _NULL), members.get("strict", _NULL)
        found.append(
            Tool(
                name=_string(members.get("name", _NULL), f"tools[{position}].name"),
                description=None if description == _NULL else _string(description, f"tools[{position}].description"),
                parameters=None if schema == _NULL else schema.copy(),
                strict=None if strict == _NULL else bool(_any(strict)),
                cache_control=_cache(members),
                extra={name: value.copy() for name, value in members.items() if name not in _TOOL and value != _NULL},
            )
        )
    return tuple(found)


def encode_tools(tools: Sequence[Tool]) -> Raw:
    written = []
    for tool in tools:
        members: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.parameters or Raw(b'{"type":"object"}'),
        }
        members |= {"strict": tool.strict, "cache_control": tool.cache_control, **tool.extra}
        written.append({name: value for name, value in members.items() if value is not None})
    return Raw(_encode(written))
