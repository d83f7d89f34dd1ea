"""The table of request fields: what each may be, and what becomes of it abroad. And the little that is looked at in every message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from providers.dialects.body import MAX_TOKENS, Field


def _check(kind: Any) -> Any:
    return msgspec.json.Decoder(kind).decode


_share = _check(Annotated[float, Meta(ge=0, le=1)] | None)
_object = _check(dict[str, Raw] | None)
_text = _check(str | None)

FIELDS: Mapping[str, Field] = {
    "model": Field(_check(Annotated[str, Meta(min_length=1, max_length=256)]), "the name of a route, as text"),
    "messages": Field(None, "a list of at least one message", data=True),
    "max_tokens": Field(_check(Annotated[int, Meta(ge=0, le=MAX_TOKENS)]), f"a whole number up to {MAX_TOKENS}"),
    "system": Field(_check(str | list[dict[str, Raw]] | None), "a text or a list of text blocks", data=True),
    "stream": Field(_check(bool | None), "true or false"),
    "temperature": Field(_share, "a number from 0 to 1", default=1),
    "top_p": Field(_share, "a number from 0 to 1", default=1),
    "top_k": Field(_check(Annotated[int, Meta(ge=0)] | None), "a whole number"),
    "stop_sequences": Field(_check(list[str] | None), "a list of texts", data=True),
    "tools": Field(None, "a list of tools", data=True),
    "tool_choice": Field(_object, "an object with a `type`", data=True),
    "thinking": Field(_object, "an object with a `type`"),
    "output_config": Field(_object, "an object", data=True),
    "output_format": Field(_object, "an object with a `type`", data=True),
    "metadata": Field(_object, "an object"),
    "service_tier": Field(_text, '"auto" or "standard_only"', default="auto", abroad="dropped"),
    "speed": Field(_text, '"standard" or "fast"', default="standard", abroad="dropped"),
    "cache_control": Field(_object, "an object with a `type`", abroad="dropped"),
    "diagnostics": Field(_object, "an object", abroad="dropped"),
    "context_management": Field(_object, "an object", data=True, abroad="refused"),
    "inference_geo": Field(_text, "a text", abroad="refused"),
    "container": Field(_check(str | dict[str, Raw] | None), "a text or an object", abroad="refused"),
    "mcp_servers": Field(_check(list[dict[str, Raw]] | None), "a list of servers", data=True, default=[], abroad="refused"),
}


# ---- the parts of messages and tools that are looked at for every request -----------------------------------------------------------
class MessagePeek(Struct, gc=False):
    role: Literal["user", "assistant", "system"]
    content: Raw


class BlockPeek(Struct, gc=False):
    type: str
    source: Raw = Raw()
    content: Raw = Raw()
    citations: Raw = Raw()
    context: Raw = Raw()


class SourcePeek(Struct, gc=False):
    type: str
    data: Raw = Raw()


class ToolPeek(Struct, gc=False):
    type: str | None = None
