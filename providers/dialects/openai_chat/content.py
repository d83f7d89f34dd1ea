"""Messages and tools of this language to and from the neutral model.

Nothing is lost on the way through: members and parts that only this language has stay as they came (`Message.extra`, `Opaque`).
Normalised: null and absent are one; `reasoning_content` becomes a Thinking part before the content, and a lone text beside it is
written as a string again. Signed and encrypted thinking of a language that has it stands in `reasoning_details`, as some servers of
this language write it; details in the format of any other vendor stay as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects.base import DecodeError
from providers.dialects.openai_chat.crossing import Crossing, details_of, reasoning_of
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Text, Thinking, Tool

_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_FUNCTION = Raw(b'"function"')


def decode_messages(raw: Raw) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    decoded = []
    for position, members in enumerate(_objects(raw)):
        path = f"messages[{position}]"
        rest = {name: value for name, value in members.items() if value != _NULL}
        content = _content(rest.pop("content", _NULL), f"{path}.content")
        thoughts = reasoning_of(rest, f"{path}.reasoning_content")
        if thoughts:
            parts = (Text(content),) if isinstance(content, str) else content or ()
            content = (*thoughts, *parts)
        calls = _calls(rest, f"{path}.tool_calls")
        decoded.append(
            Message(
                role=_string(rest.pop("role"), f"{path}.role"),
                content=content,
                name=_optional(rest, "name", path),
                calls=calls,
                call_id=_optional(rest, "tool_call_id", path),
                extra={name: value.copy() for name, value in rest.items()},
            )
        )
    return tuple(decoded)


def _string(raw: Raw, path: str) -> str:
    value = _any(raw)
    if not isinstance(value, str):
        raise DecodeError(f"`{path}` must be a text.", param=path, code="invalid_type")
    return value


def _optional(members: dict[str, Raw], name: str, path: str) -> str | None:
    return _string(members.pop(name), f"{path}.{name}") if name in members else None


def _content(raw: Raw, path: str) -> str | tuple[Part, ...] | None:
    first = memoryview(raw)[0]
    if first == 0x5B:
        return tuple([_part(part, f"{path}[{position}]") for position, part in enumerate(_raws(raw))])
    return None if raw == _NULL else _string(raw, path)


def _calls(members: dict[str, Raw], path: str) -> tuple[Call, ...]:
    """Function calls; a list that holds any other kind stays in the message's extra, whole."""
    raw = members.get("tool_calls")
    if raw is None:
        return ()
    found = _any(raw)
    if not isinstance(found, list):
        raise DecodeError(f"`{path}` must be a list of calls.", param=path, code="invalid_type")
    calls = []
    for position, call in enumerate(found):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return ()
        if (
            set(call) - {"id", "type", "function", "index"}
            or set(function) - {"name", "arguments"}
            or call.get("type", "function") != "function"
        ):
            return ()
        arguments = function.get("arguments", "")
        if not isinstance(arguments, str):
            where = f"{path}[{position}].function.arguments"
            raise DecodeError(f"`{where}` must be JSON as a text.", param=where, code="invalid_type")
        call_id = call.get("id")
        if call_id is not None and not isinstance(call_id, str):
            where = f"{path}[{position}].id"
            raise DecodeError(f"`{where}` must be a text.", param=where, code="invalid_type")
        calls.append(Call(call_id or "", function["name"], arguments))
    del members["tool_calls"]
    return tuple(calls)


def _part(raw: Raw, path: str) -> Part:
    part = _any(raw)
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise DecodeError(f"`{path}` must be an object with a `type`.", param=path, code="invalid_type")
    known: Part | None = None
    cache = _object(raw).get("cache_control")
    cache = cache.copy() if cache is not None else None
    members = set(part) - {"type", "cache_control"}
    if members == {kind} and kind in _READ:
        known = _READ[kind](part[kind], cache)
    return known if known is not None else Opaque("openai_chat", kind, raw.copy())


def _text(value: Any, cache: Raw | None) -> Part | None:
    return Text(value, cache) if isinstance(value, str) else None


def _refusal(value: Any, cache: Raw | None) -> Part | None:
    return Refusal(value) if isinstance(value, str) and cache is None else None


def _data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64) of `data:<type>;base64,<data>`; None for any other form."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64") or head.count(";") != 1:
        return None
    return head[5:-7], data


def _image(value: Any, cache: Raw | None) -> Part | None:
    if not isinstance(value, dict) or set(value) - {"url", "detail"} or not isinstance(value.get("url"), str):
        return None
    detail = value.get("detail")
    if "detail" in value and not isinstance(detail, str):
        return None
    found = _data_url(value["url"])
    if found is None:
        return Image(url=value["url"], detail=detail, cache_control=cache)
    return Image(data=found[1], media_type=found[0], detail=detail, cache_control=cache)


def _audio(value: Any, cache: Raw | None) -> Part | None:
    if cache is not None or not isinstance(value, dict) or set(value) != {"data", "format"}:
        return None
    data, form = value["data"], value["format"]
    return Audio(data, form) if isinstance(data, str) and isinstance(form, str) else None


def _file(value: Any, cache: Raw | None) -> Part | None:
    if not isinstance(value, dict) or not value or set(value) - {"file_data", "file_id", "filename"}:
        return None
    if not all(isinstance(member, str) for member in value.values()):
        return None
    data, media_type = value.get("file_data"), None
    found = _data_url(data) if data is not None else None
    if found is not None:
        media_type, data = found
    return Document(data=data, file_id=value.get("file_id"), media_type=media_type, name=value.get("filename"), cache_control=cache)


_READ: dict[str, Any] = {"text": _text, "refusal": _refusal, "image_url": _image, "input_audio": _audio, "file": _file}


def encode_messages(messages: Sequence[Message], crossing: Crossing | None = None) -> Raw:
    """crossing: set where the messages came in another language; it takes out what this target cannot carry and keeps the names."""
    if crossing is not None:
        messages = crossing.messages(messages)
    return Raw(_encode([_message(message) for message in messages]))


def _message(message: Message) -> dict[str, Any]:
    members: dict[str, Any] = {"role": message.role}
    content: Any = message.content
    if isinstance(content, tuple):
        thoughts = [part for part in content if isinstance(part, Thinking | RedactedThinking)]
        parts = [_write(part) for part in content if not isinstance(part, Thinking | RedactedThinking)]
        if thoughts:
            members |= details_of(thoughts)
            lone = len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}
            members["content"] = parts[0]["text"] if lone else parts or None
        else:
            members["content"] = parts
    elif content is not None or not message.calls:
        members["content"] = content
    else:
        members["content"] = None
    if message.name is not None:
        members["name"] = message.name
    if message.calls:
        members["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.calls
        ]
    if message.call_id is not None:
        members["tool_call_id"] = message.call_id
    return {**members, **message.extra}


def _write(part: Part) -> Any:
    if isinstance(part, Opaque):
        return part.raw
    written = _WRITE[type(part)](part)
    cache = getattr(part, "cache_control", None)
    if cache is not None:
        written["cache_control"] = cache
    return written


def _write_image(image: Image) -> dict[str, Any]:
    url = image.url if image.data is None else f"data:{image.media_type};base64,{image.data}"
    inner = {"url": url} if image.detail is None else {"url": url, "detail": image.detail}
    return {"type": "image_url", "image_url": inner}


def _write_file(document: Document) -> dict[str, Any]:
    data = document.data
    if data is not None and document.media_type is not None:
        data = f"data:{document.media_type};base64,{data}"
    inner = {"filename": document.name, "file_data": data, "file_id": document.file_id}
    return {"type": "file", "file": {name: value for name, value in inner.items() if value is not None}}


_WRITE: dict[type, Any] = {
    Text: lambda part: {"type": "text", "text": part.text},
    Refusal: lambda part: {"type": "refusal", "refusal": part.text},
    Image: _write_image,
    Audio: lambda part: {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}},
    Document: _write_file,
}


def decode_tools(raw: Raw) -> tuple[Tool, ...]:
    """Raises DecodeError naming the tool that is wrong."""
    if raw == _NULL:
        return ()
    found = []
    for position, members in enumerate(_objects(raw)):
        path = f"tools[{position}]"
        if _any(members.get("type", _FUNCTION)) != "function":
            continue
        function = members.get("function")
        if function is None or memoryview(function)[0] != 0x7B:
            raise DecodeError(f"`{path}.function` is missing: send an object with a `name`.", param=f"{path}.function")
        inner = _object(function)
        strict = _any(inner.get("strict", _NULL))
        description = inner.get("description", _NULL)
        parameters, cache = inner.get("parameters"), members.get("cache_control")
        found.append(
            Tool(
                name=_string(inner.get("name", _NULL), f"{path}.function.name"),
                description=None if description == _NULL else _string(description, f"{path}.function.description"),
                parameters=None if parameters is None or parameters == _NULL else parameters.copy(),
                strict=strict if isinstance(strict, bool) else None,
                cache_control=None if cache is None else cache.copy(),
            )
        )
    return tuple(found)


def encode_tools(tools: Sequence[Tool], crossing: Crossing | None = None) -> Raw:
    written = []
    for tool in tools if crossing is None else crossing.tools(tools):
        members = {"name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
        entry: dict[str, Any] = {"type": "function", "function": {name: value for name, value in members.items() if value is not None}}
        if tool.cache_control is not None:
            entry["cache_control"] = tool.cache_control
        written.append(entry)
    return Raw(_encode(written))
