"""The table of request fields: what each may be, and which are the client's own data. And the little that is looked at in every message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from providers.dialects.body import MAX_TOKENS, Field


def _check(kind: Any) -> Any:
    return msgspec.json.Decoder(kind).decode


_tokens = _check(Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None)
_bool = _check(bool | None)
_text = _check(str | None)
_object = _check(dict[str, Raw] | None)
_objects = _check(list[dict[str, Raw]] | None)
_penalty = _check(Annotated[float, Meta(ge=-2, le=2)] | None)
_stops = _check(str | list[str] | None)
_choice = _check(str | dict[str, Raw] | None)

FIELDS: Mapping[str, Field] = {
    "model": Field(_check(Annotated[str, Meta(min_length=1, max_length=256)]), "the name of a route, as text"),
    "messages": Field(None, "a list of at least one message", data=True),
    "stream": Field(_bool, "true or false"),
    "stream_options": Field(_object, 'an object such as {"include_usage": true}'),
    "max_tokens": Field(_tokens, f"a whole number from 1 to {MAX_TOKENS}"),
    "max_completion_tokens": Field(_tokens, f"a whole number from 1 to {MAX_TOKENS}"),
    "temperature": Field(_check(Annotated[float, Meta(ge=0, le=2)] | None), "a number from 0 to 2", default=1),
    "top_p": Field(_check(Annotated[float, Meta(ge=0, le=1)] | None), "a number from 0 to 1", default=1),
    "n": Field(_check(Annotated[int, Meta(ge=1, le=128)] | None), "a whole number from 1 to 128", default=1),
    "stop": Field(_stops, "a text or a list of texts", data=True),
    "presence_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "frequency_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "logit_bias": Field(_check(dict[str, float] | None), "an object of token ids and numbers", data=True, default={}, abroad="refused"),
    "logprobs": Field(_bool, "true or false", default=0, abroad="refused"),
    "top_logprobs": Field(_check(Annotated[int, Meta(ge=0, le=20)] | None), "a whole number from 0 to 20", abroad="refused"),
    "seed": Field(_check(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None), "a whole number of 64 bits", abroad="dropped"),
    "user": Field(_text, "a text", data=True),
    "tools": Field(None, "a list of tools", data=True),
    "tool_choice": Field(_choice, '"none", "auto", "required" or an object that names a tool', data=True),
    "parallel_tool_calls": Field(_bool, "true or false"),
    "functions": Field(_objects, "a list of functions", data=True, abroad="refused"),
    "function_call": Field(_choice, '"none", "auto" or an object that names a function', data=True, abroad="refused"),
    "response_format": Field(_object, "an object with a `type`", data=True),
    "reasoning_effort": Field(_text, 'a text such as "low"'),
    "verbosity": Field(_text, 'a text such as "low"', abroad="dropped"),
    "service_tier": Field(_text, 'a text such as "auto"', default="auto", abroad="dropped"),
    "store": Field(_bool, "true or false", default=False, abroad="dropped"),
    "metadata": Field(_object, "an object", default={}, abroad="dropped"),
    "modalities": Field(_check(list[str] | None), "a list of texts", default=["text"], abroad="refused"),
    "audio": Field(_object, "an object", abroad="refused"),
    "prediction": Field(_object, "an object", data=True, abroad="dropped"),
    "web_search_options": Field(_object, "an object", abroad="refused"),
    "prompt_cache_key": Field(_text, "a text", data=True, abroad="dropped"),
    "prompt_cache_retention": Field(_text, "a text", abroad="dropped"),
    "safety_identifier": Field(_text, "a text", data=True),
}


# ---- the parts of messages and tools that are looked at for every request -----------------------------------------------------------
class MessagePeek(Struct, gc=False):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Raw = Raw(b"null")


class PartPeek(Struct, gc=False):
    type: str
    image_url: Raw = Raw()
    input_audio: Raw = Raw()
    file: Raw = Raw()


class ToolPeek(Struct, gc=False):
    type: str = "function"


class FormatPeek(Struct, gc=False):
    type: str


class OptionsPeek(Struct, gc=False):
    include_usage: bool | None = None
