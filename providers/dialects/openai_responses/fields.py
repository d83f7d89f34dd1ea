"""The table of request fields: what each may be, what it needs, what becomes of it abroad. And the little that every item is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Raw, Struct, ValidationError

from providers.dialects import body
from providers.dialects.body import Field, check, when
from providers.dialects.openai_fields import ALTERNATIVES, COMMON, FORMATS

LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"  # what `include` may ask for


class FormatPeek(Struct, gc=False):
    type: Literal["text", "json_schema", "json_object"]


class TextPeek(Struct, gc=False):
    format: FormatPeek | None = None


def _format_needs(value: TextPeek) -> str | None:
    return None if value.format is None else FORMATS.get(value.format.type)


def _nothing(raw: Raw) -> None:
    if bytes(raw) not in (b"null", b"false"):
        raise ValidationError("this gateway keeps no state")


FIELDS: Mapping[str, Field] = {
    **COMMON,
    "input": Field(check(str | list[Raw]), "a text or a list of items", data=True),
    "instructions": Field(body.TEXT, "a text", data=True),
    "stream_options": Field(body.OBJECT, "an object"),
    "max_output_tokens": Field(body.TOKENS, f"a whole number from 1 to {body.MAX_TOKENS}"),
    "text": Field(check(TextPeek | None), "an object whose `format` has a `type` that is known", data=True, needs=_format_needs),
    "reasoning": Field(body.OBJECT, "an object with an `effort`"),
    "include": Field(body.TEXTS, "a list of texts", needs=when("logprobs", lambda names: LOGPROBS in names)),
    "top_logprobs": Field(ALTERNATIVES, "a whole number from 0 to 20", default=0, abroad="refused", needs=when("logprobs")),
    "truncation": Field(body.TEXT, '"auto" or "disabled"', default="disabled", abroad="dropped"),
    "prompt_cache_options": Field(body.OBJECT, "an object", abroad="dropped"),
    "max_tool_calls": Field(body.TOKENS, "a whole number", abroad="dropped"),
    "context_management": Field(body.OBJECTS, "a list of objects", default=[], abroad="refused"),
    "previous_response_id": Field(_nothing, "left out: send the earlier items in `input`"),
    "conversation": Field(_nothing, "left out: send the earlier items in `input`"),
    "prompt": Field(_nothing, "left out: send its text in `instructions` and `input`"),
    "background": Field(_nothing, "left out: stream a long answer"),
}


# ---- the parts of items that are looked at for every request ------------------------------------------------------------------------
class ItemPeek(Struct, gc=False):
    """content: of a message, output: of a call."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Raw = Raw(b'""')
    output: Raw = Raw(b'""')
    namespace: Any = None
    encrypted_content: Raw = Raw()


class PartPeek(Struct, gc=False):
    type: str
    image_url: Raw = Raw()
    file_data: Raw = Raw()
    input_audio: Raw = Raw()
    file_id: Any = None
