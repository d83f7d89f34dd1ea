from __future__ import annotations

import math
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


def left_above(count: int) -> int:
    """One in twenty and a standard deviation."""
    return math.floor(count / 20 + math.sqrt(count * 0.05 * 0.95))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**7), min_size=PAD, max_size=150))
def test_q95_leaves_one_in_twenty_and_some_of_the_last_samples_above(values: list[int]) -> None:
    window = Window(0)
    for i, value in enumerate(values):
        window.add(i * 0.01, value)
    last = sorted(values[-WINDOW:])
    third = sorted(values[-PAD:])[-3]
    assert window.q95(len(values) * 0.01) == max(last[len(last) - 1 - left_above(len(last))], third)


def test_how_many_are_left_above() -> None:
    assert [SPARED[n] for n in (1, PAD - 1, PAD, 20, 21, WINDOW)] == [0, 0, 1, 1, 2, 4]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=80), st.lists(st.integers(0, 10**7), max_size=8))
def test_waiting_requests_count_like_recorded_ones(values: list[int], late: list[int]) -> None:
    window, both = Window(500), Window(500)
    waiting = [(1.0 + i * 0.01, value) for i, value in enumerate(late)]
    for i, value in enumerate(values[-(WINDOW - len(late)) :]):
        window.add(i * 0.01, value)
        both.add(i * 0.01, value)
    for at, value in waiting:
        both.add(at, value)
    assert window.mixed(waiting) == both.q95(1.0)
    assert window.mixed(()) == window.q95(1.0), "they are not kept"


def test_three_bad_ones_among_the_newest_eight_are_a_change_but_spread_out_they_are_not() -> None:
    window, now = Window(800), 0.0
    for i in range(WINDOW):
        now += 0.1
        window.add(now, 9000 if i % 20 == 19 else 100)
    assert window.q95(now) == 100
    window.add(now + 0.1, 9000)
    assert window.q95(now) == 100
    window.add(now + 0.2, 9000)
    window.add(now + 0.3, 9000)
    assert window.q95(now) == 9000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 60)), max_size=120))
def test_samples_stand_in_the_order_of_their_requests_and_are_bounded(sent: list[tuple[float, float]]) -> None:
    window, now, pending = Window(800), 0.0, []
    for gap, took in sent:
        now += gap
        pending.append((now + took, now))
    for done, at in sorted(pending):
        window.add(at, int(1000 * (done - at)))
        times = [sample[0] for sample in window.samples]
        assert times == sorted(times) and len(times) < WINDOW + PAD
        assert window.q95(0.0) >= 0


def test_an_answer_that_took_long_is_as_old_as_its_request() -> None:
    window = Window(800)
    for i in range(WINDOW):
        window.add(10.0 + i * 0.1, 100)
    for _ in range(8):
        window.add(5.0, 60_000)
    assert window.q95(17.0) == 100, "sent before all those that are known to have been answered at once"
    window.add(16.0, 60_000)
    assert sum(value == 60_000 for _, value, _ in window.samples) == 1


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
        window.add(later + i * 0.1, 200)
        assert window.q95(later + i * 0.1) == 9000
    window.add(2.0, 60_000)  # a request from before the silence times out
    window.add(later + 1, 200)
    assert window.q95(later + 1) == 200
    window.add(2.0, 60_000)
    assert window.q95(later + 1) == 200


def test_whoever_was_better_once_is_worth_a_trial_after_a_silence() -> None:
    window = Window(800)
    for i in range(100):
        window.add(i * 0.1, 300)
    for i in range(20):
        window.add(10 + i * 0.1, 9000)
    silent = 12.0 + GAP * WINDOW_S
    assert not window.worth_a_trial(12.0, asked=False), "it was asked just now"
    assert window.worth_a_trial(silent, asked=False)
    assert not window.worth_a_trial(silent, asked=True), "one at a time"
    window.add(silent + 1.0, 300)
    assert window.worth_a_trial(silent + 1.5, asked=True), "it answers as it used to: go on"
    window.add(silent + 2.0, 9000)
    assert not window.worth_a_trial(silent + 2.5, asked=False)
    always = Window(800)
    for i in range(1000):
        always.add(i * 0.1, 9000 if i % 2 else 3500)
    assert not always.worth_a_trial(101.0 + GAP * WINDOW_S, asked=False), "slow and uneven is what it is"


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
