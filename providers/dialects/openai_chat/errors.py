"""The shape in which a client of this language gets the error of a stream. Whole ones are those of all languages of OpenAI."""

from __future__ import annotations

from providers.dialects.error_bodies import error_body


def stream_error(message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """The event that ends a stream that broke. No choice and no finish_reason: nothing is invented."""
    return b"data: " + error_body(500, message, kind, code, param) + b"\n\n"
