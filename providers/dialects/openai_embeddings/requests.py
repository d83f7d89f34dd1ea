"""Requests for embeddings: from the client, each input checked and named, and to the backend, as many of them as one call takes.

The inputs stand one by one in `Request.inputs`, as the client wrote them; the fields stay as they came. Knows no vendor by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.body import Field, asked, read_request, required
from providers.dialects.crossing import leave_out, unsupported
from providers.types import Message, Parameters, Request, Target, Tool

NAME = "openai_embeddings"
MAX_INPUTS = 2048  # of one request, as OpenAI has it
MAX_DIMENSIONS = 1_000_000

_text = msgspec.json.Decoder(str).decode
_ids = msgspec.json.Decoder(list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_REMEDY = "a text, a list of texts, a list of token ids or a list of such lists"
_SENTENCE = f"send {_REMEDY}, none of them empty"


def _check(kind: Any) -> Any:
    return msgspec.json.Decoder(kind).decode


FIELDS: Mapping[str, Field] = {
    "model": Field(_check(Annotated[str, Meta(min_length=1, max_length=256)]), "the name of a route, as text"),
    "input": Field(None, _REMEDY, data=True),
    "dimensions": Field(_check(Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None), "a whole number from 1"),
    "encoding_format": Field(_check(Literal["float", "base64"] | None), '"float" or "base64"', default="float"),
    "user": Field(_check(str | None), "a text", data=True),
    "stream": Field(_check(Literal[False] | None), "left out: embeddings are not streamed"),
}


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    fields, values, unknown = read_request(body, FIELDS)
    request = Request(dialect=NAME, fields=fields, model=required(values, "model", FIELDS), size_bytes=len(body))
    request.inputs, request.given_tokens = _inputs(fields.get("input", _NULL))
    request.prompt_bytes = sum(len(memoryview(raw)) for raw in request.inputs)
    request.max_tokens = 0  # nothing is generated
    request.temperature = 0.0  # and the same text gives the same vector
    request.needs = frozenset({"embeddings"})
    request.asks = asked(values)
    request.unknown = tuple(unknown)
    return request


def _inputs(raw: Raw) -> tuple[tuple[Raw, ...], int]:
    """Each input as it was written, and how many token ids they hold. Raises DecodeError naming the one that is wrong."""
    first = memoryview(raw)[0]
    if raw == _NULL:
        raise DecodeError(f"`input` is missing: {_SENTENCE}.", param="input", code="missing_required_parameter")
    if first == 0x22:
        return (raw,), _one(raw, "input")
    if first != 0x5B:
        raise DecodeError(f"`input` must be {_REMEDY}.", param="input", code="invalid_type")
    found = _raws(raw)
    if not found:
        raise DecodeError(f"`input` is empty: {_SENTENCE}.", param="input")
    if memoryview(found[0])[0] not in b'"[':
        return (raw,), _one(raw, "input")  # token ids of one input
    if len(found) > MAX_INPUTS:
        raise DecodeError(f"`input` has {len(found)} entries; send at most {MAX_INPUTS} in one request.", param="input")
    return tuple(found), sum([_one(one, f"input[{position}]") for position, one in enumerate(found)])


def _one(raw: Raw, path: str) -> int:
    """Token ids in one input; 0 for a text."""
    try:
        value = _text(raw) if memoryview(raw)[0] == 0x22 else _ids(raw)
    except msgspec.ValidationError as fault:
        raise DecodeError(
            f"`{path}` must be a text or a list of token ids ({str(fault)[:160]}).", param=path, code="invalid_type"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise DecodeError(f"`{path}` cannot be read: {fault}.", param=path, code="invalid_json") from None
    if not value:
        raise DecodeError(f"`{path}` is empty: {_SENTENCE}.", param=path)
    return 0 if isinstance(value, str) else len(value)


def messages(request: Request) -> tuple[Message, ...]:
    """The inputs that are texts, as messages without a role: for counting."""
    if request.decoded is None:
        request.decoded = tuple([Message(role="", content=_text(raw)) for raw in request.inputs if memoryview(raw)[0] == 0x22])
    return request.decoded


def tools(_request: Request) -> tuple[Tool, ...]:
    return ()


def parameters(_request: Request) -> Parameters:
    return Parameters()


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target, with the request's inputs as a list. Sets `request.dropped`. Raises Unsupported.

    A target that does not know `encoding_format` is not told it: what comes is put into the form that the client asked for.
    """
    if request.dialect != NAME:
        raise unsupported("this model makes embeddings and generates no text; use another route", "model")
    fields = {**request.fields, "model": Raw(_encode(target.model)), "input": Raw(_encode(request.inputs))}
    fields.pop("stream", None)
    if "encoding_format" in quirks.drop:
        fields.pop("encoding_format", None)
    request.dropped = leave_out(fields, quirks, FIELDS) if quirks.drop or quirks.refuse else ()
    for old, new in quirks.names.items():
        if old in fields:
            fields[new] = fields.pop(old)
    return _encode(fields)
