"""Completions to a client: own bytes untouched, foreign answers as continuations, whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any

from providers.dialects.openai_completions.answers import StreamDecoder, decode_answer
from providers.dialects.openai_completions.encode import StreamEncoder, encode_answer, legacy_logprobs
from providers.dialects.openai_completions.requests import decode_request
from providers.types import Event, Finished, Frame, Metered, ReasoningDelta, Request, Started, TextDelta, Usage

LOGPROBS = json.dumps({"content": [{"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Hi", "logprob": -0.5}]}]})
EVENTS: list[Event] = [
    Started("chatcmpl-1", "gpt", 5),
    ReasoningDelta("let me see"),
    TextDelta("Hi", logprobs=LOGPROBS),
    TextDelta("Ho", 1),
    TextDelta(" there"),
    Finished("stop"),
    Finished("length", 1),
    Metered(Usage(input=2, output=3)),
]


def asked(**members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "prompt": "Say: ", **members}).encode())


def streamed(request: Request) -> list[dict[str, Any]]:
    encoder = StreamEncoder(request, "id")
    raw = b"".join(encoder.encode(Frame(events=[event])) for event in EVENTS) + encoder.end("0.1")
    assert raw.endswith(b": tollway-cost-usd 0.1\n\ndata: [DONE]\n\n")
    return [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]


def test_a_foreign_answer_whole() -> None:
    told = json.loads(encode_answer([Frame(events=EVENTS)], asked(echo=True)))
    legacy = {"tokens": ["Hi"], "token_logprobs": [-0.5], "top_logprobs": [{"Hi": -0.5}], "text_offset": [5]}
    assert told["object"] == "text_completion" and told["id"] == "chatcmpl-1" and told["created"] == 5
    assert told["choices"] == [
        {"text": "Say: Hi there", "index": 0, "logprobs": legacy, "finish_reason": "stop"},
        {"text": "Say: Ho", "index": 1, "logprobs": None, "finish_reason": "length"},
    ]
    assert told["usage"]["total_tokens"] == 5


def test_a_stream_says_the_same() -> None:
    request = asked(echo=True, stream=True, stream_options={"include_usage": True})
    whole = json.loads(encode_answer([Frame(events=EVENTS)], request))
    chunks = streamed(request)
    for choice in whole["choices"]:
        pieces = [one for event in chunks for one in event["choices"] if one["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == [choice["finish_reason"]]
        assert next((piece["logprobs"] for piece in pieces if piece["logprobs"]), None) == choice["logprobs"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
    assert all("usage" not in event for event in streamed(asked(stream=True)))


def test_own_bytes_go_through() -> None:
    body = b'{"id": "cmpl-1",  "choices": [{"text":"x","index":0,"finish_reason":"stop"}], "odd": {"a":1}}'
    assert encode_answer([decode_answer(body)], asked()) == body
    event = b'data: {"choices":[{"text":"x","index":0,"finish_reason":"stop"}],  "odd":1}\n\n'
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    frame = StreamDecoder().feed(event + usage)
    assert StreamEncoder(asked(stream=True), "id").encode(frame) == event
    assert StreamEncoder(asked(stream=True, stream_options={"include_usage": True}), "id").encode(frame) == event + usage


def test_a_stream_that_is_cut_is_ended_without_the_prompt_again() -> None:
    encoder = StreamEncoder(asked(stream=True, echo=True, stream_options={"include_usage": True}), "id")
    event = b'data: {"id":"cmpl-1","choices":[{"text":"Once upon","index":0,"finish_reason":null}]}\n\n'
    sent = encoder.encode(StreamDecoder().feed(event))
    sent += encoder.encode(Frame(events=[Metered(Usage(input=2, output=9)), Finished("length")])) + encoder.end("0.1")
    assert sent.startswith(event) and sent.endswith(b": tollway-cost-usd 0.1\n\ndata: [DONE]\n\n")
    first, end, usage = [json.loads(block[6:]) for block in sent.split(b"\n\n") if block.startswith(b"data: {")]
    assert (first["choices"][0]["text"], end["choices"][0]["text"], end["choices"][0]["finish_reason"]) == ("Once upon", "", "length")
    assert usage["usage"]["completion_tokens"] == 9


def test_logprobs_of_either_kind() -> None:
    own = {"tokens": ["a"], "token_logprobs": [-1]}
    assert legacy_logprobs(own, 0) == own
    assert legacy_logprobs(None, 0) is None and legacy_logprobs({"content": None}, 0) is None
