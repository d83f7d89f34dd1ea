"""Errors go to clients of the responses language in OpenAI's shape, and inside a stream so that its official client raises."""

from __future__ import annotations

import json

from providers.dialects.error_bodies import error_body
from providers.dialects.openai_responses.errors import stream_error


def test_a_whole_error() -> None:
    assert json.loads(error_body(429, "slow", "rate_limit_error", "budget_exceeded", None)) == {
        "error": {"message": "slow", "type": "rate_limit_error", "param": None, "code": "budget_exceeded"}
    }


def test_an_error_inside_a_stream_has_the_documented_members_and_the_object() -> None:
    raw = stream_error("cut", "upstream_error", "upstream_cut", "p")
    assert raw.startswith(b"event: error\ndata: ") and raw.endswith(b"\n\n")
    error = {"message": "cut", "type": "upstream_error", "param": "p", "code": "upstream_cut"}
    assert json.loads(raw.partition(b"data: ")[2]) == {**error, "type": "error", "error": error}
