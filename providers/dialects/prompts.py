"""Bare prompts, as embeddings and the old completions take them: a text, token ids, or a list of either. Knows no particular language."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from providers.dialects.base import DecodeError
from providers.dialects.rawjson import LIST, NULL, STRING, decode_raws, first_byte
from providers.types import Message, Request

MOST = 2048  # of one request, as OpenAI has it
REMEDY = "a text, a list of texts, a list of token ids or a list of such lists"
_SENTENCE = f"send {REMEDY}, none of them empty"

_text = msgspec.json.Decoder(str).decode
_ids = msgspec.json.Decoder(list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]).decode


def read_prompts(raw: Raw, name: str) -> tuple[tuple[Raw, ...], int]:
    """Each prompt as it was written, and how many token ids they hold. Raises DecodeError naming the one that is wrong."""
    first = first_byte(raw)
    if raw == NULL:
        raise DecodeError(f"`{name}` is missing: {_SENTENCE}.", param=name, code="missing_required_parameter")
    if first == STRING:
        return (raw,), _one(raw, name)
    if first != LIST:
        raise DecodeError(f"`{name}` must be {REMEDY}.", param=name, code="invalid_type")
    found = decode_raws(raw)
    if not found:
        raise DecodeError(f"`{name}` is empty: {_SENTENCE}.", param=name)
    if first_byte(found[0]) not in b'"[':
        return (raw,), _one(raw, name)  # token ids of one prompt
    if len(found) > MOST:
        raise DecodeError(f"`{name}` has {len(found)} entries; send at most {MOST} in one request.", param=name)
    return tuple(found), sum([_one(one, f"{name}[{position}]") for position, one in enumerate(found)])


def _one(raw: Raw, path: str) -> int:
    """Token ids in one prompt; 0 for a text."""
    try:
        value = _text(raw) if first_byte(raw) == STRING else _ids(raw)
    except msgspec.ValidationError as fault:
        message = f"`{path}` must be a text or a list of token ids ({str(fault)[:160]})."
        raise DecodeError(message, param=path, code="invalid_type") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise DecodeError(f"`{path}` cannot be read: {fault}.", param=path, code="invalid_json") from None
    if not value:
        raise DecodeError(f"`{path}` is empty: {_SENTENCE}.", param=path)
    return 0 if isinstance(value, str) else len(value)


def texts(prompts: tuple[Raw, ...]) -> list[str]:
    """Those that are texts."""
    return [_text(raw) for raw in prompts if first_byte(raw) == STRING]


def as_messages(prompts: tuple[Raw, ...]) -> tuple[Message, ...]:
    """Texts as messages without a role, which have no marks around them: for counting."""
    return tuple([Message(role="", content=text) for text in texts(prompts)])


def prompts_of(request: Request, name: str) -> tuple[Raw, ...]:
    """Of a request that was read before."""
    return read_prompts(request.fields[name], name)[0]
