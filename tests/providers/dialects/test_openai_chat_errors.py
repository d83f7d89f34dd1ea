"""Errors to clients of the chat language: OpenAI's shape."""

from __future__ import annotations

import json

from providers.dialects.error_bodies import error_body
from providers.dialects.openai_chat.errors import stream_error


def test_our_own_errors_have_openais_shape():
    expected = {"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}
    assert json.loads(error_body(400, "m", "t", "c", "p")) == expected
    event = stream_error("m", "t", "c", "p")
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert json.loads(event[6:]) == expected
