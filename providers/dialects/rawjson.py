"""Small readers that every dialect needs: JSON kept as bytes, members whose type a server or a client may get wrong, data addresses.

Strict ones raise DecodeError naming the place, for what a client wrote; lenient ones give an empty value, for what a server wrote.
Knows no particular language.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from providers.dialects.base import UNREADABLE, DecodeError

decode_any = msgspec.json.Decoder().decode
decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
decode_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
decode_raws = msgspec.json.Decoder(list[Raw]).decode
encode_json = msgspec.json.Encoder(decimal_format="number").encode
NULL = Raw(b"null")
LIST, STRING, OBJECT = 0x5B, 0x22, 0x7B  # the first byte of a value

T = TypeVar("T")


def first_byte(raw: Raw) -> int:
    return memoryview(raw)[0]


@lru_cache(1024)
def name_as_json(name: str) -> Raw:
    """A model's name, which is written into every request."""
    return Raw(encode_json(name))


def written(members: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that say nothing."""
    return {name: value for name, value in members.items() if value is not None}


def as_fields(members: Mapping[str, Any]) -> dict[str, Raw]:
    """Top-level fields as bytes, without those that say nothing."""
    return {name: value if isinstance(value, Raw) else Raw(encode_json(value)) for name, value in members.items() if value is not None}


# ---- strict: what a client wrote ----------------------------------------------------------------------------------------------------
def string(raw: Raw, path: str, kind: str = "a text") -> str:
    value = decode_any(raw)
    if not isinstance(value, str):
        raise DecodeError(f"`{path}` must be {kind}.", param=path, code="invalid_type")
    return value


def all_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def optional(members: dict[str, Raw], name: str, path: str) -> str | None:
    """A member that is a text or null or not there; it is taken out."""
    raw = members.pop(name, NULL)
    return None if raw == NULL else string(raw, f"{path}.{name}")


def kept(members: Mapping[str, Raw], known: Collection[str] = ()) -> dict[str, Raw]:
    """Copies of the members that are none of `known` and say something, for a message's or tool's `extra`."""
    return {name: value.copy() for name, value in members.items() if name not in known and value != NULL}


def copied(members: Mapping[str, Raw], name: str) -> Raw | None:
    found = members.get(name, NULL)
    return None if found == NULL else found.copy()


def typed(raw: Raw, path: str) -> dict[str, Any]:
    """An object with a `type`, as every part of a message is."""
    value = decode_any(raw)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise DecodeError(f"`{path}` must be an object with a `type`.", param=path, code="invalid_type")
    return value


def parts_of(raw: Raw, path: str, read: Callable[[Raw, dict[str, Any], str], T], kind: str = "a text") -> str | list[T]:
    """A content: a text, or a list of parts, of which `read` gets the bytes, the members and the path.

    kind: what it may be, for the error. Raises DecodeError naming the place.
    """
    if first_byte(raw) != LIST:
        return string(raw, path, kind)
    places = [(part, f"{path}[{n}]") for n, part in enumerate(decode_raws(raw))]
    return [read(part, typed(part, place), place) for part, place in places]


# ---- lenient: what a server wrote ---------------------------------------------------------------------------------------------------
def any_or_none(data: bytes) -> Any:
    """What a server wrote, None where it is no JSON."""
    try:
        return decode_any(data)
    except UNREADABLE:
        return None


def text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def text_or_json(value: Any) -> str:
    """A text, or what some servers write as an object in its place."""
    return text(value) if value is None or isinstance(value, str) else encode_json(value).decode()


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def says_nothing(arguments: str) -> bool:
    """Whether a call's arguments are none, as servers write it for a function without parameters."""
    return arguments.strip() in ("", "null")


def number(value: Any) -> int | None:
    """A place or an instant; None for what is neither, and for one that no encoder could write again."""
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def object_or_none(text: str) -> Raw | None:
    """A call's arguments as the object that they are; None where they are none, such as those that a limit cut off."""
    if says_nothing(text):
        return Raw(b"{}")
    try:
        decode_object(text)
    except msgspec.MsgspecError:
        return None
    return Raw(text.encode())


# ---- data addresses -----------------------------------------------------------------------------------------------------------------
def data_of(url: str) -> tuple[str, str] | None:
    """(media type, base64) of `data:<type>;base64,<data>`; None for any other address."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64") or head.count(";") != 1:
        return None
    return head[5:-7], data


def data_url(media_type: str | None, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def text_to_base64(plain: str) -> str:
    return base64.b64encode(plain.encode("utf-8", "surrogatepass")).decode()


def base64_to_text(data: str) -> str | None:
    """None for what is not UTF-8 in base64."""
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return None
