"""Anthropic Messages, and the servers that speak it."""

from __future__ import annotations

from providers.dialects import error_bodies
from providers.dialects.anthropic_messages import answers, content, encode, errors, parameters, requests
from providers.dialects.base import Dialect
from providers.dialects.rawjson import NULL

DIALECT = Dialect(
    name=requests.NAME,
    decode_request=requests.decode_request,
    read_messages=lambda request: content.decode_messages(request.fields["messages"], request.fields.get("system", NULL)),
    read_tools=lambda request: content.decode_tools(request.fields.get("tools", NULL)),
    read_parameters=parameters.decode_parameters,
    encode_request=requests.encode_request,
    stream_decoder=answers.StreamDecoder,
    decode_answer=answers.decode_answer,
    encode_answer=encode.encode_answer,
    stream_encoder=encode.StreamEncoder,
    http_error=error_bodies.http_error,
    error_body=errors.error_body,
    stream_error=errors.stream_error,
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    headers=("anthropic-beta",),
    decode_count=requests.decode_count,
)
