"""Errors of this language: what its servers say, and the shape in which a client gets ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects import classify
from providers.dialects.classify import Stated
from providers.errors import ProviderError

_encode = msgspec.json.Encoder().encode

_STATUS = {"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404}
_STATUS |= {"request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529}
_TYPES = {status: kind for kind, status in _STATUS.items()} | {503: "overloaded_error"}
_KINDS = {"insufficient_quota": "billing_error", "service_unavailable": "overloaded_error"}  # the gateway's words -> this language's
_EMPTY_ACCOUNT = "credit balance"  # said with status 400


def read_body(body: Any) -> Stated:
    """The facts of an error body: `{"type": "error", "error": {"type", "message"}}`, or what servers of other makes write instead."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return Stated(message=error if isinstance(error, str) else "")
    message, kind = error.get("message") or error.get("detail"), error.get("type")
    message, kind = message if isinstance(message, str) else "", kind if isinstance(kind, str) else ""
    return Stated(message, kind, "insufficient_quota" if kind == "billing_error" or _EMPTY_ACCOUNT in message else "")


def http_error(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The kind of an HTTP error. `headers` look names up in lower case. Never raises; `answered` is True: the attempt cost nothing."""
    return classify.http_error(read_body, status, headers, body)


def stated_error(body: Any) -> ProviderError:
    """An error inside a 200, classified by its type."""
    said = read_body(body)
    return classify.classify(_STATUS.get(said.type, 500), said)


def _error(kind: str, message: str, code: str | None, param: str | None) -> bytes:
    details = {name: value for name, value in (("error_code", code), ("param", param)) if value is not None}
    error = {"type": kind, "message": message, "details": details} if details else {"type": kind, "message": message}
    return _encode({"type": "error", "error": error})


def error_body(status: int, message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """A whole error answer to a client."""
    told = _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return _error("billing_error" if kind == "insufficient_quota" else told, message, code, param)


def stream_error(message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """The event that ends a stream that broke. No stop reason: nothing is invented."""
    told = _KINDS.get(kind, kind)
    return b"event: error\ndata: " + _error(told if told in _STATUS else "api_error", message, code, param) + b"\n\n"
