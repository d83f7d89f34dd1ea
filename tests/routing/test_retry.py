from __future__ import annotations

import pytest

from gateway.routing.retry import BACKOFF_CAP_S, RetryBudget, after
from providers import errors as e

TRANSIENT = [
    e.TimedOut("408", answered=True),
    e.RateLimited("429", answered=True),
    e.ServerFailed("500", answered=True),
    e.ServerFailed("502", answered=True),
    e.Unavailable("503", answered=True),
    e.TimedOut("504", answered=True),
    e.ServerFailed("529", answered=True),
    e.Unreachable("refused"),
]
PERMANENT = [
    e.Rejected("400", answered=True),
    e.Unauthorized("401", answered=True),
    e.Rejected("403", status=403, answered=True),
    e.Rejected("404", status=404, answered=True),
    e.Rejected("422", status=422, answered=True),
    e.ContentFiltered("filtered", answered=True),
    e.ContextTooLong("too long", answered=True),
    e.Unsupported("no images"),
    e.QuotaExhausted("pay", answered=True),
]


def hits(error: e.ProviderError, max_attempts: int, backends: int) -> list[int]:
    """Walk the table as a caller does, every attempt failing alike: hits per backend."""
    counts = [0] * backends
    at, attempt = 0, 0
    while True:
        attempt += 1
        counts[at] += 1
        action, wait_s = after(error, attempt, max_attempts, at + 1 < backends, 0.5)
        assert 0.0 <= wait_s <= 2.2
        if action == "stop":
            return counts
        if action == "next":
            at += 1


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: error.message)
def test_g31_transient_errors_get_three_attempts_in_all(error: e.ProviderError) -> None:
    assert hits(error, 3, 1) == [3]
    assert hits(error, 3, 2) == [1, 2]
    assert hits(error, 3, 5) == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("error", PERMANENT, ids=lambda error: error.message)
def test_g31_permanent_errors_get_one_attempt_per_backend(error: e.ProviderError) -> None:
    assert hits(error, 3, 1) == [1]


@pytest.mark.parametrize(
    ("error", "asked"),
    [(error, 1 if type(error) in (e.Rejected, e.ContentFiltered) and error.status not in (403, 404) else 2) for error in PERMANENT],
    ids=lambda value: getattr(value, "message", value),
)
def test_only_what_another_backend_may_know_better_goes_on(error: e.ProviderError, asked: int) -> None:
    assert sum(hits(error, 3, 2)) == asked


def test_our_own_timeout_is_not_repeated_on_the_same_backend() -> None:
    assert hits(e.TimedOut("no first byte"), 3, 1) == [1]
    assert hits(e.TimedOut("no first byte"), 3, 2) == [1, 1]


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_not() -> None:
    action, wait_s = after(e.RateLimited("429", retry_after_s=1.5), 1, 3, False, 0.5)
    assert action == "same" and 1.5 <= wait_s <= 1.6
    assert after(e.RateLimited("429", retry_after_s=30.0), 1, 3, False, 0.5) == ("stop", 0.0)
    assert after(e.RateLimited("429", retry_after_s=30.0), 1, 3, True, 0.5) == ("next", 0.0)
    assert after(e.Unavailable("loading", retry_after_s=0.0), 1, 3, False, 0.0)[1] > 0


def test_backoff_grows_is_jittered_and_capped() -> None:
    waits = [after(e.ServerFailed("500"), n, 99, False, 0.0)[1] for n in range(1, 9)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.05) and waits[-1] == pytest.approx(BACKOFF_CAP_S / 2)
    assert after(e.ServerFailed("500"), 50, 99, False, 0.999)[1] <= BACKOFF_CAP_S
    assert after(e.ServerFailed("500"), 1, 9, False, 0.9) != after(e.ServerFailed("500"), 1, 9, False, 0.1)


def test_the_budget_is_a_floor_and_a_share_of_the_last_ten_seconds() -> None:
    budget = RetryBudget(0.2, 30)
    assert sum(budget.take(100.0) for _ in range(100)) == 30
    assert not budget.take(105.0)
    for i in range(1000):
        budget.request(105.0 + i / 1000)
    assert sum(budget.take(106.5) for _ in range(1000)) == 170, "0.2 x 1000, of which 30 are gone"
    assert sum(budget.take(112.0) for _ in range(1000)) == 30, "the 30 of t = 100 have left the window"
    assert sum(budget.take(10_000.0) for _ in range(100)) == 30, "a long pause forgets everything"


def test_the_budget_survives_a_clock_that_starts_anywhere() -> None:
    for start in (0.0, 3.7, 1e9):
        budget = RetryBudget(0.5, 1)
        for _ in range(10):
            budget.request(start)
        assert sum(budget.take(start) for _ in range(20)) == 5
