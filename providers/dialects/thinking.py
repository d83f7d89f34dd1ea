"""Thinking in a language that has no form of its own for it: members of a message, as the vendors that add them write them.

`reasoning_content` (or `reasoning`) has the text, `reasoning_details` also signatures and encrypted thinking. Details in the format of
any other vendor are no use elsewhere and are left alone. Some write thinking among the parts of a content. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from providers.dialects.base import DecodeError
from providers.dialects.rawjson import decode_any, text
from providers.types import Event, Part, ReasoningDelta, RedactedThinking, TextDelta, Thinking

_MEMBERS = {"type", "text", "data", "signature", "format", "index", "id"}


def details_of(thoughts: Sequence[Part]) -> dict[str, Any]:
    """Members for thinking: `reasoning_content`, and `reasoning_details` where there is a signature or encrypted thinking."""
    texts = [part.text for part in thoughts if isinstance(part, Thinking)]
    members: dict[str, Any] = {"reasoning_content": "".join(texts)} if texts else {}
    if any(isinstance(part, RedactedThinking) or (isinstance(part, Thinking) and part.signature is not None) for part in thoughts):
        members["reasoning_details"] = [detail_of(part) for part in thoughts]
    return members


def detail_of(part: Part) -> dict[str, Any]:
    if isinstance(part, RedactedThinking):
        return {"type": "reasoning.encrypted", "data": part.data}
    assert isinstance(part, Thinking)
    detail = {"type": "reasoning.text", "text": part.text}
    return detail if part.signature is None else {**detail, "signature": part.signature}


def streamed_details(event: ReasoningDelta, said: dict[int, int]) -> list[dict[str, Any]]:
    """Details of a piece of a stream. said: choice -> how many it had, counted on here.

    They are numbered, since the official client joins the items of a list by their `index` and refuses a second item without one.
    """
    details = [] if event.signature is None else [detail_of(Thinking("", event.signature))]
    details += [] if event.redacted is None else [detail_of(RedactedThinking(event.redacted))]
    if not details:
        return []
    first = said.get(event.choice, 0)
    said[event.choice] = first + len(details)
    return [{**detail, "index": first + n} for n, detail in enumerate(details)]


def reasoning_of(members: dict[str, Raw], path: str) -> tuple[Part, ...]:
    """Thinking of an earlier turn; takes the members that it read. Raises DecodeError."""
    content = members.get("reasoning_content")
    whole = None if content is None else decode_any(content)
    if whole is not None and not isinstance(whole, str):
        raise DecodeError(f"`{path}` must be a text.", param=path, code="invalid_type")
    found = _read_details(members.get("reasoning_details"))
    said = "".join(part.text for part in found if isinstance(part, Thinking))
    if found and whole is not None and said != whole:
        # pieces of a stream: the text stands beside its signature; with two signatures nobody knows which signed what
        lone = not said and sum(isinstance(part, Thinking) for part in found) == 1
        found = [Thinking(whole, part.signature) if isinstance(part, Thinking) else part for part in found] if lone else []
    members.pop("reasoning_content", None)
    if found:
        members.pop("reasoning_details", None)
        members.pop("reasoning", None)  # the same text under another name
        return tuple(found)
    return () if whole is None else (Thinking(whole),)


def _read_details(raw: Raw | None) -> list[Part]:
    """Every detail, or none at all where one is of another vendor's format."""
    items = None if raw is None else decode_any(raw)
    found: list[Part] = []
    for item in items if isinstance(items, list) else ():
        part = _read_detail(item) if isinstance(item, dict) and not set(item) - _MEMBERS else None
        if part is None:
            return []
        found.append(part)
    return found


def _read_detail(item: Mapping[str, Any]) -> Part | None:
    form, signature = item.get("format"), item.get("signature")
    theirs = isinstance(form, str) and form.startswith("anthropic")
    if not theirs and (form is not None or "id" in item):  # an `index` alone is of our own streams
        return None  # of a vendor whose encrypted thinking is no use elsewhere
    if item.get("type") == "reasoning.encrypted" and isinstance(item.get("data"), str):
        return RedactedThinking(item["data"])
    said = item.get("text") or ""
    if item.get("type") != "reasoning.text" or not isinstance(said, str):
        return None
    return Thinking(said, signature if isinstance(signature, str) else None)


# ---- in an answer -------------------------------------------------------------------------------------------------------------------
def thought(named: Any, details: Any, choice: int, events: list[Event]) -> None:
    """One text, though servers repeat it under several names (`named`); signatures and encrypted pieces stand in the details alone."""
    said = named if isinstance(named, str) else ""
    signature = redacted = None
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if detail.get("type") == "reasoning.encrypted":
            redacted = (redacted or "") + text(detail.get("data"))
        signature = detail.get("signature") or signature
        if not named:
            said += text(detail.get("text") or detail.get("summary"))
    if said or signature or redacted:
        events.append(ReasoningDelta(said, choice, text(signature) or None, redacted))


def parts(content: Any, choice: int, events: list[Event]) -> None:
    """Content as typed parts, or as one object: text and thinking among it."""
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            continue
        said = part.get("text")
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            said = "".join(text(piece.get("text")) for piece in pieces if isinstance(piece, dict))
            signature = part.get("signature")
            if said or signature:
                events.append(ReasoningDelta(said, choice, text(signature) or None))
        elif isinstance(said, str) and said:
            events.append(TextDelta(said, choice))
