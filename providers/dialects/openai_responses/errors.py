"""The shape in which a client of this language gets the error of a stream. Whole ones are those of all languages of OpenAI."""

from __future__ import annotations

from providers.dialects.rawjson import encode_json


def stream_error(message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """The event that ends a stream that broke: as documented, and with the `error` at which the official clients raise."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return b"event: error\ndata: " + encode_json({**error, "type": "error", "error": error}) + b"\n\n"
