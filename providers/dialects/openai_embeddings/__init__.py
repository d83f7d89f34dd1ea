"""OpenAI Embeddings, and the servers that speak it. A language of its own: vectors of texts, whole answers only."""

from __future__ import annotations

from providers.dialects import error_bodies
from providers.dialects.base import Dialect
from providers.dialects.openai_chat import errors
from providers.dialects.openai_embeddings import answers, requests
from providers.dialects.prompts import as_messages
from providers.types import Parameters

DIALECT = Dialect(
    name=requests.NAME,
    decode_request=requests.decode_request,
    read_messages=lambda request: as_messages(request.inputs),
    read_tools=lambda _request: (),
    read_parameters=lambda _request: Parameters(),
    encode_request=requests.encode_request,
    stream_decoder=answers.StreamDecoder,
    decode_answer=answers.decode_answer,
    encode_answer=answers.encode_answer,
    stream_encoder=answers.StreamEncoder,
    http_error=error_bodies.http_error,
    error_body=error_bodies.error_body,
    stream_error=errors.stream_error,
)
