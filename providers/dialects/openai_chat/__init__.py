"""OpenAI Chat Completions, and the many servers that speak it."""

from __future__ import annotations

from providers.dialects import error_bodies
from providers.dialects.base import Dialect
from providers.dialects.openai_chat import answers, content, encode, errors, parameters, requests
from providers.dialects.rawjson import NULL

DIALECT = Dialect(
    name=requests.NAME,
    decode_request=requests.decode_request,
    read_messages=lambda request: content.decode_messages(request.fields["messages"]),
    read_tools=lambda request: content.decode_tools(request.fields.get("tools", NULL)),
    read_parameters=parameters.decode_parameters,
    encode_request=requests.encode_request,
    stream_decoder=answers.StreamDecoder,
    decode_answer=answers.decode_answer,
    encode_answer=encode.encode_answer,
    stream_encoder=encode.StreamEncoder,
    http_error=error_bodies.http_error,
    error_body=error_bodies.error_body,
    stream_error=errors.stream_error,
)
