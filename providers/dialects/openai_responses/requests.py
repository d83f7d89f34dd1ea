"""Requests of this language: from the client (checked one level deep, the rest on demand) and to the backend.

The fast lane writes the client's own bytes again with what the target needs changed at top level; nested values stay byte for byte.
Nothing is stored: `store` is always false upstream. Knows no vendor by name: what a backend takes comes as Quirks.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from providers.dialects import look
from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.body import required
from providers.dialects.crossing import Crossing
from providers.dialects.crossing import foreign_fields as crossed
from providers.dialects.openai_responses import content
from providers.dialects.openai_responses.fields import FIELDS, ItemPeek, PartPeek
from providers.dialects.openai_responses.parameters import encode_parameters
from providers.dialects.quirks import for_target
from providers.dialects.rawjson import NULL, STRING, decode_any, first_byte
from providers.dialects.sealed import holds_sealed, without_sealed
from providers.types import Parameters, Request, Target

NAME = content.NAME
_items = msgspec.json.Decoder(list[ItemPeek]).decode
_parts = msgspec.json.Decoder(list[PartPeek]).decode
_TRUE, _FALSE, _FUNCTION = Raw(b"true"), Raw(b"false"), Raw(b'"function"')
_WITH_PARTS = {"message": "content", "function_call_output": "output", "function_call": "", "reasoning": ""}  # and where these stand
_TEXTS = ("input_text", "output_text", "refusal")
_NEEDS = {"input_image": ("images", "image_url"), "input_file": ("documents", "file_data"), "input_audio": ("audio", "input_audio")}


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request, values, seen = look.begin(NAME, body, FIELDS)
    request.max_tokens = values.get("max_output_tokens")
    if not isinstance(required(values, "input", FIELDS), str):
        _look_at_items(seen, request.fields["input"])
    choice = values.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type", NULL) != _FUNCTION:
        seen.unknown.append(f"tool_choice.type={str(decode_any(choice.get('type', NULL)))[:40]}")
    seen.tools(request.fields, "function")
    seen.text(request.fields, "input", "instructions", "text")
    return seen.into(request)


def _look_at_items(seen: look.Look, raw: Raw) -> None:
    """Kinds of items and of their parts; those that only this language has bind the request to it."""
    items = look.peek(_items, raw, "input", "a text or a list of items, each with a `type` or a `role`")
    if not items:
        raise DecodeError("`input` is empty: send a text or a list of at least one item.", param="input")
    for position, item in enumerate(items):
        path = f"input[{position}]"
        kind = item.type or ("message" if item.role is not None else "item_reference")
        if kind == "item_reference":
            message = f"`{path}` refers to an item by its id, but this gateway keeps no state: send the item itself."
            raise DecodeError(message, param=path, code="unsupported_parameter")
        if kind == "message" and item.role is None:
            raise DecodeError(f"`{path}.role` is missing: say whose message this is.", param=f"{path}.role")
        place = _WITH_PARTS.get(kind)
        if place is None:
            seen.unknown.append(f"{path}.type={kind[:40]}")
        elif place:
            _look_at_content(seen, getattr(item, place), f"{path}.{place}")
        if kind.startswith("function"):
            seen.needs.add("tools")
        if item.encrypted_content:
            seen.sealed = seen.sealed or holds_sealed(item.encrypted_content)
        if item.namespace is not None:
            seen.unknown.append(f"{path}.namespace")


def _look_at_content(seen: look.Look, raw: Raw, path: str) -> None:
    if first_byte(raw) == STRING:
        return
    for position, part in enumerate(look.peek(_parts, raw, path, "a text or a list of parts, each with a `type`")):
        kind, here = part.type, f"{path}[{position}]"
        if kind in _NEEDS:
            need, place = _NEEDS[kind]
            seen.payload(need, getattr(part, place))
            if part.file_id is not None:
                seen.unknown.append(f"{here}.file_id")
        elif kind not in _TEXTS:
            seen.unknown.append(f"{here}.type={kind[:40]}")


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target. Sets `request.dropped`. Raises Unsupported for what the target cannot carry and may not drop."""
    fields, request.dropped = (dict(request.fields), ()) if request.dialect == NAME else foreign_fields(request, quirks)
    if fields.get("store", NULL) == _TRUE:
        request.dropped += ("store",)
    fields["store"] = _FALSE
    if request.sealed and request.dialect == NAME:
        fields["input"] = without_sealed(fields["input"])
        request.dropped += ("messages.thinking",)
    if target.max_tokens is not None:
        fields["max_output_tokens"] = Raw(str(target.max_tokens).encode())
    return for_target(fields, request, target, quirks, FIELDS)


def foreign_fields(request: Request, quirks: Quirks = PLAIN) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """As crossing.foreign_fields. Raises Unsupported for what this language or this target cannot say."""
    crossing = Crossing(content.CARRIES, quirks.takes - {"cache_control"})  # which half of the places for it are missing here
    told = encode_parameters(request, request.parameters or Parameters(), quirks)
    return crossed(request, crossing, content.encode_messages, content.encode_tools, told)
