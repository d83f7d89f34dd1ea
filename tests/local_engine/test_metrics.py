"""What an engine measures of itself."""

from __future__ import annotations

import pytest

from local_engine.metrics import FIRST_TOKEN_S, PER_TOKEN_S, STEP_S, Histogram, Metrics


def test_bounds_ascend() -> None:
    for bounds in (FIRST_TOKEN_S, PER_TOKEN_S, STEP_S):
        assert list(bounds) == sorted(set(bounds))


def test_counts_stand_between_the_bounds_and_beyond_them() -> None:
    histogram = Histogram((0.1, 0.5))
    for seconds in (0.05, 0.1, 0.2, 9.0):
        histogram.observe(seconds)
    times = histogram.times
    assert (times.bounds, times.counts) == ((0.1, 0.5), (2, 1, 1))
    assert times.sum == pytest.approx(9.35)


def test_the_pace_is_the_time_after_the_first_token_over_the_tokens_after_it() -> None:
    metrics = Metrics()
    metrics.ended(tokens=11, first_at=5.0, now=7.0)
    assert metrics.per_token.sum == pytest.approx(0.2)
    metrics.ended(tokens=1, first_at=5.0, now=7.0)
    assert sum(metrics.per_token.counts) == 1, "one token has no pace"


def test_a_step_is_timed_and_its_batch_kept() -> None:
    metrics = Metrics()
    metrics.step(0.02, 3)
    metrics.step(0.03, 5)
    assert (metrics.batch, sum(metrics.steps.counts)) == (5, 2)
