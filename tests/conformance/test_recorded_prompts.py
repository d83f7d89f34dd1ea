"""Recorded embeddings and old completions: answers say what the recording says, requests come out as they went in, errors by kind.

What is expected is read off the recording's JSON here, not by the code under test.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, Dialect
from providers.types import Event, Finished, Frame, Metered, Target, TextDelta
from tests.conformance.recordings import FOLDER, Record, needed

pytestmark = needed
LANGUAGES = {"embeddings": "openai_embeddings", "completions": "openai_completions"}
NOT_FLOAT32 = ("perplexity",)  # base64 of single bytes: a language of its own, which its row does not claim
ANOTHERS_OWN = ("voyage",)  # its `null` members and `input_type` are no OpenAI's, though the rest is the same


@cache
def records() -> list[Record]:
    lines = [line for path in sorted(Path(FOLDER).glob("*.jsonl")) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [record for record in map(json.loads, lines) if record["api"] in LANGUAGES]


def dialect(record: Record) -> Dialect:
    return DIALECTS[LANGUAGES[record["api"]]]


def good(api: str) -> list[Record]:
    found = [record for record in records() if record["api"] == api and record["response"]["status"] == 200]
    assert found
    return found


def frames(record: Record) -> list[Frame]:
    """The answer, and a stream byte by byte."""
    response, spoken = record["response"], dialect(record)
    if response["kind"] == "json":
        return [spoken.decode_answer(json.dumps(response["json"]).encode())]
    decoder, raw = spoken.stream_decoder(), response["sse"].encode()
    found = [decoder.feed(raw[place : place + 1]) for place in range(len(raw))]
    return found if decoder.done else [*found, decoder.close()]


def events(record: Record) -> list[Event]:
    return [event for frame in frames(record) for event in frame.events]


def numbers(vector: Any) -> list[float]:
    if isinstance(vector, list):
        return vector
    packed = b64decode(vector)
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def test_recorded_embeddings() -> None:
    asked = DIALECTS["openai_embeddings"].decode_request(b'{"model":"m","input":"x"}')
    for record in good("embeddings"):
        if record["provider"] in NOT_FLOAT32:
            continue
        answer = record["response"]["json"]
        told = json.loads(DIALECTS["openai_embeddings"].encode_answer(frames(record), asked))
        by_index = {item.get("index", place): item["embedding"] for place, item in enumerate(answer["data"])}
        assert [item["index"] for item in told["data"]] == sorted(by_index), record["id"]
        for item in told["data"]:
            assert item["embedding"] == pytest.approx(numbers(by_index[item["index"]]), rel=1e-6), record["id"]
        usage = answer.get("usage") or {}
        stated = usage.get("prompt_tokens", usage.get("total_tokens"))
        metered = [event.usage.prompt_tokens for event in events(record) if isinstance(event, Metered)]
        assert metered == ([] if stated is None else [stated]), record["id"]


def test_recorded_completions() -> None:
    for record in good("completions"):
        response = record["response"]
        chunks = [response["json"]] if response["kind"] == "json" else []
        for line in response.get("sse", "").splitlines():
            if line.startswith("data: {"):
                chunks.append(json.loads(line[6:]))
        texts: dict[int, str] = {}
        ends: dict[int, str] = {}
        for chunk in chunks:
            for place, choice in enumerate(chunk["choices"]):
                index = choice.get("index", place)
                texts[index] = texts.get(index, "") + choice["text"]
                if choice.get("finish_reason"):
                    ends.setdefault(index, choice["finish_reason"])
        found: dict[int, str] = {}
        for event in events(record):
            if isinstance(event, TextDelta):
                found[event.choice] = found.get(event.choice, "") + event.text
        assert found == texts, record["id"]
        finished = {event.choice: event.reason for event in events(record) if isinstance(event, Finished)}
        assert set(finished) == set(texts) and finished | {k: {"eos": "stop"}.get(v, v) for k, v in ends.items()} == finished, record["id"]
        stated = next((chunk["usage"] for chunk in chunks if chunk.get("usage")), None)
        usages = [event.usage for event in events(record) if isinstance(event, Metered)]
        if stated is not None:
            assert (usages[-1].prompt_tokens, usages[-1].completion_tokens) == (stated["prompt_tokens"], stated["completion_tokens"])


def test_recorded_requests_come_out_as_they_went_in() -> None:
    seen = 0
    for record in records():
        sent = record["request"].get("json")
        if not isinstance(sent, dict) or record["request"].get("trimmed") or record["provider"] in ANOTHERS_OWN:
            continue
        sent = {"model": "m", **sent}
        request = dialect(record).decode_request(json.dumps(sent).encode())
        body = json.loads(dialect(record).encode_request(request, Target(backend="b", model=sent["model"]), PLAIN))
        expected = dict(sent)
        if record["api"] == "embeddings":
            expected["input"] = sent["input"] if isinstance(sent["input"], list) else [sent["input"]]
        else:
            expected["max_tokens"] = sent.get("max_tokens") or 16
            if sent.get("stream"):
                expected["stream_options"] = {"include_usage": True}
        assert body == expected, record["id"]
        seen += 1
    assert seen >= 20


def test_recorded_errors_come_out_by_kind() -> None:
    for record in records():
        response = record["response"]
        if response["status"] == 200:
            continue
        error = dialect(record).http_error(response["status"], response["headers"], json.dumps(response.get("json")).encode())
        assert error.answered
        wanted = {401: "upstream_unauthorized"}.get(response["status"])
        assert wanted in (None, error.code), record["id"]
        assert error.retryable is False, record["id"]
