"""OpenAI Responses without stored state, and the servers that speak it."""

from __future__ import annotations

from providers.dialects import error_bodies
from providers.dialects.base import Dialect
from providers.dialects.openai_responses import answers, content, encode, errors, parameters, requests

DIALECT = Dialect(
    name=content.NAME,
    decode_request=requests.decode_request,
    read_messages=content.read_messages,
    read_tools=content.read_tools,
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
