"""Request fields that both conversational languages of OpenAI have, with one meaning: their checks, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Raw

from providers.dialects import body
from providers.dialects.base import DecodeError
from providers.dialects.body import Field, check
from providers.dialects.crossing import Reader
from providers.dialects.functions import read_format
from providers.dialects.rawjson import NULL, OBJECT, decode_any, decode_object, first_byte
from providers.types import OutputFormat

FORMATS = {"json_schema": "json_schema", "json_object": "json_mode"}  # what a format of the output needs of a backend
ALTERNATIVES = check(Annotated[int, Meta(ge=0, le=20)] | None)  # how many of the likeliest tokens are told at each place

COMMON: Mapping[str, Field] = {
    "model": Field(body.MODEL, "the name of a route, as text"),
    "stream": Field(body.BOOL, "true or false"),
    "temperature": Field(check(Annotated[float, Meta(ge=0, le=2)] | None), "a number from 0 to 2", default=1),
    "top_p": Field(body.SHARE, "a number from 0 to 1", default=1),
    "tools": Field(None, "a list of tools", data=True),
    "tool_choice": Field(body.NAME_OR_OBJECT, '"none", "auto", "required" or an object that names a tool', data=True),
    "parallel_tool_calls": Field(body.BOOL, "true or false"),
    "user": Field(body.TEXT, "a text", data=True),
    "safety_identifier": Field(body.TEXT, "a text", data=True),
    "store": Field(body.BOOL, "true or false", default=False, abroad="dropped"),
    "metadata": Field(body.OBJECT, "an object", default={}, abroad="dropped"),
    "service_tier": Field(body.TEXT, 'a text such as "auto"', default="auto", abroad="dropped"),
    "prompt_cache_key": Field(body.TEXT, "a text", data=True, abroad="dropped"),
    "prompt_cache_retention": Field(body.TEXT, "a text", abroad="dropped"),
    "moderation": Field(body.OBJECT, "an object", abroad="refused"),
}

READERS: Mapping[str, tuple[Reader, ...]] = {
    "top_p": (("top_p", decode_any),),
    "parallel_tool_calls": (("parallel_calls", decode_any),),
    "user": (("user", decode_any),),
    "safety_identifier": (("user", decode_any),),
}


def read_output_format(wanted: Raw, path: str, inside: str = "") -> OutputFormat | None:
    """None for plain text. inside: the member that holds the schema and its name, empty = they stand beside the type. DecodeError for a
    format that has no counterpart."""
    members = {} if wanted == NULL else decode_object(wanted)
    kind = decode_any(members.get("type", NULL))
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return OutputFormat()
    if kind != "json_schema":
        parameter = path.removesuffix(".json_schema")
        raise DecodeError(f'`{parameter}.type` may be "text", "json_object" or "json_schema" here.', param=f"{parameter}.type")
    inner = members.get(inside, NULL)
    if inside:
        members = decode_object(inner) if first_byte(inner) == OBJECT else {}
    return read_format(members, path)
