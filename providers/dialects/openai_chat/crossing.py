"""Messages and tools that came in another language, made sayable in this one. And thinking, which this language has no own form for.

What a target cannot carry is taken out and its name kept, or refused; nothing is lost in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.base import DecodeError
from providers.dialects.crossing import plain_text, unsupported
from providers.types import Document, Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, Tool

_any = msgspec.json.Decoder().decode
_MEMBERS = {"type", "text", "data", "signature", "format", "index", "id"}
_ERROR = "Error: "  # this language has no mark for a failed call, so its result says it


class Crossing:
    """One request on its way from another language. dropped: names of what was left out, in order."""

    def __init__(self, takes: frozenset[str]) -> None:
        self.takes = takes
        self.dropped: list[str] = []

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Raises Unsupported, naming the message, for what may not be left out."""
        found: list[Message] = []
        media: list[Part] = []  # of tool results, which hold text alone here: they follow the results as a message of the user
        for position, message in enumerate(messages):
            if media and message.role != "tool":
                found.append(Message(role="user", content=tuple(media)))
                media = []
            found.append(self._message(message, f"messages[{position}]", media))
        if media:
            found.append(Message(role="user", content=tuple(media)))
        return found

    def tools(self, tools: Sequence[Tool]) -> list[Tool]:
        for tool in tools:
            self.dropped += [f"tools.{name}" for name in tool.extra]
        return [replace(tool, extra={}, cache_control=self._cache(tool.cache_control, "tools")) for tool in tools]

    def _message(self, message: Message, path: str, media: list[Part]) -> Message:
        self.dropped += [f"messages.{name}" for name in message.extra]
        content = message.content
        if not isinstance(content, str) and content is not None:
            kept = [self._part(part, path) for part in content]
            content = tuple(part for part in kept if part is not None)
        if message.role == "tool":
            content = self._result(message, content, media)
        calls = [replace(call, cache_control=self._cache(call.cache_control, "messages")) for call in message.calls]
        if isinstance(content, tuple) and len(content) <= 1 and all(type(part) is Text and part.cache_control is None for part in content):
            texts = [part.text for part in content if isinstance(part, Text)]
            content = texts[0] if texts else (None if calls else "")
        return replace(message, content=content, calls=tuple(calls), extra={}, is_error=None)

    def _part(self, part: Part, path: str) -> Part | None:
        if isinstance(part, Thinking | RedactedThinking):
            if "reasoning_details" in self.takes:
                return part
            self.dropped.append("messages.thinking")
            return None
        if isinstance(part, Opaque):
            raise unsupported(f"`{path}` has a part of type {part.type!r}, which has no counterpart in the language of this backend.", path)
        if isinstance(part, Text | Image | Document):
            part = replace(part, cache_control=self._cache(part.cache_control, "messages"))
        if isinstance(part, Text) and part.citations is not None:
            self.dropped.append("messages.citations")
            return replace(part, citations=None)
        return _document(part, path) if isinstance(part, Document) else part

    def _cache(self, marker: Raw | None, where: str) -> Raw | None:
        if marker is None or "cache_control" in self.takes:
            return marker
        self.dropped.append(f"{where}.cache_control")
        return None

    def _result(self, message: Message, content: str | tuple[Part, ...] | None, media: list[Part]) -> str | tuple[Part, ...]:
        """A tool's result as text; its images and documents go to `media`."""
        parts = (Text(content),) if isinstance(content, str) else content or ()
        texts: tuple[Part, ...] = tuple(part for part in parts if isinstance(part, Text))
        others = [part for part in parts if not isinstance(part, Text)]
        if others:
            media += [Text(f"From the result of tool call {message.call_id}:"), *others]
        if message.is_error:
            first = texts[0] if texts else Text("")
            assert isinstance(first, Text)
            texts = (replace(first, text=_ERROR + first.text), *texts[1:])
        return texts or (Text("(see the next message)") if others else Text(""),)


def _document(document: Document, path: str) -> Part:
    """PDFs stay files; plain text becomes text, which every server takes."""
    if document.data is None:
        raise unsupported(f"`{path}` names a document by address or id, which this backend cannot fetch; send its data.", path)
    if document.media_type == "text/plain":
        text = plain_text(document, path)
        return Text(text if document.name is None else f"{document.name}\n\n{text}", document.cache_control)
    return replace(document, name=document.name or "document.pdf")


def details_of(thoughts: Sequence[Part]) -> dict[str, Any]:
    """Members for thinking: `reasoning_content`, and `reasoning_details` where there is a signature or encrypted thinking."""
    texts = [part.text for part in thoughts if isinstance(part, Thinking)]
    members: dict[str, Any] = {"reasoning_content": "".join(texts)} if texts else {}
    if any(isinstance(part, RedactedThinking) or (isinstance(part, Thinking) and part.signature is not None) for part in thoughts):
        members["reasoning_details"] = [_detail(part) for part in thoughts]
    return members


def _detail(part: Part) -> dict[str, Any]:
    if isinstance(part, RedactedThinking):
        return {"type": "reasoning.encrypted", "data": part.data}
    assert isinstance(part, Thinking)
    detail = {"type": "reasoning.text", "text": part.text}
    return detail if part.signature is None else {**detail, "signature": part.signature}


def reasoning_of(members: dict[str, Raw], path: str) -> tuple[Part, ...]:
    """Thinking of an earlier turn; takes the members that it read. Raises DecodeError."""
    content = members.get("reasoning_content")
    text = None if content is None else _any(content)
    if text is not None and not isinstance(text, str):
        raise DecodeError(f"`{path}` must be a text.", param=path, code="invalid_type")
    found = _read_details(members.get("reasoning_details"))
    said = "".join(part.text for part in found if isinstance(part, Thinking))
    if found and text is not None and said != text:
        # pieces of a stream: the text stands beside its signature; with two signatures nobody knows which signed what
        lone = not said and sum(isinstance(part, Thinking) for part in found) == 1
        found = [Thinking(text, part.signature) if isinstance(part, Thinking) else part for part in found] if lone else []
    members.pop("reasoning_content", None)
    if found:
        members.pop("reasoning_details", None)
        members.pop("reasoning", None)  # the same text under another name
        return tuple(found)
    return () if text is None else (Thinking(text),)


def _read_details(raw: Raw | None) -> list[Part]:
    """Every detail, or none at all where one is of another vendor's format."""
    items = None if raw is None else _any(raw)
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
    if not theirs and (form is not None or "id" in item or "index" in item):
        return None  # of a vendor whose encrypted thinking is no use elsewhere
    if item.get("type") == "reasoning.encrypted" and isinstance(item.get("data"), str):
        return RedactedThinking(item["data"])
    text = item.get("text") or ""
    if item.get("type") != "reasoning.text" or not isinstance(text, str):
        return None
    return Thinking(text, signature if isinstance(signature, str) else None)
