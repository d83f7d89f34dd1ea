from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.predict import GAP, MAX_US, PAD, SPARED, WINDOW, WINDOW_S, Predictor, Window, predicted95_us, residual95


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
    assert window.q95(len(values) * 0.01) == last[len(last) - 1 - (len(last) + SPARED) // 20]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=80), st.lists(st.integers(0, 10**7), max_size=10))
def test_extra_samples_count_like_recorded_ones(values: list[int], extra: list[int]) -> None:
    window, both = Window(500), Window(500)
    for value in values[-(WINDOW - len(extra)) :]:
        window.add(0.0, value)
    for value in [*values[-(WINDOW - len(extra)) :], *extra]:
        both.add(0.0, value)
    assert window.mixed(extra) == both.q95(0.0)


def test_a_single_outlier_is_no_verdict_but_two_of_eight_are() -> None:
    window = Window(800)
    for i in range(PAD - 1):
        window.add(float(i), 100)
    window.add(8.0, 90_000)
    assert window.q95(8.0) == 100
    window.add(8.1, 80_000)
    assert window.q95(8.1) == 80_000


def test_after_a_silence_new_samples_replace_the_old() -> None:
    window = Window(800)
    for i in range(30):
        window.add(i * 0.1, 9000)
    later = 3.0 + GAP * WINDOW_S + 1
    for i in range(PAD - 1):
        assert window.recovering == (i > 0)
        window.add(later + i * 0.1, 200)
        assert window.q95(later + i * 0.1) == 9000
    window.add(later + 1, 200)
    assert window.q95(later + 1) == 200 and not window.recovering


def test_a_queue_of_ones_own_errs_in_proportion() -> None:
    predictor, rng = Predictor(500.0, 20.0, own=True), random.Random(7)
    for i in range(600):
        tokens = rng.randrange(100, 9000)
        predictor.ttft.observe(i * 0.1, (0.02 + tokens * 0.0003) * rng.uniform(0.9, 1.1), tokens, 0)
    line = predictor.ttft.line(60.0)
    assert predicted95_us(line, 500, 0) / 1e6 == pytest.approx(0.19, abs=0.1)
    assert predicted95_us(line, 8000, 0) / 1e6 == pytest.approx(2.42 * 1.09, rel=0.07)
    assert predicted95_us(line, 500, 0) < 0.2 * predicted95_us(line, 8000, 0), "an error of 0.2 s far back in the queue is none at its head"


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(0, 10**10), st.integers(0, 10**10), st.integers(-(10**6), 10**6), st.sampled_from([0, 200_000])),
    st.integers(0, MAX_US),
    st.integers(0, 10**5),
    st.integers(0, 1000),
)
def test_the_residual_of_a_time_predicts_that_time(rest: tuple[int, int, int, int], us: int, tokens: int, load: int) -> None:
    residual = residual95((0, *rest), us, tokens, load)
    assert predicted95_us((residual, *rest), tokens, load) == pytest.approx(us, rel=1e-5, abs=200_000)


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
        predictor.ttft.observe(i * 0.1, 0.2 + tokens * 0.0001 + rng.uniform(0, 0.02), tokens, 0)
    assert predictor.ttft.line(40.0)[1] == pytest.approx(100_000_000, rel=0.1)
    assert predicted95_us(predictor.ttft.line(40.0), 5000, 0) / 1e6 == pytest.approx(0.72, rel=0.05)


def test_the_load_is_learnt() -> None:
    predictor, rng = Predictor(500.0, 20.0, own=True), random.Random(7)
    for i in range(600):
        load = rng.randrange(0, 20)
        predictor.ttft.observe(i * 0.1, 0.1 + load * 0.05 + rng.uniform(0, 0.01), 500, load)
    assert predictor.ttft.line(60.0)[2] == pytest.approx(50_000_000, rel=0.15)


def test_one_hang_does_not_bend_the_slope() -> None:
    predictor, rng = Predictor(300.0, 20.0), random.Random(7)
    for i in range(200):
        tokens = rng.randrange(100, 8000)
        predictor.ttft.observe(i * 0.1, 0.2 + tokens * 0.00005, tokens, 0)
    before = predictor.ttft.line(20.0)[1]
    predictor.ttft.observe(20.1, 60.0, 8000, 0)
    for i in range(16):
        tokens = 100 + 500 * i
        predictor.ttft.observe(20.2 + i * 0.1, 0.2 + tokens * 0.00005, tokens, 0)
    assert predictor.ttft.line(22.0)[1] == pytest.approx(before, rel=0.25)


def test_equal_inputs_forever_stay_finite() -> None:
    predictor = Predictor(300.0, 20.0)
    for i in range(20_000):
        predictor.ttft.observe(i * 0.01, 0.25, 1000, 0)
    total = predicted95_us(predictor.ttft.line(200.0), 1000, 0)
    assert total == pytest.approx(250_000, rel=0.01)
    for i in range(200):  # and it still learns
        predictor.ttft.observe(200.0 + i * 0.01, 0.25 + i % 4, 1000 * (1 + 10 * (i % 4)), 0)
    assert predictor.ttft.line(220.0)[1] == pytest.approx(100_000_000, rel=0.3)


def test_whole_answers_are_split_as_predicted() -> None:
    predictor = Predictor(1000.0, 10.0)
    for i in range(60):
        predictor.observe_whole(float(i), 1.0, 100, (0, 0))  # 1 s in all; the prior says 1 s + 100 x 10 ms
    ttft, tpot = predictor.ttft.window.q95(60.0), predictor.tpot.window.q95(60.0)
    assert ttft + 100 * tpot == pytest.approx(1_000_000, rel=0.02)
    assert ttft == pytest.approx(500_000, rel=0.05)


def test_absurd_times_are_bounded() -> None:
    predictor = Predictor(100.0, 10.0)
    predictor.ttft.observe(0.0, 1e12, 10, 0)
    predictor.tpot.observe(0.0, -5.0, 0, 0)
    assert predictor.ttft.window.q95(0.0) == MAX_US
    assert predictor.tpot.window.q95(0.0) == 10_000
