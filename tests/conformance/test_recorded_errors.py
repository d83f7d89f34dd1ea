"""Recorded errors come out by kind, retryable or not, with the status and the wait a client should see.

What is expected is read off the recording's status and words by the rules of the vendors' documents, here and not by the code under test.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from typing import Any

import pytest

from providers.errors import ContextTooLong, ProviderError, QuotaExhausted, RateLimited, Rejected, Unauthorized, Unsupported
from providers.types import Failed
from tests.conformance.recordings import BROKEN, CHUNKINGS, LANGUAGES, Record, body, dialect, language, needed, play, records, streamed

pytestmark = needed
TOO_LONG = ("context size", "context length", "context_length", "too long", "too_many_prompt_tokens", "max context", "exceeds the context")
WRONG_KEY = ("api key", "api_key", "authentication", "unauthorized", "credential")
MOST_WRONG = 0.03


def words(record: Record) -> str:
    return body(record).lower()


def expected(record: Record) -> type[ProviderError]:
    """Who is at fault, by status and words."""
    status, text = record["response"]["status"], words(record)
    if status in (401, 403) or (status == 400 and any(word in text for word in WRONG_KEY)):
        return Unauthorized
    if any(word in text for word in TOO_LONG):
        return ContextTooLong
    if status == 402:
        return QuotaExhausted
    if status == 429:
        return RateLimited
    if status in (404, 500, 501):  # each recorded 500 is a request that its server cannot carry
        return Unsupported
    return Rejected


def classified(record: Record) -> ProviderError:
    response = record["response"]
    return dialect(record).http_error(response["status"], response["headers"], body(record).encode())


def test_recorded_errors_come_out_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, str] = {}
    for record in records():
        status = record["response"]["status"]
        if status == 200:
            continue
        error, kind = classified(record), expected(record)
        table[record["provider"]][type(error).__name__] += 1
        assert error.answered, record["id"]
        same = isinstance(error, kind) or (kind is Rejected and isinstance(error, Unsupported) and error.status == status)
        if not same or error.retryable != (kind is RateLimited):
            wrong[record["id"]] = f"{status} {words(record)[:160]} is {type(error).__name__}, not {kind.__name__}"
        if kind is Unauthorized:
            assert error.status == 502, record["id"]  # it is not the client's key that was refused
        elif kind is not Unsupported or status == 404:
            assert error.status == status, record["id"]
        if status == 429:
            told = record["response"]["headers"].get("retry-after")
            assert error.retry_after_s == (None if told is None else float(told)), record["id"]
    with capsys.disabled():
        sys.stdout.write("\nRecorded errors\n" + "".join(f"{vendor:18}{dict(kinds)}\n" for vendor, kinds in sorted(table.items())))
    assert wrong == {}


def test_recorded_errors_inside_a_good_status_are_errors_however_they_are_cut() -> None:
    seen = 0
    for record in records():
        if record["response"]["status"] != 200 or not BROKEN & set(record["tags"]):
            continue
        seen += 1
        for chunking in CHUNKINGS if streamed(record) else ("whole",):
            try:
                events = [event for frame in play(record, chunking) for event in frame.events]
            except ProviderError as raised:
                assert raised.message and raised.status >= 400
            else:
                last = events[-1]
                assert isinstance(last, Failed) and last.error.message, record["id"]
    assert seen


@pytest.mark.parametrize("surface", LANGUAGES)
def test_recorded_errors_are_told_in_the_surfaces_own_shape(surface: str) -> None:
    for record in records():
        if record["response"]["status"] == 200:
            continue
        error = classified(record)
        told: Any = json.loads(LANGUAGES[surface].error_body(error.status, error.message, "invalid_request_error", error.code, error.param))
        assert told["error"]["message"] == error.message
        if surface == "messages":
            assert told["type"] == "error" and told["error"]["type"].endswith(("_error", "too_large"))
            if language(record) == "messages" and error.status < 500:
                assert told["error"]["type"] == record["response"]["json"]["error"]["type"], record["id"]
        else:
            assert set(told["error"]) == {"message", "type", "param", "code"}
