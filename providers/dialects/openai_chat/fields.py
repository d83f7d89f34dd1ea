"""The table of request fields: what each may be, what it needs, what becomes of it abroad. And the little that every message is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from providers.dialects import body
from providers.dialects.body import Field, check, when
from providers.dialects.openai_fields import ALTERNATIVES, COMMON, FORMATS


class Format(Struct, gc=False):
    type: str


class Options(Struct, gc=False):
    include_usage: bool | None = None


_many = check(Annotated[int, Meta(ge=1, le=128)] | None)
_penalty = check(Annotated[float, Meta(ge=-2, le=2)] | None)

FIELDS: Mapping[str, Field] = {
    **COMMON,
    "messages": Field(None, "a list of at least one message", data=True),
    "stream_options": Field(check(Options | None), 'an object such as {"include_usage": true}'),
    "max_tokens": Field(body.TOKENS, f"a whole number from 1 to {body.MAX_TOKENS}"),
    "max_completion_tokens": Field(body.TOKENS, f"a whole number from 1 to {body.MAX_TOKENS}"),
    "n": Field(_many, "a whole number from 1 to 128", default=1, needs=when("n", lambda n: n > 1)),
    "stop": Field(check(str | list[str] | None), "a text or a list of texts", data=True),
    "presence_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "frequency_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "logit_bias": Field(check(dict[str, float] | None), "an object of token ids and numbers", data=True, default={}, abroad="refused"),
    "logprobs": Field(body.BOOL, "true or false", default=0, abroad="refused", needs=when("logprobs")),
    "top_logprobs": Field(ALTERNATIVES, "a whole number from 0 to 20", abroad="refused", needs=when("logprobs")),
    "seed": Field(check(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None), "a whole number of 64 bits", abroad="dropped"),
    "functions": Field(body.OBJECTS, "a list of functions", data=True, abroad="refused", needs=when("tools")),
    "function_call": Field(body.NAME_OR_OBJECT, '"none", "auto" or an object that names a function', data=True, abroad="refused"),
    "response_format": Field(check(Format | None), "an object with a `type`", data=True, needs=lambda form: FORMATS.get(form.type)),
    "reasoning_effort": Field(body.TEXT, 'a text such as "low"'),
    "verbosity": Field(body.TEXT, 'a text such as "low"', abroad="dropped"),
    "modalities": Field(
        body.TEXTS, "a list of texts", default=["text"], abroad="refused", needs=when("audio", lambda kinds: "audio" in kinds)
    ),
    "audio": Field(body.OBJECT, "an object", abroad="refused"),
    "prediction": Field(body.OBJECT, "an object", data=True, abroad="dropped"),
    "web_search_options": Field(body.OBJECT, "an object", abroad="refused"),
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
