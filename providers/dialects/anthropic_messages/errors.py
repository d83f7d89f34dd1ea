"""The shape in which a client of this language gets our errors."""

from __future__ import annotations

from providers.dialects.error_bodies import STATUS
from providers.dialects.rawjson import encode_json

_TYPES = {status: kind for kind, status in STATUS.items()} | {503: "overloaded_error"}
_KINDS = {"insufficient_quota": "billing_error", "service_unavailable": "overloaded_error"}  # the gateway's words -> this language's


def _error(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    details = {name: value for name, value in (("error_code", code), ("param", param)) if value is not None}
    error = {"type": kind, "message": message, "details": details} if details else {"type": kind, "message": message}
    return encode_json({"type": "error", "error": error})


def error_body(status: int, message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """A whole error answer to a client."""
    told = _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return _error("billing_error" if kind == "insufficient_quota" else told, message, code, param)


def stream_error(message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """The event that ends a stream that broke. No stop reason: nothing is invented."""
    told = _KINDS.get(kind, kind)
    return b"event: error\ndata: " + _error(told if told in STATUS else "api_error", message, code, param) + b"\n\n"
