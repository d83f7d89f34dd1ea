"""Answers with vectors: any order, either form, usage wherever a vendor puts it, and errors under status 200."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_embeddings.answers import StreamDecoder, StreamEncoder, decode_answer, encode_answer
from providers.dialects.openai_embeddings.requests import decode_request
from providers.errors import BadAnswer, RateLimited
from providers.types import Finished, Frame, Metered, Started, Usage, Vector

FLOATS = decode_request(b'{"model":"route","input":"x"}')
BASE64 = decode_request(b'{"model":"route","input":"x","encoding_format":"base64"}')


def body(data: list[Any], **members: Any) -> bytes:
    return json.dumps({"object": "list", "data": data, "model": "m", **members}).encode()


def item(vector: Any, index: int | None = None) -> dict[str, Any]:
    return {"object": "embedding", "embedding": vector} | ({} if index is None else {"index": index})


def packed(*numbers: float) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def test_a_whole_answer() -> None:
    frame = decode_answer(body([item([1.0], 1), item([0.5], 0)], usage={"prompt_tokens": 7, "total_tokens": 7}))
    assert frame.events == [Started("", "m"), Vector(1, "[1.0]"), Vector(0, "[0.5]"), Metered(Usage(input=7)), Finished("stop")]
    told = json.loads(encode_answer([frame], FLOATS))
    assert told == {
        "object": "list",
        "data": [item([0.5], 0), item([1.0], 1)],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 5, "total_tokens": 6, "completion_tokens": 1}, 5),
        ({"total_tokens": 9}, 9),
        ({"prompt_tokens": None, "total_tokens": 4}, 4),
        ({"prompt_tokens": -3}, None),
        ({"prompt_tokens": "3"}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_as_vendors_state_it(usage: Any, tokens: int | None) -> None:
    found = [event.usage.input for event in decode_answer(body([item([1.0])], usage=usage)).events if isinstance(event, Metered)]
    assert found == ([] if tokens is None else [tokens])


def test_without_numbers_the_order_counts() -> None:
    events = decode_answer(body([item([1.0]), item([2.0])])).events
    assert [event.index for event in events if isinstance(event, Vector)] == [0, 1]


def test_either_form_becomes_the_one_that_was_asked_for() -> None:
    floats, base64 = decode_answer(body([item([0.5, -2.0])])), decode_answer(body([item(packed(0.5, -2.0))]))
    for frame in (floats, base64):
        assert json.loads(encode_answer([frame], FLOATS))["data"][0]["embedding"] == [0.5, -2.0]
        assert json.loads(encode_answer([frame], BASE64))["data"][0]["embedding"] == packed(0.5, -2.0)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_a_vector_survives_both_forms(numbers: list[float]) -> None:
    frame = decode_answer(body([item(numbers)]))
    told = json.loads(encode_answer([frame], BASE64))["data"][0]["embedding"]
    assert list(struct.unpack(f"<{len(numbers)}f", b64decode(told))) == numbers
    again = json.loads(encode_answer([decode_answer(body([item(told)]))], FLOATS))
    assert again["data"][0]["embedding"] == numbers


@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b'{"data":[]}', b"{}", b'{"data":[{"embedding":5}]}', b'{"data":[{"index":0}]}'])
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(BadAnswer):
        decode_answer(raw)


@pytest.mark.parametrize("vector", ["not base64!", [1, "x"], packed(1.0)[:-2], packed(1.0, 2.0)[:-4], {"a": 1}])
def test_a_vector_that_cannot_be_read(vector: Any) -> None:
    with pytest.raises(BadAnswer):
        decode_answer(body([item(vector)]))


def test_a_number_beyond_the_form_that_was_asked_for() -> None:
    frame = decode_answer(body([item([1e39])]))
    assert json.loads(encode_answer([frame], FLOATS))["data"][0]["embedding"] == [1e39]
    with pytest.raises(BadAnswer):
        encode_answer([frame], BASE64)


def test_an_error_under_status_200() -> None:
    with pytest.raises(RateLimited):
        decode_answer(b'{"error":{"message":"slow down","type":"rate_limit_error"}}')


def test_streams_are_none() -> None:
    with pytest.raises(BadAnswer):
        StreamDecoder().feed(b'data: {"data":[]}\n\n')
    encoder = StreamEncoder(FLOATS, "id")
    assert encoder.encode(Frame(events=[Vector(0, "[1.0]")])) == b""
    assert json.loads(encoder.end(None))["data"] == [item([1.0], 0)]
