"""Requests for embeddings: from the client, each input checked and named, and to the backend, as many of them as one call takes.

The inputs stand one by one in `Request.inputs`, as the client wrote them; the fields stay as they came. Knows no vendor by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from providers.dialects import look
from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.body import MODEL, TEXT, Field, check
from providers.dialects.quirks import for_target, unsupported
from providers.dialects.rawjson import LIST, NULL, STRING, decode_raws, encode_json, first_byte
from providers.types import Message, Request, Target

NAME = "openai_embeddings"
MAX_INPUTS = 2048  # of one request, as OpenAI has it
MAX_DIMENSIONS = 1_000_000

_text = msgspec.json.Decoder(str).decode
_ids = msgspec.json.Decoder(list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]).decode
_REMEDY = "a text, a list of texts, a list of token ids or a list of such lists"
_SENTENCE = f"send {_REMEDY}, none of them empty"


FIELDS: Mapping[str, Field] = {
    "model": Field(MODEL, "the name of a route, as text"),
    "input": Field(None, _REMEDY, data=True),
    "dimensions": Field(check(Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None), "a whole number from 1"),
    "encoding_format": Field(check(Literal["float", "base64"] | None), '"float" or "base64"', default="float"),
    "user": Field(TEXT, "a text", data=True),
    "stream": Field(check(Literal[False] | None), "left out: embeddings are not streamed"),
}


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request, _, seen = look.begin(NAME, body, FIELDS)
    request.inputs, request.given_tokens = _inputs(request.fields.get("input", NULL))
    seen.needs.add("embeddings")
    seen.prompt_bytes = sum(len(memoryview(raw)) for raw in request.inputs)
    request.max_tokens = 0  # nothing is generated
    request.temperature = 0.0  # and the same text gives the same vector
    return seen.into(request)


def _inputs(raw: Raw) -> tuple[tuple[Raw, ...], int]:
    """Each input as it was written, and how many token ids they hold. Raises DecodeError naming the one that is wrong."""
    first = first_byte(raw)
    if raw == NULL:
        raise DecodeError(f"`input` is missing: {_SENTENCE}.", param="input", code="missing_required_parameter")
    if first == STRING:
        return (raw,), _one(raw, "input")
    if first != LIST:
        raise DecodeError(f"`input` must be {_REMEDY}.", param="input", code="invalid_type")
    found = decode_raws(raw)
    if not found:
        raise DecodeError(f"`input` is empty: {_SENTENCE}.", param="input")
    if first_byte(found[0]) not in b'"[':
        return (raw,), _one(raw, "input")  # token ids of one input
    if len(found) > MAX_INPUTS:
        raise DecodeError(f"`input` has {len(found)} entries; send at most {MAX_INPUTS} in one request.", param="input")
    return tuple(found), sum([_one(one, f"input[{position}]") for position, one in enumerate(found)])


def _one(raw: Raw, path: str) -> int:
    """Token ids in one input; 0 for a text."""
    try:
        value = _text(raw) if first_byte(raw) == STRING else _ids(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(
            f"`{path}` must be a text or a list of token ids ({str(fault)[:160]}).", param=path, code="invalid_type"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise DecodeError(f"`{path}` cannot be read: {fault}.", param=path, code="invalid_json") from None
    if not value:
        raise DecodeError(f"`{path}` is empty: {_SENTENCE}.", param=path)
    return 0 if isinstance(value, str) else len(value)


def read_messages(request: Request) -> tuple[Message, ...]:
    """The inputs that are texts, as messages without a role: for counting."""
    return tuple([Message(role="", content=_text(raw)) for raw in request.inputs if first_byte(raw) == STRING])


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
