"""Messages and tools of this language to and from the neutral model.

Nothing is lost on the way through: members and parts that only this language has stay as they came (`Message.extra`, `Opaque`).
Normalised: null and absent are one; `reasoning_content` becomes a Thinking part before the content, and a lone text beside it is
written as a string again. Signed and encrypted thinking of a language that has it stands in `reasoning_details`, as some servers of
this language write it; details in the format of any other vendor stay as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects import openai_parts as parts
from providers.dialects import rawjson
from providers.dialects.base import DecodeError
from providers.dialects.crossing import Carries
from providers.dialects.functions import read_tool, write_tool
from providers.dialects.thinking import details_of, reasoning_of
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Text, Thinking, Tool

NAME = "openai_chat"
CARRIES = Carries(
    language=NAME,
    thinking="reasoning_details",
    names=True,
    detail=True,
    audio=True,
    refusals=True,
    lone_text=True,
    document_name="document.pdf",
)


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def decode_messages(raw: Raw) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    decoded = []
    for position, members in enumerate(rawjson.decode_objects(raw)):
        path = f"messages[{position}]"
        rest = {name: value for name, value in members.items() if value != rawjson.NULL}
        content = _content(rest.pop("content", rawjson.NULL), f"{path}.content")
        thoughts = reasoning_of(rest, f"{path}.reasoning_content")
        if thoughts:
            content = (*thoughts, *((Text(content),) if isinstance(content, str) else content or ()))
        decoded.append(
            Message(
                role=rawjson.string(rest.pop("role"), f"{path}.role"),
                content=content,
                name=rawjson.optional(rest, "name", path),
                calls=_calls(rest, f"{path}.tool_calls"),
                call_id=rawjson.optional(rest, "tool_call_id", path),
                extra=rawjson.kept(rest),
            )
        )
    return tuple(decoded)


def _content(raw: Raw, path: str) -> str | tuple[Part, ...] | None:
    if rawjson.first_byte(raw) == rawjson.LIST:
        return tuple([_part(part, f"{path}[{position}]") for position, part in enumerate(rawjson.decode_raws(raw))])
    return None if raw == rawjson.NULL else rawjson.string(raw, path)


def _calls(members: dict[str, Raw], path: str) -> tuple[Call, ...]:
    """Function calls; a list that holds any other kind stays in the message's extra, whole."""
    found = rawjson.decode_any(members.get("tool_calls", b"[]"))
    if not isinstance(found, list):
        raise DecodeError(f"`{path}` must be a list of calls.", param=path, code="invalid_type")
    if not all(_is_function(call) for call in found):
        return ()
    calls = []
    for position, call in enumerate(found):
        call_id, arguments = call.get("id"), call["function"].get("arguments", "")
        for name, value, kind in (
            ("function.arguments", arguments, "JSON as a text"),
            ("id", "" if call_id is None else call_id, "a text"),
        ):
            if not isinstance(value, str):
                where = f"{path}[{position}].{name}"
                raise DecodeError(f"`{where}` must be {kind}.", param=where, code="invalid_type")
        calls.append(Call(call_id or "", call["function"]["name"], arguments))
    members.pop("tool_calls", None)
    return tuple(calls)


def _is_function(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or call.get("type", "function") != "function":
        return False
    return set(call) <= {"id", "type", "function", "index"} and set(function) <= {"name", "arguments"}


def _part(raw: Raw, path: str) -> Part:
    part = rawjson.typed(raw, path)
    kind = part["type"]
    if kind in _READ and set(part) - {"cache_control"} == {"type", kind}:
        known: Part | None = _READ[kind](part[kind], rawjson.copied(rawjson.decode_object(raw), "cache_control"))
        if known is not None:
            return known
    return Opaque(NAME, kind, raw.copy())


def _text(value: Any, cache: Raw | None) -> Part | None:
    return Text(value, cache) if isinstance(value, str) else None


def _refusal(value: Any, cache: Raw | None) -> Part | None:
    return Refusal(value) if isinstance(value, str) and cache is None else None


_READ: dict[str, Any] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": partial(parts.read_image, url="url"),
    "input_audio": parts.read_audio,
    "file": parts.read_file,
}


def decode_tools(raw: Raw) -> tuple[Tool, ...]:
    """Raises DecodeError naming the tool that is wrong."""
    found = []
    for position, members in enumerate([] if raw == rawjson.NULL else rawjson.decode_objects(raw)):
        path = f"tools[{position}].function"
        if rawjson.decode_any(members.get("type", rawjson.NULL)) not in (None, "function"):
            continue
        function = members.get("function", rawjson.NULL)
        if rawjson.first_byte(function) != rawjson.OBJECT:
            raise DecodeError(f"`{path}` is missing: send an object with a `name`.", param=path)
        tool = read_tool(rawjson.decode_object(function), path, "parameters", rawjson.copied(members, "cache_control"), ())
        inner = {"function." + name: value for name, value in tool.extra.items()}
        found.append(replace(tool, extra={**inner, **rawjson.kept(members, {"type", "function", "cache_control"})}))
    return tuple(found)


# ---- to the wire --------------------------------------------------------------------------------------------------------------------
def encode_messages(messages: Sequence[Message]) -> Raw:
    return Raw(rawjson.encode_json([_message(message) for message in messages]))


def _message(message: Message) -> dict[str, Any]:
    members: dict[str, Any] = {"role": message.role, "content": message.content}
    if isinstance(message.content, tuple):
        thoughts = [part for part in message.content if isinstance(part, Thinking | RedactedThinking)]
        said = [_write(part) for part in message.content if not isinstance(part, Thinking | RedactedThinking)]
        lone = len(said) == 1 and isinstance(said[0], dict) and set(said[0]) == {"type", "text"}
        members["content"] = said if not thoughts else said[0]["text"] if lone else said or None
        members |= details_of(thoughts)
    if message.name is not None:
        members["name"] = message.name
    if message.calls:
        members["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": "{}" if rawjson.says_nothing(call.arguments) else call.arguments},
            }
            for call in message.calls
        ]
    if message.call_id is not None:
        members["tool_call_id"] = message.call_id
    return {**members, **message.extra}


def _write(part: Part) -> Any:
    if isinstance(part, Opaque):
        return part.raw
    kind, value = _WRITE[type(part)](part)
    cache = getattr(part, "cache_control", None)
    return {"type": kind, kind: value} if cache is None else {"type": kind, kind: value, "cache_control": cache}


_WRITE: dict[type, Any] = {
    Text: lambda part: ("text", part.text),
    Refusal: lambda part: ("refusal", part.text),
    Image: lambda part: ("image_url", parts.write_image(part, "url")),
    Audio: lambda part: ("input_audio", parts.write_audio(part)),
    Document: lambda part: ("file", parts.write_file(part)),
}


def encode_tools(tools: Sequence[Tool]) -> Raw:
    found = []
    for tool in tools:
        inner = {name.removeprefix("function."): value for name, value in tool.extra.items() if name.startswith("function.")}
        outer = {name: value for name, value in tool.extra.items() if not name.startswith("function.")}
        function = {**write_tool(tool, "parameters"), **inner}
        found.append(rawjson.written({"type": "function", "function": function, "cache_control": tool.cache_control, **outer}))
    return Raw(rawjson.encode_json(found))
