"""Reasoning that only those who wrote it can read, on its way through a language that has one text for it: a signature, or data.

A sealed text names what it may go back as, so that it goes there, whatever surface the client used between two turns, and to nobody
else. Knows no language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import MsgspecError, Raw

from providers.dialects.rawjson import LIST, NULL, decode_any, decode_objects, decode_raws, encode_json, first_byte
from providers.errors import Rejected

_MARK = "tollway:"
SIGNATURE, REDACTED = "signature", "redacted"  # what another language's reasoning is sealed as, for a language of one member for both


def seal(kind: str, text: str) -> str:
    """kind: a language, or what another language's reasoning is called in this one."""
    return f"{_MARK}{kind}:{text}"


def unseal(text: str | None, kind: str) -> str | None:
    """What was sealed as `kind`; None for anything else."""
    mark = f"{_MARK}{kind}:"
    return text[len(mark) :] if text is not None and text.startswith(mark) else None


def is_sealed(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(_MARK)


def holds_sealed(raw: Raw) -> bool:
    """Whether a signature, data or a list of details may be sealed: by a look at the bytes."""
    return _MARK.encode() in bytes(raw)


def without_sealed(raw: Raw) -> Raw:
    """Messages without the items, blocks and details that were sealed for another language; what else they hold is as it was."""
    found = []
    for message in decode_objects(raw):
        if is_sealed(decode_any(message.get("encrypted_content", NULL))):
            continue
        for name in ("content", "reasoning_details"):
            value = message.get(name, NULL)
            if first_byte(value) == LIST and holds_sealed(value):
                kept = [one for one in decode_raws(value) if not _holds_seal(decode_any(one))]
                message[name] = Raw(encode_json(kept)) if kept else NULL
        if message.get("reasoning_details") == NULL:
            del message["reasoning_details"]
        if message.get("content", NULL) != NULL or len(message) > 2:
            found.append(message)
    return Raw(encode_json(found))


def _holds_seal(part: Any) -> bool:
    return isinstance(part, dict) and (is_sealed(part.get("signature")) or is_sealed(part.get("data")))


def seal_members(language: str, members: Mapping[str, Raw]) -> str:
    """What a piece of reasoning has beside its text, in a language that keeps that in members of its own."""
    return seal(language, encode_json(members).decode())


def sealed_forms(text: str, language: str, members: Mapping[str, Raw], has_text: bool) -> tuple[str | None, str | None]:
    """(signature, redacted) of reasoning whose language has one member for both: another's own again, or its members sealed."""
    signature, redacted = unseal(text, SIGNATURE), unseal(text, REDACTED)
    if signature is None and redacted is None:
        own = seal_members(language, members)
        return (own, None) if has_text else (None, own)
    return signature, redacted


def open_members(text: str, language: str) -> dict[str, Any] | None:
    """Those members again; None for what another language sealed, or nobody. Raises Rejected for a seal that somebody broke."""
    own = unseal(text, language)
    try:
        return None if own is None else {**decode_any(own)}
    except (MsgspecError, TypeError):
        told = "Encrypted reasoning is not as this gateway gave it; send it back unchanged."
        raise Rejected(told, sent=False, param="messages") from None
