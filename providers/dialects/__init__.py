"""Wire languages by name. A surface and a provider take theirs from here and use it through `Dialect` alone."""

from __future__ import annotations

from collections.abc import Mapping

from providers.dialects.anthropic_messages import DIALECT as ANTHROPIC_MESSAGES
from providers.dialects.base import PLAIN, DecodeError, Dialect, Quirks, StreamDecoder, StreamEncoder
from providers.dialects.openai_chat import DIALECT as OPENAI_CHAT
from providers.dialects.openai_completions import DIALECT as OPENAI_COMPLETIONS
from providers.dialects.openai_embeddings import DIALECT as OPENAI_EMBEDDINGS
from providers.dialects.openai_responses import DIALECT as OPENAI_RESPONSES
from providers.errors import Rejected
from providers.types import Request

_ALL = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES, OPENAI_EMBEDDINGS, OPENAI_COMPLETIONS)
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _ALL}

__all__ = ["DIALECTS", "PLAIN", "DecodeError", "Dialect", "Quirks", "StreamDecoder", "StreamEncoder", "to_neutral"]


def to_neutral(request: Request) -> None:
    """Decode all of a request by its own dialect, for a backend of another language. Raises Rejected naming what is wrong."""
    dialect = DIALECTS.get(request.dialect)
    if dialect is None:
        return
    try:
        dialect.messages(request)
        dialect.tools(request)
        dialect.parameters(request)
    except DecodeError as error:
        raise Rejected(error.message, sent=False, param=error.param, code=error.code) from None
