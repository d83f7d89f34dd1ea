"""Items and tools of this language to and from the neutral model.

What an assistant did in a row (reasoning, texts, calls) is several items here and one message there: reasoning and texts in their
order, then the calls. Items and parts that only this language has stay as they came (Opaque). Normalised: `instructions` are a system
message; ids, states and log probabilities of earlier items, which say nothing where nothing is stored, are left out; several texts of
one reasoning item become one. Encrypted reasoning is sealed: it goes back to this language alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Raw

from providers.dialects import openai_parts as parts
from providers.dialects import rawjson
from providers.dialects.crossing import Carries
from providers.dialects.functions import read_tool, write_tool
from providers.dialects.rawjson import NULL, decode_any, decode_object, encode_json, kept, string, written
from providers.dialects.sealed import REDACTED, SIGNATURE, open_members, seal, sealed_forms
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Request, Text, Thinking, Tool

NAME = "openai_responses"
CARRIES = Carries(
    language=NAME,
    unsigned="unsigned_thinking",
    sealed=True,
    result_media=True,
    detail=True,
    audio=True,
    refusals=True,
    document_url=True,
    text_documents=True,
    lone_text=True,
    document_name="document.pdf",
)
_NOT_KEPT = ("type", "role", "content", "summary", "id", "status")  # of a message or reasoning, beside what is read
_CALL = {"type", "id", "status", "call_id", "name", "arguments", "caller"}
_BREAKPOINT, _EPHEMERAL = {"mode": "explicit"}, Raw(b'{"type":"ephemeral"}')  # a mark of the prompt cache, here and elsewhere


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def read_messages(request: Request) -> tuple[Message, ...]:
    said, raw = request.fields.get("instructions", NULL), request.fields["input"]
    system = () if said == NULL else (Message(role="system", content=string(said, "instructions")),)
    lone = rawjson.first_byte(raw) == rawjson.STRING
    return (*system, *((Message(role="user", content=string(raw, "input")),) if lone else decode_items(raw)))


Item = tuple[str, str, Raw, dict[str, Raw]]  # its place, its type, its bytes, its members


def decode_items(raw: Raw) -> tuple[Message, ...]:
    """Raises DecodeError naming the member that is wrong."""
    items: list[Item] = []
    for position, item in enumerate(rawjson.decode_raws(raw)):
        members = decode_object(item)
        items.append((f"input[{position}]", decode_any(members.get("type", NULL)) or "message", item, members))
    found: list[Message] = []
    for own, row in groupby(items, _is_assistants):
        in_row = list(row)
        found += _turn(in_row) if own else [_other(*item) for item in in_row]
    return tuple(found)


def _is_assistants(item: Item) -> bool:
    _, kind, _, members = item
    return decode_any(members["role"]) == "assistant" if kind == "message" else not kind.endswith(("_output", "_response"))


def _turn(items: Iterable[Item]) -> list[Message]:
    """What the assistant did in a row."""
    said: list[str | Part] = []  # a text where a message is nothing else
    calls: list[Call] = []
    extra: dict[str, Raw] = {}
    for path, kind, raw, members in items:
        if kind == "message":
            content = _content(members.get("content", NULL), f"{path}.content")
            said += [content] if isinstance(content, str) else content
            extra |= kept(members, _NOT_KEPT)
        elif kind == "function_call" and set(members) <= _CALL:
            call_id, name, arguments = [string(members.get(name, NULL), f"{path}.{name}") for name in ("call_id", "name", "arguments")]
            calls.append(Call(call_id, name, arguments))
        elif kind == "reasoning":
            said += _thinking(members)
        else:
            said.append(Opaque(NAME, kind, raw.copy()))
    parted = tuple([Text(part) if isinstance(part, str) else part for part in said]) or None
    whole = said[0] if len(said) == 1 and isinstance(said[0], str) else parted
    return [Message(role="assistant", content=whole, calls=tuple(calls), extra=extra)] if said or calls else []


def _other(path: str, kind: str, raw: Raw, members: dict[str, Raw]) -> Message:
    if kind == "message":
        content = _content(members.get("content", NULL), f"{path}.content")
        return Message(role=decode_any(members["role"]), content=content, extra=kept(members, _NOT_KEPT))
    if kind == "function_call_output":
        output = _content(members.get("output", NULL), f"{path}.output")
        return Message(role="tool", content=output, call_id=string(members.get("call_id", NULL), f"{path}.call_id"))
    return Message(role="user", content=(Opaque(NAME, kind, raw.copy()),))


def _thinking(members: Mapping[str, Raw]) -> list[Part]:
    said = reasoning_text(decode_any(members.get("content", NULL))) or reasoning_text(decode_any(members.get("summary", NULL)))
    signature, redacted = sealed_of(members, bool(said))
    if redacted is not None:
        return [RedactedThinking(redacted)]
    return [Thinking(said, signature)] if said or signature is not None else []


def reasoning_text(pieces: Any) -> str:
    texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
    return "\n\n".join([piece for piece in texts if isinstance(piece, str)])


def sealed_of(members: Mapping[str, Raw], has_text: bool) -> tuple[str | None, str | None]:
    """(signature, redacted) of a reasoning item."""
    encrypted = decode_any(members.get("encrypted_content", NULL))
    return sealed_forms(encrypted, NAME, kept(members, _NOT_KEPT), has_text) if encrypted and isinstance(encrypted, str) else (None, None)


def _content(raw: Raw, path: str) -> str | tuple[Part, ...]:
    if rawjson.first_byte(raw) != rawjson.LIST:
        return "" if raw == NULL else string(raw, path)
    return tuple([_part(part, f"{path}[{position}]") for position, part in enumerate(rawjson.decode_raws(raw))])


def _part(raw: Raw, path: str) -> Part:
    said = written(rawjson.typed(raw, path))
    kind, mark = said.pop("type"), said.pop("prompt_cache_breakpoint", None)
    cache = _EPHEMERAL if mark == _BREAKPOINT else None
    known = _READ[kind](said, cache) if kind in _READ and (mark is None or cache is not None) else None
    return Opaque(NAME, kind, raw.copy()) if known is None else known


def _text(said: dict[str, Any], cache: Raw | None) -> Part | None:
    annotations, _ = said.pop("annotations", None), said.pop("logprobs", None)
    return Text(said["text"], cache, Raw(encode_json(annotations)) if annotations else None) if parts.texts(said, "text") else None


def _refusal(said: dict[str, Any], cache: Raw | None) -> Part | None:
    return Refusal(said["refusal"]) if parts.texts(said, "refusal") and cache is None else None


_READ: dict[str, Any] = {
    "input_text": _text,
    "output_text": _text,
    "refusal": _refusal,
    "input_image": lambda said, cache: parts.read_image(said, cache, "image_url"),
    "input_file": lambda said, cache: parts.read_file(said, cache, "file_url"),
    "input_audio": lambda said, cache: parts.read_audio(said.get("input_audio") if len(said) == 1 else None, cache),
}


def read_tools(request: Request) -> tuple[Tool, ...]:
    raw = request.fields.get("tools", NULL)
    found = enumerate([] if raw == NULL else rawjson.decode_objects(raw))
    own = [(f"tools[{n}]", members) for n, members in found if decode_any(members.get("type", NULL)) in (None, "function")]
    return tuple([read_tool(members, path, "parameters", None, ("type",)) for path, members in own])


# ---- to the wire --------------------------------------------------------------------------------------------------------------------
def encode_messages(messages: Sequence[Message]) -> dict[str, Raw]:
    return {"input": Raw(encode_json([item for message in messages for item in _items(message)]))}


def _items(message: Message) -> list[Any]:
    content, kind = message.content, "output_text" if message.role == "assistant" else "input_text"
    if message.role == "tool":
        output = content if isinstance(content, str) else [_write(part, kind) for part in content or ()]
        return [{"type": "function_call_output", "call_id": message.call_id or "", "output": output}]
    head = {"type": "message", "role": message.role}
    items: list[Any] = []
    if isinstance(content, str) or (not content and not message.calls):
        items.append({**head, "content": content or "", **message.extra})
    told = [(part, _alone(part)) for part in content] if isinstance(content, tuple) else []
    for alone, row in groupby(told, lambda one: one[1] is not None):
        run = list(row)
        items += [item for _, item in run] if alone else [{**head, "content": [_write(part, kind) for part, _ in run], **message.extra}]
    return items + [_write_call(call) for call in message.calls]


def _write_call(call: Call) -> dict[str, Any]:
    arguments = "{}" if rawjson.says_nothing(call.arguments) else call.arguments
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _alone(part: Part) -> Any:
    """What is an item of its own and no part of a message; None for a part."""
    if isinstance(part, Opaque):
        return None if part.type.startswith(("input_", "output_", "refusal")) else part.raw
    if isinstance(part, RedactedThinking):
        return {"type": "reasoning", "summary": [], **opened(part.data, REDACTED)}
    if not isinstance(part, Thinking):
        return None
    if part.signature is None:
        return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": part.text}]}
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {"type": "reasoning", "summary": summary, **opened(part.signature, SIGNATURE)}


def opened(sealed: str, kind: str) -> dict[str, Any]:
    """What a reasoning item has beside its text: this language's own members again, or another's reasoning sealed as `kind`."""
    own = open_members(sealed, NAME)
    return {"encrypted_content": seal(kind, sealed)} if own is None else own


def _write(part: Part, text: str) -> Any:
    if isinstance(part, Opaque):
        return part.raw
    found = _WRITE[type(part)](part) if not isinstance(part, Text) else {"type": text, "text": part.text, "annotations": part.citations}
    marked = getattr(part, "cache_control", None) is not None
    return written({**found, "prompt_cache_breakpoint": _BREAKPOINT if marked else None})


_WRITE: dict[type, Any] = {
    Refusal: lambda part: {"type": "refusal", "refusal": part.text},
    Image: lambda part: {"type": "input_image", **parts.write_image(part, "image_url")},
    Audio: lambda part: {"type": "input_audio", "input_audio": parts.write_audio(part)},
    Document: lambda part: {"type": "input_file", **parts.write_file(part)},
}


def encode_tools(tools: Sequence[Tool]) -> Raw:
    """A function is strict here unless it says that it is not; elsewhere it is the other way round."""
    found = [{"type": "function", **write_tool(tool, "parameters"), "strict": tool.strict is True, **tool.extra} for tool in tools]
    return Raw(encode_json(found))
