"""Usage of the responses language becomes disjoint classes and comes back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_responses.wire import NESTING, usage_to_wire
from providers.dialects.usage import disjoint
from providers.types import Usage


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"input_tokens": 37, "output_tokens": 27, "total_tokens": 64}, Usage(input=37, output=27)),
        (
            {
                "input_tokens": 4020,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4012},
                "output_tokens": 5,
                "total_tokens": 4025,
            },
            Usage(input=8, cache_write_5m=4012, output=5),
        ),
        (
            {
                "input_tokens": 1493,
                "input_tokens_details": {"cached_tokens": 1280},
                "output_tokens": 125,
                "output_tokens_details": {"reasoning_tokens": 64},
                "total_tokens": 1618,
            },
            Usage(input=213, cache_read=1280, output=61, reasoning=64),
        ),
        (
            {"input_tokens": 21, "output_tokens": 6, "cost": Decimal("0.0000285"), "input_tokens_details": None},
            Usage(input=21, output=6, stated_nanousd=28500),
        ),
        ({}, None),
        ({"input_tokens": -1, "output_tokens": 1}, None),
        ({"input_tokens": 1.5, "output_tokens": 1}, None),
    ],
)
def test_usage_as_servers_state_it(wire: dict[str, Any], expected: Usage | None) -> None:
    assert disjoint(wire, NESTING) == expected


def test_what_a_client_reads_is_always_there() -> None:
    assert usage_to_wire(Usage(input=1, output=2)) == {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3,
    }


counts = st.integers(0, 1000)
usages = st.builds(
    Usage,
    **dict.fromkeys(
        ("input", "cache_read", "cache_write_5m", "cache_write_1h", "input_audio", "output", "reasoning", "output_audio"), counts
    ),
)


@given(usages)
def test_usage_survives_the_wire(usage: Usage) -> None:
    assert disjoint(usage_to_wire(usage), NESTING) == usage
