"""Errors to clients of the messages language: their shape and type."""

from __future__ import annotations

import json

import pytest

from providers.dialects.anthropic_messages.errors import error_body, stream_error


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
