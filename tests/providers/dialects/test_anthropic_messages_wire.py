"""Usage of the messages language: disjoint on the wire and with us, merged by the last value, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog import Price
from gateway.money.pricing import cost
from providers.dialects.anthropic_messages.wire import NESTING, REASONS, STOPS, usage_to_wire
from providers.dialects.openai_chat.wire import usage_to_wire as chat_usage
from providers.dialects.usage import disjoint, merge
from providers.types import Usage

USD = 10**9  # nano


def usage_from_wire(wire: dict[str, Any]) -> Usage | None:
    return disjoint(wire, NESTING)


CLAUDE = Price(
    id="m-claude",
    input=3 * USD,
    output=15 * USD,
    cache_read=USD * 3 // 10,
    cache_write_5m=USD * 375 // 100,
    cache_write_1h=6 * USD,
)


def test_g04_cache_writes_are_billed_once_and_by_their_time():
    usage = usage_from_wire({"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0, "output_tokens": 550})
    assert usage == Usage(input=3, cache_write_5m=12304, output=550)
    assert Decimal(cost(CLAUDE, usage)) / 10**9 == Decimal("0.054399")
    chat = chat_usage(usage)
    assert (chat["prompt_tokens"], chat["completion_tokens"], chat["total_tokens"]) == (12307, 550, 12857)
    assert chat["prompt_tokens_details"]["cached_tokens"] == 0
    split = {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 4000}
    usage = usage_from_wire({"input_tokens": 0, "cache_creation_input_tokens": 5000, "cache_creation": split, "output_tokens": 0})
    assert usage == Usage(cache_write_5m=1000, cache_write_1h=4000)
    assert Decimal(cost(CLAUDE, usage)) / 10**9 == Decimal("0.02775")


def test_g24_the_last_value_of_each_count_counts():
    merged = merge({"input_tokens": 25, "output_tokens": 1}, {"output_tokens": 15, "input_tokens": None})
    usage = usage_from_wire(merged)
    assert usage == Usage(input=25, output=15)
    assert cost(CLAUDE, usage) == 300_000


def test_thinking_stands_inside_the_output():
    usage = usage_from_wire({"input_tokens": 1, "output_tokens": 10, "output_tokens_details": {"thinking_tokens": 7}})
    assert usage == Usage(input=1, output=3, reasoning=7)


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"output_tokens": -1},
        {"input_tokens": 2**40},
        {"input_tokens": "5"},
        {"output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": -2}},
    ],
)
def test_counts_that_cannot_be_are_none_at_all(wire: dict[str, Any]):
    assert usage_from_wire(wire) is None


def test_every_reason_has_a_way_back():
    assert set(STOPS.values()) <= set(REASONS)
    assert {STOPS[reason] for reason in REASONS.values() if reason in STOPS} == set(STOPS.values())


counts = st.integers(0, 10**6)


@given(st.builds(Usage, input=counts, cache_read=counts, cache_write_5m=counts, cache_write_1h=counts, output=counts, reasoning=counts))
def test_usage_survives_the_wire(usage):
    assert usage_from_wire(usage_to_wire(usage)) == usage
