"""What routing and money read of a request's messages and tools: which capabilities they need, how much text and how many media.

A dialect names the kinds of its parts; the walk and the errors are here. Typed peeks decode the little that is looked at; the rest stays
bytes. Knows no particular language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from providers.dialects.base import DecodeError
from providers.dialects.body import Field, asked, read_request, required
from providers.dialects.rawjson import NULL
from providers.types import Request

REMEDY = "send a list of at least one message, each with a `role` and `content`"

T = TypeVar("T")


class ToolPeek(Struct, gc=False):
    type: str | None = None


_tools = msgspec.json.Decoder(list[ToolPeek]).decode


class Look:
    """What was found so far. unknown: names of what only the request's own language has. sealed: reasoning that another has sealed.
    offered: tools."""

    __slots__ = ("media", "needs", "offered", "prompt_bytes", "sealed", "unknown")

    def __init__(self, needs: set[str], unknown: list[str]) -> None:
        self.needs = needs
        self.unknown = unknown
        self.prompt_bytes = 0
        self.media = 0
        self.offered = 0
        self.sealed = False

    def text(self, fields: Mapping[str, Raw], *names: str) -> None:
        """Fields that are prompt text beside the messages."""
        for name in names:
            if name in fields:
                self.prompt_bytes += len(memoryview(fields[name]))

    def payload(self, need: str, raw: Raw) -> None:
        """An image, a document or a clip: its bytes are no text."""
        self.needs.add(need)
        self.media += 1
        self.prompt_bytes -= len(memoryview(raw))

    def tools(self, fields: Mapping[str, Raw], own: str) -> None:
        """Tools of a type other than `own` (or none) are their vendor's: they bind the request to its language."""
        raw = fields.get("tools", NULL)
        if raw == NULL:
            return
        found = peek(_tools, raw, "tools", "a list of objects with a `type`")
        self.prompt_bytes += len(memoryview(raw))
        if found:
            self.needs.add("tools")
            self.offered = len(found)
        for position, tool in enumerate(found):
            if tool.type is not None and tool.type != own:
                self.unknown.append(f"tools[{position}].type={tool.type[:40]}")

    def into(self, request: Request) -> Request:
        request.needs = frozenset(self.needs)
        request.unknown = tuple(self.unknown)
        request.prompt_bytes = self.prompt_bytes
        request.media = self.media
        request.tools = self.offered
        request.sealed = self.sealed
        return request


def begin(dialect: str, body: bytes, table: Mapping[str, Field]) -> tuple[Request, dict[str, Any], Look]:
    """A request with what every language calls the same, the values of its fields, and what these need. Raises DecodeError."""
    fields, values, needs, unknown = read_request(body, table)
    request = Request(dialect=dialect, fields=fields, model=required(values, "model", table), size_bytes=len(body))
    request.stream = values.get("stream") is True
    request.temperature = values.get("temperature")
    request.asks = asked(values)
    return request, values, Look(needs, unknown)


def peek(decode: Callable[[Raw], list[T]], raw: Raw, path: str, remedy: str) -> list[T]:
    """A list of things of which only the peek's members are looked at. Raises DecodeError naming it."""
    try:
        return decode(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(f"`{path}` must be {remedy} ({str(fault)[:160]}).", param=path, code="invalid_type") from None


def messages(decode: Callable[[Raw], list[T]], look: Look, fields: Mapping[str, Raw]) -> list[T]:
    """The messages as far as `decode` looks into them; at least one. Raises DecodeError naming the one that is wrong."""
    raw = fields.get("messages")
    if raw is None:
        raise DecodeError(f"`messages` is missing: {REMEDY}.", param="messages", code="missing_required_parameter")
    try:
        found = decode(raw)
    except msgspec.ValidationError as fault:
        path = str(fault).rpartition("`$")[2].rstrip("`") if "`$" in str(fault) else ""
        raise DecodeError(
            f"`messages{path}` is wrong: {str(fault).partition(' - at')[0]}; {REMEDY}.", param=f"messages{path}", code="invalid_type"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise DecodeError(f"`messages` cannot be read: {fault}.", param="messages", code="invalid_json") from None
    if not found:
        raise DecodeError(f"`messages` is empty: {REMEDY}.", param="messages")
    look.prompt_bytes += len(memoryview(raw))
    return found


def odd_content(position: int, allowed: str) -> DecodeError:
    """A message's content is none of what is allowed."""
    path = f"messages[{position}].content"
    return DecodeError(f"`{path}` must be {allowed}.", param=path, code="invalid_type")
