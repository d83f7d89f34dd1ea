"""The table of request fields: what each may be, what it needs, what becomes of it abroad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from providers.dialects.body import BOOL, MAX_TOKENS, MODEL, SHARE, TEXT, Field, check, when
from providers.dialects.openai_chat.fields import Options
from providers.dialects.prompts import REMEDY

_count = check(Annotated[int, Meta(ge=1, le=128)] | None)
_penalty = check(Annotated[float, Meta(ge=-2, le=2)] | None)

FIELDS: Mapping[str, Field] = {
    "model": Field(MODEL, "the name of a route, as text"),
    "prompt": Field(None, REMEDY, data=True),
    "suffix": Field(TEXT, "a text", data=True, default="", abroad="refused"),
    "max_tokens": Field(check(Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None), f"a whole number up to {MAX_TOKENS}"),
    "temperature": Field(check(Annotated[float, Meta(ge=0, le=2)] | None), "a number from 0 to 2", default=1),
    "top_p": Field(SHARE, "a number from 0 to 1", default=1),
    "n": Field(_count, "a whole number from 1 to 128", default=1, needs=when("n", lambda n: n > 1)),
    "best_of": Field(_count, "a whole number from 1 to 128, at least n", default=1),
    "stream": Field(BOOL, "true or false"),
    "stream_options": Field(check(Options | None), 'an object such as {"include_usage": true}'),
    "logprobs": Field(check(Annotated[int, Meta(ge=0, le=20)] | None), "a whole number from 0 to 20", needs=lambda logprobs: "logprobs"),
    "echo": Field(BOOL, "true or false", default=False),
    "stop": Field(check(str | list[str] | None), "a text or a list of texts", data=True),
    "presence_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "frequency_penalty": Field(_penalty, "a number from -2 to 2", default=0, abroad="refused"),
    "logit_bias": Field(check(dict[str, float] | None), "an object of token ids and numbers", data=True, default={}, abroad="refused"),
    "seed": Field(check(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None), "a whole number of 64 bits", abroad="dropped"),
    "user": Field(TEXT, "a text", data=True),
}
