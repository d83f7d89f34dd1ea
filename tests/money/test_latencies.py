"""Latencies in bins: each stands in one, comes back within the stated error, and quantiles of sums are those of the whole."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.money import latencies
from gateway.money.latencies import LAST_BIN, bin_of, quantile_ms, value_ms

ERROR = 2 ** (1 / 8) - 1


def binned(values: list[int]) -> dict[int, int]:
    bins: dict[int, int] = {}
    for value in values:
        latencies.count(bins, value)
    return bins


@given(st.integers(0, 2**24 - 1))
def test_what_stands_for_a_bin_is_near_every_latency_in_it(ms: int) -> None:
    assert abs(value_ms(bin_of(ms)) - ms) <= ERROR * ms + 0.5


def test_small_latencies_and_edges() -> None:
    assert [value_ms(bin_of(ms)) for ms in (-1, 0, 1, 2, 3, 4)] == [0, 0, 1, 2, 3, 4]
    for power in range(24):
        assert bin_of(2**power) == bin_of(2**power + 0) and bin_of(2**power) > bin_of(2**power - 1)
    assert bin_of(2**40) == LAST_BIN


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 0.01, 1.0]))
def test_a_quantile_is_the_nearest_rank_within_the_error(values: list[int], share: float) -> None:
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    told = quantile_ms(binned(values), share)
    assert told is not None and abs(told - exact) <= ERROR * exact + 0.5


@given(st.lists(st.integers(0, 2**25), max_size=60))
def test_bins_come_back_from_rows(values: list[int]) -> None:
    bins = binned(values)
    again: dict[int, int] = {}
    rows = latencies.octaves(bins)
    for octave, *counts in rows:
        latencies.add_octave(again, octave, counts)
    assert again == bins
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})


def test_sums_of_bins_have_the_quantiles_of_the_whole() -> None:
    chance = random.Random(3)
    values = [int(chance.lognormvariate(6, 1)) for _ in range(500)]
    parts: dict[int, int] = {}
    for start in range(0, 500, 50):
        for octave, *counts in latencies.octaves(binned(values[start : start + 50])):
            latencies.add_octave(parts, octave, counts)
    assert parts == binned(values)
    assert quantile_ms({}, 0.5) is None
