"""Requests for embeddings: from the client, each input checked and named, and to the backend, as many of them as one call takes.

The inputs stand one by one in `Request.inputs`, as the client wrote them; the fields stay as they came. Knows no vendor by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Raw

from providers.dialects import look
from providers.dialects.base import PLAIN, Quirks
from providers.dialects.body import MODEL, TEXT, Field, check
from providers.dialects.prompts import REMEDY, read_prompts
from providers.dialects.quirks import for_target, unsupported
from providers.dialects.rawjson import NULL, encode_json
from providers.types import Request, Target

NAME = "openai_embeddings"
MAX_DIMENSIONS = 1_000_000


FIELDS: Mapping[str, Field] = {
    "model": Field(MODEL, "the name of a route, as text"),
    "input": Field(None, REMEDY, data=True),
    "dimensions": Field(check(Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None), "a whole number from 1"),
    "encoding_format": Field(check(Literal["float", "base64"] | None), '"float" or "base64"', default="float"),
    "user": Field(TEXT, "a text", data=True),
    "stream": Field(check(Literal[False] | None), "left out: embeddings are not streamed"),
}


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request, _, seen = look.begin(NAME, body, FIELDS)
    request.inputs, request.given_tokens = read_prompts(request.fields.get("input", NULL), "input")
    seen.needs.add("embeddings")
    seen.prompt_bytes = sum(len(memoryview(raw)) for raw in request.inputs)
    request.max_tokens = 0  # nothing is generated
    request.temperature = 0.0  # and the same text gives the same vector
    return seen.into(request)


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target, with the request's inputs as a list. Sets `request.dropped`. Raises Unsupported.

    A target that does not know `encoding_format` is not told it: what comes is put into the form that the client asked for.
    """
    if request.dialect != NAME:
        raise unsupported("this model makes embeddings and generates no text; use another route", "model")
    fields = {**request.fields, "input": Raw(encode_json(request.inputs))}
    fields.pop("stream", None)
    if "encoding_format" in quirks.drop:
        fields.pop("encoding_format", None)
    request.dropped = ()
    return for_target(fields, request, target, quirks, FIELDS)
