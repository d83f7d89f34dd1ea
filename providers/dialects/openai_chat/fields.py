"""The table of request fields: what each may be, what it needs, what becomes of it abroad. And the little that every message is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from providers.dialects.body import BOOL, MAX_TOKENS, MODEL, NAME_OR_OBJECT, OBJECT, OBJECTS, SHARE, TEXT, TEXTS, TOKENS, Field, check, when


class Format(Struct, gc=False):
    type: str


class Options(Struct, gc=False):
    include_usage: bool | None = None


_FORMATS = {"json_schema": "json_schema", "json_object": "json_mode"}
_few = check(Annotated[int, Meta(ge=0, le=20)] | None)
_many = check(Annotated[int, Meta(ge=1, le=128)] | None)
_penalty = check(Annotated[float, Meta(ge=-2, le=2)] | None)

FIELDS: Mapping[str, Field] = {
    "model": Field(MODEL, "the name of a route, as text"),
    "messages": Field(None, "a list of at least one message", data=True),
    "stream": Field(BOOL, "true or false"),
    "stream_options": Field(check(Options | None), 'an object such as {"include_usage": true}'),
    "max_tokens": Field(TOKENS, f"a whole number from 1 to {MAX_TOKENS}"),
    "max_completion_tokens": Field(TOKENS, f"a whole number from 1 to {MAX_TOKENS}"),
    "temperature": Field(check(Annotated[float, Meta(ge=0, le=2)] | None), "a number from 0 to 2", default=1),
    "top_p": Field(SHARE, "a number from 0 to 1", default=1),
    "n": Field(_many, "a whole number from 1 to 128", default=1, needs=when("n", lambda n: n > 1)),
    "stop": Field(check(str | list[str] | None), "a text or a list of texts", data=True),
    "presence_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "frequency_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "logit_bias": Field(check(dict[str, float] | None), "an object of token ids and numbers", data=True, default={}, abroad="refused"),
    "logprobs": Field(BOOL, "true or false", default=0, abroad="refused", needs=when("logprobs")),
    "top_logprobs": Field(_few, "a whole number from 0 to 20", abroad="refused", needs=when("logprobs")),
    "seed": Field(check(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None), "a whole number of 64 bits", abroad="dropped"),
    "user": Field(TEXT, "a text", data=True),
    "tools": Field(None, "a list of tools", data=True),
    "tool_choice": Field(NAME_OR_OBJECT, '"none", "auto", "required" or an object that names a tool', data=True),
    "parallel_tool_calls": Field(BOOL, "true or false"),
    "functions": Field(OBJECTS, "a list of functions", data=True, abroad="refused", needs=when("tools")),
    "function_call": Field(NAME_OR_OBJECT, '"none", "auto" or an object that names a function', data=True, abroad="refused"),
    "response_format": Field(check(Format | None), "an object with a `type`", data=True, needs=lambda form: _FORMATS.get(form.type)),
    "reasoning_effort": Field(TEXT, 'a text such as "low"'),
    "verbosity": Field(TEXT, 'a text such as "low"', abroad="dropped"),
    "service_tier": Field(TEXT, 'a text such as "auto"', default="auto", abroad="dropped"),
    "store": Field(BOOL, "true or false", default=False, abroad="dropped"),
    "metadata": Field(OBJECT, "an object", default={}, abroad="dropped"),
    "modalities": Field(TEXTS, "a list of texts", default=["text"], abroad="refused", needs=when("audio", lambda kinds: "audio" in kinds)),
    "audio": Field(OBJECT, "an object", abroad="refused"),
    "prediction": Field(OBJECT, "an object", data=True, abroad="dropped"),
    "moderation": Field(OBJECT, "an object", abroad="refused"),
    "web_search_options": Field(OBJECT, "an object", abroad="refused"),
    "prompt_cache_key": Field(TEXT, "a text", data=True, abroad="dropped"),
    "prompt_cache_retention": Field(TEXT, "a text", abroad="dropped"),
    "safety_identifier": Field(TEXT, "a text", data=True),
}


# ---- the parts of messages and tools that are looked at for every request -----------------------------------------------------------
class MessagePeek(Struct, gc=False):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Raw = Raw(b"null")
    reasoning_details: Raw = Raw()


class PartPeek(Struct, gc=False):
    type: str
    image_url: Raw = Raw()
    input_audio: Raw = Raw()
    file: Raw = Raw()
