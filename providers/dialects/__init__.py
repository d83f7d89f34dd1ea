"""Wire languages by name. A surface and a provider take theirs from here and use it through `Dialect` alone."""

from __future__ import annotations

from collections.abc import Mapping

from providers.dialects.base import PLAIN, DecodeError, Dialect, Quirks, StreamDecoder, StreamEncoder
from providers.dialects.openai_chat import DIALECT as OPENAI_CHAT

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (OPENAI_CHAT,)}

__all__ = ["DIALECTS", "PLAIN", "DecodeError", "Dialect", "Quirks", "StreamDecoder", "StreamEncoder"]
