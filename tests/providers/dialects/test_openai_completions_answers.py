"""Completions from upstream: whole and streamed, however they are cut, with what vendors leave out."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_completions.answers import StreamDecoder, decode_answer
from providers.errors import BadAnswer, Cut, RateLimited
from providers.types import Event, Failed, Finished, Metered, Started, TextDelta, Usage


def chunk(text: str, finish: str | None = None, index: int = 0, **members: Any) -> dict[str, Any]:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m", "choices": [choice], **members}


STREAM = b"".join(
    b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
    for event in (
        chunk("Once é "),
        chunk("upon 🚲"),
        chunk("", "stop"),
        {**chunk(""), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
    )
)
EVENTS: list[Event] = [
    Started("cmpl-1", "m", 5),
    TextDelta("Once é "),
    TextDelta("upon 🚲"),
    Finished("stop"),
    Metered(Usage(input=3, output=4)),
]


def test_a_whole_answer() -> None:
    body = json.dumps(chunk("Once", "length", usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4})).encode()
    frame = decode_answer(body)
    assert frame.events == [Started("cmpl-1", "m", 5), TextDelta("Once"), Finished("length"), Metered(Usage(input=3, output=1))]
    assert (frame.wire, frame.whole) == (body, True)


def test_choices_without_place_or_reason() -> None:
    events = decode_answer(b'{"choices":[{"text":"a","log_probs":null},{"text":"b"}],"model":"palmyra"}').events
    assert events == [Started("", "palmyra"), TextDelta("a", 0), Finished("stop", 0), TextDelta("b", 1), Finished("stop", 1)]


@given(st.lists(st.integers(1, len(STREAM)), max_size=12))
def test_g40_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    decoder, found, wire, usage = StreamDecoder(), list[Event](), b"", b""
    places = [0, *sorted({place for place in cuts if place < len(STREAM)}), len(STREAM)]
    for start, end in pairwise(places):
        frame = decoder.feed(STREAM[start:end])
        found += frame.events
        wire, usage = wire + frame.wire, usage + frame.usage_wire
    assert found == EVENTS
    assert wire + usage == STREAM and b'"choices": []' in usage
    decoder.feed(b"data: [DONE]\n\n")
    assert decoder.done


def test_g08_a_stream_that_just_ends_is_cut() -> None:
    decoder = StreamDecoder()
    decoder.feed(b"data: " + json.dumps(chunk("Once")).encode() + b"\n\n")
    last = decoder.close().events[-1]
    assert isinstance(last, Failed) and isinstance(last.error, Cut)
    with pytest.raises(Cut):
        StreamDecoder().close()


def test_g30_an_error_as_first_event_is_raised_by_kind() -> None:
    for say in (StreamDecoder().feed, decode_answer):
        raw = b'{"error":{"message":"slow down","type":"rate_limit_error"}}'
        with pytest.raises(RateLimited):
            say(raw if say is decode_answer else b"data: " + raw + b"\n\n")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"choices":[]}', b"<html>"])
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(BadAnswer):
        decode_answer(raw)
