"""Estimates of days to come: right where every day is the same, honest about how much they may be off, and silent without history."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money import ahead as module
from gateway.money.ahead import ahead

WEEK = (1.0, 1.1, 1.0, 0.9, 1.0, 0.4, 0.3)
DOLLAR = 10**9


def steady(chance: random.Random, days: int) -> list[float]:
    return [WEEK[day % 7] * (1 + 0.2 * chance.gauss(0, 1)) for day in range(days)]


def skewed(chance: random.Random, days: int) -> list[float]:
    return [WEEK[day % 7] * chance.lognormvariate(0, 0.5) for day in range(days)]


def carried(chance: random.Random, days: int) -> list[float]:
    level, made = 0.0, []
    for day in range(days):
        level = 0.5 * level + chance.gauss(0, 0.2)
        made.append(WEEK[day % 7] * (1 + level))
    return made


def even(chance: random.Random, days: int) -> list[float]:
    return [max(0.0, 1 + 0.4 * chance.gauss(0, 1)) for _ in range(days)]


@pytest.mark.parametrize(
    ("series", "history", "coming"),
    [(steady, 28, 7), (steady, 28, 20), (skewed, 28, 20), (carried, 28, 14), (even, 28, 10), (even, 10, 7), (steady, 14, 10)],
)
def test_the_interval_holds_four_of_five(series: Callable[[random.Random, int], list[float]], history: int, coming: int) -> None:
    chance = random.Random(f"{series.__name__} {history} {coming}")
    held, off, rounds = 0, 0.0, 250
    for _ in range(rounds):
        days = [int(amount * DOLLAR) for amount in series(chance, history + coming)]
        told = ahead(days[:history], [1.0] * coming, 0)
        assert told.low is not None and told.high is not None and told.low <= told.expected <= told.high
        true = sum(days[history:])
        held += told.low <= true <= told.high
        off += (told.expected - true) / true
    assert 0.70 <= held / rounds <= 0.92
    assert abs(off / rounds) < 0.08


def test_equal_days_are_told_exactly() -> None:
    told = ahead([500] * 28, [0.5, 1, 1], 3)
    assert (told.expected, told.low, told.high, told.method, told.days) == (1250, 1250, 1250, "weekday", 28)


def test_a_weekday_is_like_its_weekdays() -> None:
    days = [700 if day % 7 == 2 else 0 for day in range(30)]
    assert ahead(days, [1.0], (30 - 30 % 7) % 7).days == 28
    for start in range(7):
        told = ahead(days, [1.0] * 7, start)
        assert told.expected == 700
    assert ahead(days, [1.0], 0).expected == 700  # the 31st day is like the third, ninth, …
    assert ahead(days[:-1], [1.0], 0).expected == 0


def test_what_was_before_the_first_spend_is_no_history() -> None:
    told = ahead([0] * 20 + [100, 100, 100, 100], [1.0, 1.0], 0)
    assert (told.expected, told.method, told.days) == (200, "mean", 4)


def test_without_history_there_is_no_interval() -> None:
    assert ahead([0] * 26 + [100, 300], [1.0] * 3, 0) == module.Ahead(600, None, None, "rate", 2)
    assert ahead([0] * 28, [0.75, 1.0], 0, today=100) == module.Ahead(700, None, None, "rate", 0)
    assert ahead([0] * 28, [0.75, 1.0], 0) == module.Ahead(0, None, None, "none", 0)
    assert ahead([], [], 0, today=5) == module.Ahead(0, None, None, "none", 0)


@given(st.lists(st.integers(-(10**6), 10**12), max_size=60), st.lists(st.floats(0, 1), max_size=31), st.integers(0, 6))
def test_any_history_is_taken(days: list[int], weights: list[float], weekday: int) -> None:
    told = ahead(days, weights, weekday)
    if told.low is not None and told.high is not None:
        assert 0 <= told.low <= told.high


def test_students_quantiles() -> None:
    for freedom, right in ((2, 1.886), (5, 1.476), (21, 1.323), (1000, 1.282)):
        assert math.isclose(module._student(0.8, freedom), right, rel_tol=0.01)
    assert math.isclose(module._student(0.8, 10**9), NormalDist().inv_cdf(0.9), rel_tol=1e-6)


def test_a_sum_of_correlated_days() -> None:
    parts = [0.5, -1.0, 2.0, 1.0]
    wanted = sum(a * b * 0.6 ** abs(i - j) for i, a in enumerate(parts) for j, b in enumerate(parts))
    assert math.isclose(module._spread(parts, 0.6), wanted)
