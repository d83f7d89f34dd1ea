"""What is likely to be spent in the days to come, from the days that were: an estimate with an interval, never an amount. Pure.

Each coming day is taken to be like the mean of the same weekday in the last four weeks. The interval is that of a normal prediction:
the scatter of days about those means, what the means themselves may be off, and that a high day is often followed by another. It holds
the truth four times of five while spending goes on as it did; growth is not continued.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

from msgspec import Struct

DAYS = 28  # of history that are looked at
WEEKDAYS_FROM = 14  # days that make every weekday known twice
MEAN_FROM = 3
WITHIN = 0.8  # share of periods whose spend the interval is to hold
_CARRIED_MAX = 0.9


class Ahead(Struct, frozen=True):
    """nano-USD. method: weekday (means of weekdays) | mean (of all days: under 14 of them) | rate (too little to tell an interval) |
    none (nothing was ever spent). days: of history. low and high are None where there is no interval."""

    expected: int
    low: int | None
    high: int | None
    method: str
    days: int


def ahead(days: Sequence[int], weights: Sequence[float], first_weekday: int, today: int = 0) -> Ahead:
    """What the coming days will cost.

    days: nano-USD of each whole day before today, oldest first. weights: how much of today (its rest) and of each day after it is asked
    about, 0 to 1. first_weekday: of days[0], 0 to 6. today: what today has cost so far, for who has no day before it.
    """
    began = next((place for place, amount in enumerate(days) if amount), len(days))
    begun = max(began, len(days) - DAYS)
    days, first_weekday = days[begun:], (first_weekday + begun) % 7
    count = len(days)
    if count < MEAN_FROM:
        return _rate(days, weights, today)
    season = 7 if count >= WEEKDAYS_FROM else 1
    places = [(first_weekday + place) % season for place in range(count + len(weights))]
    known = [places[:count].count(one) for one in range(season)]
    means = [sum(amount for amount, at in zip(days, places, strict=False) if at == one) / known[one] for one in range(season)]
    expected = sum(weight * means[at] for weight, at in zip(weights, places[count:], strict=True))
    off = [amount - means[at] for amount, at in zip(days, places, strict=False)]
    freedom = count - season
    scatter = sum(one * one for one in off) / freedom
    asked = [sum(weight for weight, at in zip(weights, places[count:], strict=True) if at == one) for one in range(season)]
    parts = [-asked[at] / known[at] for at in places[:count]] + list(weights)
    half = _student(WITHIN, freedom) * math.sqrt(max(0.0, scatter * _spread(parts, _carried(off))))
    method = "weekday" if season == 7 else "mean"
    return Ahead(round(expected), max(0, round(expected - half)), max(0, round(expected + half)), method, count)


def _rate(days: Sequence[int], weights: Sequence[float], today: int) -> Ahead:
    if days:
        return Ahead(round(sum(days) / len(days) * sum(weights)), None, None, "rate", len(days))
    gone = 1 - (weights[0] if weights else 1)
    if today == 0 or gone <= 0:
        return Ahead(0, None, None, "none", 0)
    return Ahead(round(today / gone * sum(weights)), None, None, "rate", 0)


def _carried(off: Sequence[float]) -> float:
    """How much of a day's deviation the next day has: the lag-one correlation, corrected for what taking means away hides."""
    whole = sum(one * one for one in off)
    if whole == 0:
        return 0.0
    found = sum(a * b for a, b in pairwise(off)) / whole
    count = len(off)
    return min(_CARRIED_MAX, max(0.0, (count * found + 1) / (count - 2)))


def _spread(parts: Sequence[float], carried: float) -> float:
    """The variance of a weighted sum of days of variance 1, each correlated with the next: Σ Σ parts_i parts_j carried^|i-j|."""
    total, behind = 0.0, 0.0
    for part in parts:
        total += part * part + 2 * part * behind
        behind = carried * (behind + part)
    return total


def _student(within: float, freedom: int) -> float:
    """The quantile of Student's t for a two-sided interval, by the series in 1/freedom that begins at the normal one."""
    z = NormalDist().inv_cdf((1 + within) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
