"""Errors of servers come out by kind, whatever the shape of their bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.error_bodies import http_error, stated_error
from providers.errors import (
    BadAnswer,
    ContentFiltered,
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


def kind(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = http_error(status, headers or {}, raw)
    assert error.answered
    return error


def error(message: str = "m", **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        # wrong credentials: 401, 403, and 400 where servers answer so
        (401, error("Incorrect API key provided: sk-abc"), Unauthorized),
        (401, {"detail": "Invalid API Key"}, Unauthorized),
        (403, error("Forbidden", code="forbidden"), Unauthorized),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid.",
                    "status": "INVALID_ARGUMENT",
                    "details": [{"reason": "API_KEY_INVALID"}],
                }
            },
            Unauthorized,
        ),
        (400, {"code": "invalid-argument", "error": "Incorrect API key provided: xa***"}, Unauthorized),
        # too long: seven wordings
        (400, error("This model's maximum context length is 128000 tokens.", code="context_length_exceeded"), ContextTooLong),
        (
            400,
            error("request (2009 tokens) exceeds the context size (512 tokens)", type="exceed_context_size_error"),
            ContextTooLong,
        ),
        (400, error("This endpoint's maximum context length is 200000 tokens.", code=400), ContextTooLong),
        (400, error("prompt too long; exceeded max context length by 1119046 tokens"), ContextTooLong),
        (400, error("The total length of all messages is too long.", type="too_many_prompt_tokens"), ContextTooLong),
        (400, {"message": "too many tokens: size limit exceeded", "error_type": "TOO_MANY_TOKENS"}, ContextTooLong),
        (400, error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), ContextTooLong),
        (400, error("prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"), ContextTooLong),
        (429, error("Request too large for model on tokens per min (TPM)", code="rate_limit_exceeded"), RateLimited),
        (413, error("Request too large on tokens per minute: reduce the length of your messages", code="rate_limit_exceeded"), RateLimited),
        # filters
        (400, error("The response was filtered", code="content_filter"), ContentFiltered),
        (400, error("m", code="content_policy_violation"), ContentFiltered),
        (403, error("Your chosen model requires moderation and your input was flagged", code=403), ContentFiltered),
        # rate against quota
        (429, error("Rate limit reached", code="rate_limit_exceeded"), RateLimited),
        (429, error("You exceeded your current quota, check your plan and billing details.", code="insufficient_quota"), QuotaExhausted),
        (402, error("This request requires more credits"), QuotaExhausted),
        (429, error("Provider returned error", code=429, metadata={"raw": "temporarily rate-limited upstream"}), RateLimited),
        (429, b"", RateLimited),
        # the request
        (400, error("Invalid 'messages[3]'.", code="invalid_value", param="messages[3]"), Rejected),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, Rejected),
        (400, {"object": "error", "message": "Logprobs are not enabled", "type": "invalid_request_invalid_args", "code": "3051"}, Rejected),
        (400, {"code": 400, "message": "Temperature must be between 0 and 2", "type": "Bad Request"}, Rejected),
        (400, error("Unsupported value", code="unsupported_value", param="temperature"), Unsupported),
        (404, error("The model `x` does not exist", code="model_not_found"), Unsupported),
        (404, {"error": "Specified model not found: x"}, Unsupported),
        (501, error("this feature is disabled", code=501, type="not_supported_error"), Unsupported),
        # 500 for what the server cannot carry, and true failures
        (500, error("tools param requires --jinja flag", code=500, type="server_error"), Unsupported),
        (500, error("image input is not supported - hint: you may need to provide the mmproj", code=500), Unsupported),
        (500, error("boom"), ServerFailed),
        (502, b"<html>bad gateway</html>", ServerFailed),
        (529, error("overloaded"), ServerFailed),
        (503, {"message": "loading"}, Unavailable),
        (503, b"\xff\xfe", Unavailable),
        (408, b"", TimedOut),
        (500, b"null", ServerFailed),
        (500, b"[]", ServerFailed),
        (500, {"error": None}, ServerFailed),
        (500, {"error": {"message": 7, "details": 7, "metadata": []}}, ServerFailed),
    ],
)
def test_every_shape_and_wording(status, body, expected):
    assert type(kind(status, body)) is expected


def test_redirects_are_no_answer():
    assert isinstance(http_error(302, {"location": "http://x"}, b""), BadAnswer)


def test_what_the_client_did_wrong_is_told_with_its_field():
    refused = kind(400, error("Invalid 'messages[3]'.", code="invalid_value", param="messages[3]"))
    assert (refused.message, refused.code, refused.param, refused.status) == ("Invalid 'messages[3]'.", "invalid_value", "messages[3]", 400)


def test_a_status_stays_what_it_was():
    assert [kind(status, b"").status for status in (429, 500, 502, 503, 404, 422)] == [429, 500, 502, 503, 404, 422]
    assert kind(401, b"").status == 502  # not the client's key


def test_waiting_times_are_read_where_waiting_helps():
    assert kind(429, b"", {"retry-after": "30"}).retry_after_s == 30
    assert kind(429, b"", {"retry-after": "1", "retry-after-ms": "0"}).retry_after_s == 1
    assert kind(503, b"", {"retry-after": "7"}).retry_after_s == 7
    assert kind(400, b"", {"retry-after": "30"}).retry_after_s is None
    assert kind(429, error("Please retry in 48.9s.")).retry_after_s == 48.9
    detail = {"error": {"code": 429, "message": "quota, billing", "details": [{"retryDelay": "48s"}]}}
    assert (type(kind(429, detail)), kind(429, detail).retry_after_s) == (RateLimited, 48)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (error("m", status_code=400), Rejected),
        (error("m", code=429), RateLimited),
        (error("m", type="rate_limit_exceeded"), RateLimited),
        (error("m", type="overloaded_error"), Unavailable),
        (error("m", type="invalid_request_error"), Rejected),
        (error("m", code="context_length_exceeded"), ContextTooLong),
        ({"error": "it broke"}, ServerFailed),
        (None, ServerFailed),
    ],
)
def test_errors_inside_a_good_status(body, expected):
    assert type(stated_error(body)) is expected
    assert not stated_error(body).answered  # tokens may have been spent


def test_a_body_nested_beyond_reading_leaves_the_status():
    assert type(kind(500, b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}")) is ServerFailed


# ---- as servers of the messages language write them ---------------------------------------------------------------------------------
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
def test_kinds_of_the_messages_language(status: int, body: bytes, kind: type[ProviderError]):
    assert type(http_error(status, {}, body)) is kind


def test_how_long_to_wait_for_it():
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
def test_errors_of_the_messages_language_inside_a_200(body: Any, kind: type[ProviderError]):
    assert type(stated_error(body)) is kind
