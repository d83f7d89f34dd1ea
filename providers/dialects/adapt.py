"""Messages of the chat form made acceptable to one target: roles that it knows, one leading system message, ids of tool calls
and thinking of earlier turns in its form.

Works on the members as bytes: what need not change stays as it came, and messages that need nothing are not looked into.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from msgspec import Raw

from providers.dialects.base import Quirks
from providers.dialects.rawjson import NULL, decode_any, decode_objects, encode_json

Members = dict[str, Raw]

_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_SYSTEM = (b'"system"', b'"developer"')
_LEADING = 20  # bytes: a role this near to the beginning is the first message's own
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def adapt(raw: Raw, quirks: Quirks) -> tuple[Raw, tuple[str, ...]]:
    """The messages as the target takes them, and the names of what was left out."""
    if not (quirks.roles or quirks.system_first or quirks.call_ids or quirks.thoughts):
        return raw, ()
    data = bytes(raw)
    roles = any(b'"' + old.encode() + b'"' in data for old in quirks.roles)
    late = quirks.system_first and max(data.rfind(role) for role in _SYSTEM) > _LEADING
    calls = bool(quirks.call_ids) and b'"tool_call' in data
    thoughts = bool(quirks.thoughts) and b'"reasoning' in data
    if not (roles or late or calls or thoughts):
        return raw, ()
    messages = decode_objects(raw)
    if late:
        messages = _system_first(messages)
    if roles:
        _other_roles(messages, quirks)
    for message in messages if calls else ():
        _other_ids(message)
    lost = [name for message in messages for name in _other_thoughts(message, quirks)] if thoughts else []
    return Raw(encode_json(messages)), tuple(dict.fromkeys(lost))


def _other_thoughts(message: Members, quirks: Quirks) -> list[str]:
    """Thinking under the name that the target knows; what it does not know is taken out, and its names are given back."""
    found = {name: message.pop(name) for name in _THOUGHTS if name in message}
    if "reasoning_details" in found and "reasoning_details" in quirks.takes:
        message["reasoning_details"] = found.pop("reasoning_details")
    text = found.get("reasoning_content", found.get("reasoning", NULL))
    if quirks.thoughts == "reasoning" and text != NULL:
        message["reasoning"] = text
        found = {name: raw for name, raw in found.items() if name == "reasoning_details"}
    return [f"messages.{name}" for name, raw in found.items() if raw != NULL]


def _other_roles(messages: list[Members], quirks: Quirks) -> None:
    roles = {encode_json(old): Raw(encode_json(new)) for old, new in quirks.roles.items()}
    for message in messages:
        role = roles.get(bytes(message["role"]))
        if role is not None:
            message["role"] = role


def _system_first(messages: list[Members]) -> list[Members]:
    """One system message, before all others, of the texts of all; as they were where it stands so already."""
    found = [message for message in messages if bytes(message["role"]) in _SYSTEM]
    if not found or (len(found) == 1 and found[0] is messages[0]):
        return messages
    contents = [decode_any(message.get("content", NULL)) for message in found]
    if all(isinstance(content, str) for content in contents):
        merged: Any = "\n\n".join(contents)
    else:
        merged = [part for content in contents for part in _parts(content)]
    lead = {**found[0], "content": Raw(encode_json(merged))}
    return [lead, *(message for message in messages if not any(message is one for one in found))]


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _other_ids(message: Members) -> None:
    call_id, calls = message.get("tool_call_id", NULL), message.get("tool_calls", NULL)
    if call_id != NULL:
        message["tool_call_id"] = _nine(call_id)
    if calls != NULL:
        listed = decode_objects(calls)
        for call in listed:
            if "id" in call:
                call["id"] = _nine(call["id"])
        message["tool_calls"] = Raw(encode_json(listed))


def _nine(raw: Raw) -> Raw:
    """The id itself where it has the form, else always the same one for the same id."""
    value = decode_any(raw)
    if not isinstance(value, str) or _NINE.fullmatch(value):
        return raw
    number = int.from_bytes(hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return Raw(encode_json("".join(letters)))
