"""Usage of the chat language to disjoint classes and back, with every nesting that servers use."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_chat.wire import NESTING, decode_chunk, usage_to_wire
from providers.dialects.usage import disjoint
from providers.types import Usage


def usage_from_wire(wire: Any, cost: Any = None) -> Usage | None:
    return disjoint(wire, NESTING, cost)


def counts(prompt: int, completion: int, **others: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **others}


def test_cached_and_reasoning_tokens_stand_inside():
    found = usage_from_wire(
        counts(100, 50, prompt_tokens_details={"cached_tokens": 80}, completion_tokens_details={"reasoning_tokens": 30})
    )
    assert found == Usage(input=20, cache_read=80, output=20, reasoning=30)


def test_g04_cache_writes_are_a_part_of_the_prompt():
    found = usage_from_wire(counts(12307, 550, prompt_tokens_details={"cached_tokens": 0, "cache_write_tokens": 12304}))
    assert found == Usage(input=3, cache_write_5m=12304, output=550)
    split = counts(
        5003, 1, cache_creation_input_tokens=5000, cache_creation={"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 4000}
    )
    assert usage_from_wire(split) == Usage(input=3, cache_write_5m=1000, cache_write_1h=4000, output=1)


def test_g23_thinking_that_only_the_total_shows_is_output():
    found = usage_from_wire({"prompt_tokens": 1000, "completion_tokens": 150, "total_tokens": 9150})
    assert found == Usage(input=1000, output=150, reasoning=8000)
    stated = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 35, "completion_tokens_details": {"reasoning_tokens": 20}}
    assert usage_from_wire(stated) == Usage(input=10, output=5, reasoning=20)


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens"])
def test_other_names_of_cached_tokens(name):
    assert usage_from_wire(counts(10, 1, **{name: 4})) == Usage(input=6, cache_read=4, output=1)


def test_cached_tokens_beside_the_prompt():
    assert usage_from_wire(counts(29, 6, prompt_tokens_details={"cached_tokens": 157})) == Usage(input=29, cache_read=157, output=6)
    outside = {"prompt_tokens": 200, "completion_tokens": 6, "total_tokens": 306, "prompt_tokens_details": {"cached_tokens": 100}}
    assert usage_from_wire(outside) == Usage(input=200, cache_read=100, output=6)


def test_more_reasoning_than_completion_is_all_reasoning():
    assert usage_from_wire(counts(1, 10, completion_tokens_details={"reasoning_tokens": 11})) == Usage(input=1, output=0, reasoning=10)


def test_audio_classes():
    found = usage_from_wire(counts(30, 20, prompt_tokens_details={"audio_tokens": 10}, completion_tokens_details={"audio_tokens": 15}))
    assert found == Usage(input=20, input_audio=10, output=5, output_audio=15)
    spoken = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 390, "prompt_audio_seconds": 5}
    assert usage_from_wire(spoken) == Usage(input=10, input_audio=375, output=5)


def test_image_classes():
    """Recorded: a prompt of 504 tokens, 256 of images and 370 read from the cache: the two overlap, no token counts twice."""
    found = usage_from_wire(counts(504, 91, prompt_tokens_details={"cached_tokens": 370, "image_tokens": 256}))
    assert found == Usage(cache_read=370, input_image=134, output=91)
    drawn = usage_from_wire(counts(30, 1300, completion_tokens_details={"image_tokens": 1290}, prompt_tokens_details={"image_tokens": 10}))
    assert drawn == Usage(input=20, input_image=10, output=10, output_image=1290)
    assert usage_from_wire(counts(5, 5, completion_tokens_details={"image_tokens": -1})) is None


def test_null_is_unknown_and_zero_is_zero():
    assert usage_from_wire({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}) == Usage(input=5)
    assert usage_from_wire({"prompt_tokens": 0, "completion_tokens": 0}) == Usage()
    assert usage_from_wire({"prompt_tokens": None}) is None
    assert usage_from_wire({}) is None


@pytest.mark.parametrize("bad", [-1, 10**10, "7", True, 1.5, [1]])
def test_counts_that_cannot_be_are_refused(bad):
    assert usage_from_wire({"prompt_tokens": bad, "completion_tokens": 1}) is None
    assert usage_from_wire(counts(10, 1, prompt_tokens_details={"cached_tokens": bad})) is None


def test_whole_numbers_written_as_decimals_count():
    assert usage_from_wire({"prompt_tokens": Decimal("12.0"), "completion_tokens": 1}) == Usage(input=12, output=1)


@pytest.mark.parametrize(
    ("members", "nanousd"),
    [
        ('"cost":0.000123456', 123456),
        ('"cost":1', 10**9),
        ('"cost":{"total_cost":0.006}', 6_000_000),
        ('"cost_in_usd_ticks":161508500', 16_150_850),
        ('"cost":null', None),
        ('"cost":-1', None),
        ('"cost":"free"', None),
    ],
)
def test_a_stated_cost_is_exact(members, nanousd):
    chunk = decode_chunk(('{"usage":{"prompt_tokens":1,"completion_tokens":1,' + members + "}}").encode())
    found = usage_from_wire(chunk.usage)
    assert found is not None
    assert found.stated_nanousd == nanousd


@pytest.mark.parametrize("number", ["1e999999999", "1e99999999999999999999", "1e-99999999999999999999", "0.5", "-1"])
def test_a_count_that_no_integer_should_be_made_of_is_not_taken(number):
    chunk = decode_chunk(b'{"usage":{"prompt_tokens":%b,"completion_tokens":1}}' % number.encode())
    assert usage_from_wire(chunk.usage) in (None, Usage(output=1))  # at once: 10 to the 999,999,999th would take hours
    chunk = decode_chunk(b'{"usage":{"prompt_tokens":1e3,"completion_tokens":1,"cost":%b}}' % number.encode())
    assert usage_from_wire(chunk.usage) in (Usage(input=1000, output=1), Usage(input=1000, output=1, stated_nanousd=500_000_000))


def test_a_cost_beside_the_usage():
    found = usage_from_wire(counts(1, 1), {"usd": Decimal("0.5"), "diem": 1})
    assert found is not None
    assert found.stated_nanousd == 500_000_000


few = st.integers(0, 10_000)


usages = st.builds(
    Usage,
    input=few,
    cache_read=few,
    cache_write_5m=few,
    cache_write_1h=few,
    input_audio=few,
    output=few,
    reasoning=few,
    output_audio=few,
    input_image=few,
    output_image=few,
)


@given(usages)
def test_to_the_wire_and_back(usage):
    wire = msgspec.json.decode(msgspec.json.encode(usage_to_wire(usage)))
    assert wire["total_tokens"] == usage.prompt_tokens + usage.completion_tokens
    assert usage_from_wire(wire) == usage


@pytest.mark.parametrize("ticks", [10**25, -1, "5", True])
def test_a_stated_cost_that_no_ledger_could_hold_is_not_taken(ticks):
    found = usage_from_wire(counts(1, 2, cost_in_usd_ticks=ticks))
    assert found == Usage(input=1, output=2)
    assert usage_from_wire(counts(1, 2, cost_in_usd_ticks=50)) == Usage(input=1, output=2, stated_nanousd=5)
