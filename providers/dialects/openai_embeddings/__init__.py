"""OpenAI Embeddings, and the servers that speak it. A language of its own: vectors of texts, whole answers only."""

from __future__ import annotations

from providers.dialects.base import Dialect
from providers.dialects.openai_chat import errors
from providers.dialects.openai_embeddings import answers
from providers.dialects.openai_embeddings.requests import NAME, decode_request, encode_request, messages, parameters, tools

DIALECT = Dialect(
    name=NAME,
    decode_request=decode_request,
    messages=messages,
    tools=tools,
    parameters=parameters,
    encode_request=encode_request,
    stream_decoder=answers.StreamDecoder,
    decode_answer=answers.decode_answer,
    encode_answer=answers.encode_answer,
    stream_encoder=answers.StreamEncoder,
    http_error=errors.http_error,
    error_body=errors.error_body,
    stream_error=errors.stream_error,
)
