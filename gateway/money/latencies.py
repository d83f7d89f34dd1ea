"""Latencies as counts per bin, so that they add up over requests, groups and time; a quantile is read off the counts. Pure.

Four bins to a doubling: what `value_ms` says of a bin is within 9.1 % of every latency in it, rounded to a millisecond.
A row of the roll-ups holds the four bins of one doubling: n0 to n3 of an octave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

PER_OCTAVE = 4
LAST_BIN = 96  # 2^24 ms, four hours and a half; holds everything above too
COUNTS = tuple(f"n{place}" for place in range(PER_OCTAVE))


def bin_of(ms: int) -> int:
    """The bin of a latency: bin b > 0 holds the integers in [2^((b-1)/4), 2^(b/4)), bin 0 what is not above 0."""
    return 0 if ms <= 0 else min(LAST_BIN, 1 + int(PER_OCTAVE * math.log2(ms)))


_BINS = tuple(bin_of(ms) for ms in range(4096))  # most latencies there are


def count(bins: dict[int, int], ms: int) -> None:
    """Count one latency."""
    number = _BINS[ms] if 0 <= ms < len(_BINS) else bin_of(ms)
    bins[number] = bins.get(number, 0) + 1


def value_ms(number: int) -> int:
    """The latency that stands for a bin: its geometric middle, as an integer that lies in it."""
    if number <= 0:
        return 0
    low, above = 2 ** ((number - 1) / PER_OCTAVE), 2 ** (number / PER_OCTAVE)
    return min(max(round(math.sqrt(low * above)), math.ceil(low)), math.ceil(above) - 1)


def octaves(bins: Mapping[int, int]) -> list[tuple[int, int, int, int, int]]:
    """Rows (octave, n0, n1, n2, n3) in the order of octaves; bin 0 is the last of octave 0."""
    found: dict[int, list[int]] = {}
    for number, times in bins.items():
        octave, place = divmod(number + PER_OCTAVE - 1, PER_OCTAVE)
        found.setdefault(octave, [0] * PER_OCTAVE)[place] += times
    return [(octave, *found[octave]) for octave in sorted(found)]  # type: ignore[misc]


def add_octave(bins: dict[int, int], octave: int, counts: Iterable[int]) -> None:
    """What `octaves` made of bins, added to bins again."""
    for number, times in enumerate(counts, octave * PER_OCTAVE - PER_OCTAVE + 1):
        if times:
            bins[number] = bins.get(number, 0) + times


def quantile_ms(bins: Mapping[int, int], share: float) -> int | None:
    """The latency that this share of them does not pass: the nearest rank, told to the accuracy of a bin. None without any."""
    total = sum(bins.values())
    if total == 0:
        return None
    rank = max(1, math.ceil(share * total))
    seen = 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            return value_ms(number)
    raise ValueError("a bin has a negative count")
