"""What an error's body says, wherever a server of any language puts it: an `error` object or text, or members at top level.

One reader for all dialects: servers of one make speak in another's shapes, and each name means the same wherever it stands. What the
facts amount to is decided in classify.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.base import UNREADABLE
from providers.dialects.classify import MAX_MESSAGE, Stated, classify
from providers.dialects.rawjson import encode_json
from providers.errors import BadAnswer, ProviderError
from providers.limit_headers import told
from providers.retry_after import retry_after_s

# the status that a type stands for, where an error comes inside a 200
STATUS = {"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404}
STATUS |= {"request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529}
_WORDS = (("rate_limit", 429), ("overloaded", 503), ("invalid_request", 400))


def http_error(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The kind of an HTTP error. `headers` look names up in lower case. Never raises; `answered` is True: the attempt cost nothing."""
    if status < 400:
        return BadAnswer(f"the backend answered with status {status}, which is not followed")
    try:
        said = read_body(msgspec.json.decode(body))
    except UNREADABLE:
        said = Stated(message="" if body.lstrip()[:1] == b"<" else body[:MAX_MESSAGE].decode("utf-8", "replace"))
    error = classify(status, said)
    error.answered = True
    error.limits = told((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers.items())
    if error.retryable:
        reset_s = None if error.limits is None else error.limits.reset_s
        error.retry_after_s = retry_after_s(status, headers, said.message, said.retry_s, reset_s)
    return error


def stated_error(body: Any) -> ProviderError:
    """An error inside a 200: classified by the status it names, else by its type or words, else the backend's own failure."""
    said = read_body(body)
    status = said.status or STATUS.get(said.type)
    if status is None:
        kind = f"{said.type} {said.code}".lower()
        status = next((status for word, status in _WORDS if word in kind), 500)
    return classify(status, said)


def read_body(body: Any) -> Stated:
    """The facts of a decoded body of any shape."""
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


def error_body(status: int, message: str, kind: str, code: str | None, param: str | None) -> bytes:
    """A whole error answer in the shape that all languages of OpenAI share; the status stands in the HTTP status alone."""
    return encode_json({"error": {"message": message, "type": kind, "param": param, "code": code}})


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
