"""Errors of the messages language: kinds of what servers say, and the shape and type of what a client gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.anthropic_messages.errors import error_body, http_error, stated_error, stream_error
from providers.errors import (
    BadAnswer,
    ContextTooLong,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    TimedOut,
    Unauthorized,
    Unavailable,
    Unsupported,
)


def said(kind: str, message: str = "no") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, said("invalid_request_error", "messages.0: bad"), Rejected),
        (400, said("invalid_request_error", "prompt is too long: 3333404 tokens > 200000 maximum"), ContextTooLong),
        (400, said("invalid_request_error", "Your credit balance is too low to access the API."), QuotaExhausted),
        (401, said("authentication_error", "invalid x-api-key"), Unauthorized),
        (402, said("billing_error"), QuotaExhausted),
        (403, said("permission_error"), Unauthorized),
        (404, said("not_found_error", "model: claude-none"), Unsupported),
        (413, said("request_too_large", "Request exceeds the maximum size"), Unsupported),
        (429, said("rate_limit_error"), RateLimited),
        (500, said("api_error"), ServerFailed),
        (504, said("timeout_error"), ServerFailed),
        (529, said("overloaded_error"), Unavailable),
        (408, b"", TimedOut),
        (502, b"<html>", ServerFailed),
        (400, b'{"error": "text alone"}', Rejected),
        (400, b'{"detail": "other makers"}', Rejected),
        (400, b"[]", Rejected),
        (302, b"", BadAnswer),
    ],
)
def test_kinds(status: int, body: bytes, kind: type[ProviderError]):
    assert type(http_error(status, {}, body)) is kind


def test_how_long_to_wait():
    assert http_error(429, {"retry-after": "7"}, said("rate_limit_error")).retry_after_s == 7
    assert http_error(400, {"retry-after": "7"}, said("invalid_request_error")).retry_after_s is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Unavailable),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, RateLimited),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}, Rejected),
        ({"type": "error", "error": {"type": "news", "message": "x"}}, ServerFailed),
        (None, ServerFailed),
    ],
)
def test_errors_inside_a_200(body: Any, kind: type[ProviderError]):
    assert type(stated_error(body)) is kind


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (402, "insufficient_quota", "billing_error"),
        (429, "insufficient_quota", "billing_error"),
        (403, "permission_error", "permission_error"),
        (404, "invalid_request_error", "not_found_error"),
        (405, "invalid_request_error", "invalid_request_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (502, "upstream_error", "api_error"),
        (503, "service_unavailable", "overloaded_error"),
        (504, "timeout_error", "timeout_error"),
    ],
)
def test_what_a_client_is_told(status: int, kind: str, told: str):
    body = json.loads(error_body(status, "why", kind, None, None))
    assert body == {"type": "error", "error": {"type": told, "message": "why"}}
    detailed = json.loads(error_body(status, "why", kind, "a_code", "a.param"))
    assert detailed["error"]["details"] == {"error_code": "a_code", "param": "a.param"}


@pytest.mark.parametrize(
    ("kind", "told"),
    [("upstream_error", "api_error"), ("service_unavailable", "overloaded_error"), ("rate_limit_error", "rate_limit_error")],
)
def test_the_event_that_ends_a_broken_stream(kind: str, told: str):
    event = stream_error("gone", kind, None, None)
    assert event.startswith(b"event: error\ndata: ") and event.endswith(b"\n\n")
    assert json.loads(event.split(b"data: ")[1]) == {"type": "error", "error": {"type": told, "message": "gone"}}
