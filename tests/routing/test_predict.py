from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.predict import MAX_US, PAD, WINDOW, WINDOW_S, Predictor, Window


def test_prior_alone_then_padding_then_samples_alone() -> None:
    window = Window(800)
    assert window.q95(0.0) == 800
    for n in range(PAD - 1):
        window.add(float(n), 100)
        assert window.q95(float(n)) == 800
    window.add(9.0, 100)
    assert window.q95(9.0) == 100


def test_a_sample_worse_than_the_prior_counts_at_once() -> None:
    window = Window(800)
    window.add(0.0, 5000)
    assert window.q95(0.0) == 5000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**7), min_size=PAD, max_size=150))
def test_q95_leaves_one_in_twenty_of_the_last_samples_above(values: list[int]) -> None:
    window = Window(0)
    for i, value in enumerate(values):
        window.add(i * 0.01, value)
    last = sorted(values[-WINDOW:])
    assert window.q95(len(values) * 0.01) == last[len(last) - 1 - len(last) // 20]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=80), st.lists(st.integers(0, 10**7), max_size=10))
def test_extra_samples_count_like_recorded_ones(values: list[int], extra: list[int]) -> None:
    window, both = Window(500), Window(500)
    for value in values[-(WINDOW - len(extra)) :]:
        window.add(0.0, value)
    for value in [*values[-(WINDOW - len(extra)) :], *extra]:
        both.add(0.0, value)
    assert window.mixed(extra) == both.q95(0.0)


def test_samples_age_out_and_the_prior_returns() -> None:
    window = Window(800)
    for i in range(20):
        window.add(float(i), 9000)
    assert window.q95(WINDOW_S + 5) == 9000
    assert window.q95(WINDOW_S + 25) == 800
    assert not window.samples


def test_the_slope_in_input_tokens_is_learnt() -> None:
    predictor, rng = Predictor(800.0, 20.0), random.Random(7)
    for i in range(400):
        tokens = rng.randrange(100, 8000)
        predictor.observe_ttft(i * 0.1, 0.2 + tokens * 0.0001 + rng.uniform(0, 0.02), tokens, 0)
    assert predictor.slope_ns == pytest.approx(100_000, rel=0.1)
    base = predictor.ttft.q95(40.0)
    assert (base + predictor.slope_ns * 5000 // 1000) / 1e6 == pytest.approx(0.72, rel=0.05)


def test_the_load_is_learnt() -> None:
    predictor, rng = Predictor(500.0, 20.0), random.Random(7)
    for i in range(600):
        load = rng.randrange(0, 20)
        predictor.observe_ttft(i * 0.1, 0.1 + load * 0.05 + rng.uniform(0, 0.01), 500, load)
    assert predictor.load_us == pytest.approx(50_000, rel=0.15)


def test_one_hang_does_not_bend_the_slope() -> None:
    predictor, rng = Predictor(300.0, 20.0), random.Random(7)
    for i in range(200):
        tokens = rng.randrange(100, 8000)
        predictor.observe_ttft(i * 0.1, 0.2 + tokens * 0.00005, tokens, 0)
    before = predictor.slope_ns
    predictor.observe_ttft(20.1, 60.0, 8000, 0)
    for i in range(16):
        tokens = 100 + 500 * i
        predictor.observe_ttft(20.2 + i * 0.1, 0.2 + tokens * 0.00005, tokens, 0)
    assert predictor.slope_ns == pytest.approx(before, rel=0.25)


def test_equal_inputs_forever_stay_finite() -> None:
    predictor = Predictor(300.0, 20.0)
    for i in range(20_000):
        predictor.observe_ttft(i * 0.01, 0.25, 1000, 0)
    total = predictor.ttft.q95(200.0) + predictor.slope_ns * 1000 // 1000
    assert total == pytest.approx(250_000, rel=0.01)
    for i in range(200):  # and it still learns
        predictor.observe_ttft(200.0 + i * 0.01, 0.25 + i % 4, 1000 * (1 + 10 * (i % 4)), 0)
    assert predictor.slope_ns == pytest.approx(100_000, rel=0.3)


def test_whole_answers_are_split_as_predicted() -> None:
    predictor = Predictor(1000.0, 10.0)
    for i in range(60):
        predictor.observe_whole(float(i), 1.0, 100, (0, 0))  # 1 s in all; the prior says 1 s + 100 x 10 ms
    ttft, tpot = predictor.ttft.q95(60.0), predictor.tpot.q95(60.0)
    assert ttft + 100 * tpot == pytest.approx(1_000_000, rel=0.02)
    assert ttft == pytest.approx(500_000, rel=0.05)


def test_absurd_times_are_bounded() -> None:
    predictor = Predictor(100.0, 10.0)
    predictor.observe_ttft(0.0, 1e12, 10, 0)
    predictor.observe_tpot(0.0, -5.0)
    assert predictor.ttft.q95(0.0) == MAX_US
    assert predictor.tpot.q95(0.0) == 10_000
