"""Anthropic Messages, and the servers that speak it."""

from __future__ import annotations

from providers.dialects.anthropic_messages import answers, encode, errors
from providers.dialects.anthropic_messages.requests import (
    NAME,
    decode_count,
    decode_request,
    encode_request,
    messages,
    parameters,
    tools,
)
from providers.dialects.base import Dialect

DIALECT = Dialect(
    name=NAME,
    decode_request=decode_request,
    messages=messages,
    tools=tools,
    parameters=parameters,
    encode_request=encode_request,
    stream_decoder=answers.StreamDecoder,
    decode_answer=answers.decode_answer,
    encode_answer=encode.encode_answer,
    stream_encoder=encode.StreamEncoder,
    http_error=errors.http_error,
    error_body=errors.error_body,
    stream_error=errors.stream_error,
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    headers=("anthropic-beta",),
    decode_count=decode_count,
)
