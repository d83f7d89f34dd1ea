"""Errors of this language: where servers put what an error says, and the shape in which a client gets ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects import classify
from providers.dialects.classify import Stated
from providers.errors import ProviderError

_encode = msgspec.json.Encoder().encode


def read_body(body: Any) -> Stated:
    """The facts of an error body: an `error` object or text, or `detail`, `message`, `msg` at top level."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return Stated(message=body if isinstance(body, str) else "")
    error = body.get("error")
    inner = error if isinstance(error, dict) else body
    message = error if isinstance(error, str) else _first(inner, "message", "detail", "msg", "error_message")
    metadata = inner.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        message = f"{message}: {metadata['raw']}"
    code = inner.get("code")
    status = _status(inner.get("status_code"), inner.get("raw_status_code"), code, inner.get("status"))
    kind = _first(inner, "type", "error_type") or (
        _first(inner, "status") if status is None or isinstance(inner.get("status"), str) else ""
    )
    reasons = [d.get("reason") for d in _list(inner.get("details")) if isinstance(d, dict)]
    named = next((r for r in reasons if isinstance(r, str)), None) or (code if isinstance(code, str) else "")
    param = inner.get("param")
    return Stated(message, kind, named, param if isinstance(param, str) else None, status, _retry_delay(inner))


def _first(body: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:  # a list of validation faults
            return "; ".join(str(item.get("msg", item)) if isinstance(item, dict) else str(item) for item in value[:5])
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _status(*values: Any) -> int | None:
    for value in values:
        if type(value) is int and 400 <= value <= 599:
            return value
        if isinstance(value, str) and value.isdigit() and 400 <= int(value) <= 599:
            return int(value)
    return None


def _retry_delay(inner: Mapping[str, Any]) -> float | None:
    for detail in _list(inner.get("details")):
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def http_error(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The kind of an HTTP error. `headers` look names up in lower case. Never raises; `answered` is True: the attempt cost nothing."""
    return classify.http_error(read_body, status, headers, body)


def stated_error(body: Any) -> ProviderError:
    """An error inside a 200: classified by the status it names, else by its words, else the backend's own failure."""
    said = read_body(body)
    status = said.status
    if status is None:
        kind = f"{said.type} {said.code}".lower()
        status = 429 if "rate_limit" in kind else 503 if "overloaded" in kind else 400 if "invalid_request" in kind else 500
    return classify.classify(status, said)


def error_body(status: int, message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """A whole error answer to a client; the status stands in the HTTP status alone."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def stream_error(message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """The event that ends a stream that broke. No choice and no finish_reason: nothing is invented."""
    return b"data: " + error_body(500, message, kind, code, param) + b"\n\n"
