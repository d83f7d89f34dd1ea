"""The table of request fields: what each may be, what it needs, what becomes of it abroad. And the little that every message is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from providers.dialects.body import BOOL, MAX_TOKENS, MODEL, NAME_OR_OBJECT, OBJECT, OBJECTS, SHARE, TEXT, TEXTS, Field, check, when
from providers.dialects.rawjson import NULL


def _has_format(config: dict[str, Raw]) -> bool:
    return config.get("format", NULL) != NULL


FIELDS: Mapping[str, Field] = {
    "model": Field(MODEL, "the name of a route, as text"),
    "messages": Field(None, "a list of at least one message", data=True),
    "max_tokens": Field(check(Annotated[int, Meta(ge=0, le=MAX_TOKENS)]), f"a whole number up to {MAX_TOKENS}"),
    "system": Field(check(str | list[dict[str, Raw]] | None), "a text or a list of text blocks", data=True),
    "stream": Field(BOOL, "true or false"),
    "temperature": Field(SHARE, "a number from 0 to 1", default=1),
    "top_p": Field(SHARE, "a number from 0 to 1", default=1),
    "top_k": Field(check(Annotated[int, Meta(ge=0)] | None), "a whole number"),
    "stop_sequences": Field(TEXTS, "a list of texts", data=True),
    "tools": Field(None, "a list of tools", data=True),
    "tool_choice": Field(OBJECT, "an object with a `type`", data=True),
    "thinking": Field(OBJECT, "an object with a `type`"),
    "output_config": Field(OBJECT, "an object", data=True, needs=when("json_schema", _has_format)),
    "output_format": Field(OBJECT, "an object with a `type`", data=True, needs=when("json_schema")),
    "metadata": Field(OBJECT, "an object"),
    "service_tier": Field(TEXT, '"auto" or "standard_only"', default="auto", abroad="dropped"),
    "speed": Field(TEXT, '"standard" or "fast"', default="standard", abroad="dropped"),
    "cache_control": Field(OBJECT, "an object with a `type`", abroad="dropped"),
    "diagnostics": Field(OBJECT, "an object", abroad="dropped"),
    "context_management": Field(OBJECT, "an object", data=True, abroad="refused"),
    "inference_geo": Field(TEXT, "a text", abroad="refused"),
    "container": Field(NAME_OR_OBJECT, "a text or an object", abroad="refused"),
    "mcp_servers": Field(OBJECTS, "a list of servers", data=True, default=[], abroad="refused"),
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
    signature: Raw = Raw()
    data: Raw = Raw()


class SourcePeek(Struct, gc=False):
    type: str
    data: Raw = Raw()
