"""Counts of any language: merged, checked and made disjoint by a table of where they stand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog import Price
from gateway.money.pricing import cost
from providers.dialects.usage import Meter, Nesting, disjoint, merge, to_wire
from providers.types import Metered, Usage

INSIDE = Nesting(
    prompt="in",
    completion="out",
    total="all",
    cache_read=("in_details.cached", "cached"),
    cache_write=("written",),
    cache_write_5m="split.short",
    cache_write_1h=("split.long", "split.longer"),
    input_audio="in_details.audio",
    reasoning=("thought",),
    output_audio="spoken",
)
# as Gemini counts: thinking stands beside the candidates, cached tokens inside the prompt
OUTSIDE = Nesting(
    prompt="promptTokenCount",
    completion="candidatesTokenCount",
    total="totalTokenCount",
    cache_read=("cachedContentTokenCount",),
    reasoning=("thoughtsTokenCount",),
    outside_reasoning=True,
)
BESIDE = Nesting(
    prompt="in",
    completion="out",
    cache_read=("read",),
    cache_write=("written",),
    cache_write_5m="short",
    cache_write_1h=("long",),
    reasoning=("thought",),
    outside_cache=True,
    zeros=frozenset({"in", "out"}),
)
GEM = Price(id="m-gem", input=1_250_000_000, output=10_000_000_000)


def test_g23_thinking_beside_the_completion_is_output_and_billed():
    stated = {"promptTokenCount": 1000, "candidatesTokenCount": 150, "thoughtsTokenCount": 8000, "totalTokenCount": 9150}
    usage = disjoint(stated, OUTSIDE)
    assert usage == Usage(input=1000, output=150, reasoning=8000)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens) == (1000, 8150, 9150)
    assert Decimal(cost(GEM, usage)) / 10**9 == Decimal("0.08275")
    assert to_wire(usage, OUTSIDE) == stated


def test_the_vendors_total_decides_where_a_class_stands():
    assert disjoint({"in": 10, "out": 5, "all": 35, "thought": 20}, INSIDE) == Usage(input=10, output=5, reasoning=20)
    assert disjoint({"in": 10, "out": 25, "all": 35, "thought": 20}, INSIDE) == Usage(input=10, output=5, reasoning=20)
    assert disjoint({"in": 200, "out": 6, "all": 306, "cached": 100}, INSIDE) == Usage(input=200, cache_read=100, output=6)


def test_the_first_place_that_states_a_number_counts():
    assert disjoint({"in": 9, "in_details": {"cached": None}, "cached": 4}, INSIDE) == Usage(input=5, cache_read=4)
    assert disjoint({"in": 9, "in_details": {"cached": 0}, "cached": 4}, INSIDE) == Usage(input=9)
    assert disjoint({"in": 9, "in_details": "odd"}, INSIDE) == Usage(input=9)


def test_written_tokens_by_how_long_they_last():
    assert disjoint({"in": 9, "written": 6, "split": {"long": 1, "longer": 2}}, INSIDE) == Usage(
        input=3, cache_write_5m=3, cache_write_1h=3
    )
    assert disjoint({"in": 9, "written": 6}, BESIDE) == Usage(input=9, cache_write_5m=6)


@pytest.mark.parametrize("bad", [-1, 10**10, "7", True, 1.5, [1]])
def test_counts_that_cannot_be_make_no_usage(bad: object):
    assert disjoint({"in": bad, "out": 1}, INSIDE) is None
    assert disjoint({"in": 1, "out": 1, "in_details": {"cached": bad}}, INSIDE) is None
    assert disjoint({}, INSIDE) is None


def test_merge_keeps_the_last_that_is_not_null():
    first = {"a": 1, "b": 2, "d": {"x": 1, "y": None}}
    assert merge(first, {"a": 3, "b": None, "c": 0, "d": {"y": 5}}) == {"a": 3, "b": 2, "c": 0, "d": {"x": 1, "y": 5}}


def test_a_meter_tells_running_totals_and_each_once():
    meter, events = Meter(INSIDE), []
    for told in ({"in": 5}, {"in": 5, "out": None}, None, {"out": 2}, {"out": 2}, {"in": "odd"}):
        meter.take(told, events)
    assert events == [Metered(Usage(input=5)), Metered(Usage(input=5, output=2))]
    meter.cost = {"usd": Decimal("0.5")}
    meter.take({"in": 5}, events)
    assert events[-1] == Metered(Usage(input=5, output=2, stated_nanousd=500_000_000))


few = st.integers(0, 9)
audio = st.builds(
    Usage, input=few, cache_read=few, cache_write_5m=few, cache_write_1h=few, input_audio=few, output=few, reasoning=few, output_audio=few
)
plain = st.builds(Usage, input=few, cache_read=few, output=few, reasoning=few)


@given(audio, plain)
def test_what_is_written_is_read_again(usage: Usage, simple: Usage):
    assert disjoint(to_wire(usage, INSIDE), INSIDE) in (usage, None if usage == Usage() else usage)
    assert disjoint(to_wire(simple, BESIDE), BESIDE) == simple
