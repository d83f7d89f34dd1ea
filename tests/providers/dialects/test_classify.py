"""What of a backend's words may go on: no key, and not too many of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.classify import MAX_MESSAGE, Stated, classify
from providers.dialects.error_bodies import http_error
from providers.errors import ContextTooLong, ProviderError, Rejected
from providers.signers import conceal


def kind(status: int, body: Any) -> ProviderError:
    return http_error(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def test_words_go_before_the_status():
    assert type(classify(400, Stated("no such tool"))) is Rejected
    assert type(classify(400, Stated("the prompt is too long"))) is ContextTooLong
    assert classify(400, Stated()).message


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
@pytest.mark.parametrize(
    "secret",
    ["sk-proj-abcDEF123456", "AIzaSyA1234567890abcdefghij", "gsk_abcdef123456", "Bearer abcdefgh12345678", "api_key=hunter2hunter2"],
)
def test_g19_nothing_that_looks_like_a_key_goes_on(status, secret):
    told = kind(status, error(f"failed with {secret} at https://x/y?key=hunter2hunter2&z=1"))
    for piece in (secret.removeprefix("api_key=").removeprefix("Bearer "), "hunter2hunter2"):
        assert piece not in told.message
        assert piece not in str(told)


def test_g19_a_refused_credential_is_told_in_our_words():
    assert "gateway" in kind(401, error("Incorrect API key provided: weird:format:0123")).message
    assert "0123" not in kind(401, error("Incorrect API key provided: weird:format:0123")).message


def test_long_texts_are_bounded():
    assert len(kind(400, error("x" * 10_000)).message) == MAX_MESSAGE
    assert len(kind(500, b"x" * 10_000).message) <= MAX_MESSAGE


def named(code: str, param: str) -> ProviderError:
    return kind(400, {"error": {"message": "no", "code": code, "param": param}})


def test_codes_and_parameters_go_on():
    told = named("unsupported.value-2", "messages[0].content['x']")
    assert (told.code, told.param) == ("unsupported.value-2", "messages[0].content['x']")
    assert kind(404, {"error": {"message": "no", "code": "model_decommissioned"}}).code == "model_decommissioned"


@pytest.mark.parametrize("text", ["a\0b", "x" * 5000, "two words", "sk-verysecret0123456789", "\n"])
def test_what_is_no_code_or_parameter_does_not_go_on(text):
    """A code becomes a metric's label and a column of the ledger."""
    told = named(text, text)
    assert (told.code, told.param) == ("invalid_request_error", None)
    assert kind(404, {"error": {"message": "no", "code": text}}).code == "model_not_found"


def test_g19_a_credential_of_any_form_does_not_go_on():
    secret = "0f3c9a77d2e14b6688aa"
    conceal(secret)
    told = kind(400, {"error": {"message": f"what is {secret}?", "code": secret, "param": secret}})
    assert secret not in f"{told.message} {told.code} {told.param}"
