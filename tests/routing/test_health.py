from __future__ import annotations

import pytest

from gateway.routing.health import RETRY_AFTER_CAP_S, Health
from providers.errors import ProviderError, QuotaExhausted, RateLimited, Rejected, ServerFailed, TimedOut, Unavailable, Unreachable


def fail(health: Health, now: float, error: ProviderError | None = None) -> None:
    call = object()
    health.began(now, call)
    health.failed(now, error or ServerFailed("500", answered=True), call, now)


def test_three_failures_in_a_row_eject_for_five_seconds() -> None:
    health = Health()
    fail(health, 10.0)
    fail(health, 10.1, TimedOut("slow"))
    assert health.reason(10.2) == ""
    fail(health, 10.2, Unreachable("refused"))
    assert health.reason(10.2) == health.reason(15.1) == "ejected"
    assert health.ready_at(11.0) == pytest.approx(15.2)
    assert health.reason(15.2) == ""


def test_a_success_between_failures_starts_the_count_anew() -> None:
    health = Health()
    for now in (1.0, 2.0):
        fail(health, now)
    health.succeeded(object(), 3.0)
    fail(health, 4.0)
    fail(health, 5.0)
    assert health.reason(5.0) == ""


def test_ejections_double_up_to_the_cap() -> None:
    health, now, lasted = Health(), 0.0, []
    for _ in range(3):
        fail(health, now)
    for _ in range(6):
        lasted.append(health.ready_at(now) - now)
        now = health.ready_at(now)
        fail(health, now)  # the probe fails
    assert lasted == pytest.approx([5, 10, 20, 40, 80, 80])


def test_one_probe_at_a_time_and_its_success_heals() -> None:
    health = Health()
    for _ in range(3):
        fail(health, 0.0)
    probe, other = object(), object()
    health.began(6.0, probe)
    assert health.reason(6.0) == "probing"
    health.began(6.0, other)
    health.left(other)
    assert health.reason(6.1) == "probing", "only the probe itself ends the probing"
    health.succeeded(probe, 6.0)
    assert health.reason(6.2) == ""
    fail(health, 7.0)
    assert health.reason(7.0) == "", "healed: one failure does not eject again"


def test_a_probe_without_a_verdict_lets_the_next_one_try() -> None:
    health = Health()
    for _ in range(3):
        fail(health, 0.0)
    probe = object()
    health.began(6.0, probe)
    health.left(probe)
    assert health.reason(6.0) == ""


def test_a_silent_probe_is_as_good_as_failed() -> None:
    health, silent, second = Health(), object(), object()
    for _ in range(3):
        fail(health, 0.0)
    health.began(5.0, silent)
    assert health.reason(9.9) == "probing"
    assert health.reason(10.0) == health.reason(19.9) == "ejected", "twice as long as before"
    assert health.ready_at(12.0) == pytest.approx(20.0)
    assert health.reason(20.0) == ""
    health.began(20.0, second)
    assert health.reason(20.1) == "probing"
    health.failed(65.0, TimedOut("no byte"), silent, 5.0)
    assert health.reason(24.9) == "probing", "the first one's end tells nothing new"
    health.failed(24.9, TimedOut("no byte"), second, 20.0)
    assert health.ready_at(25.0) == pytest.approx(24.9 + 20.0)


def test_a_probe_that_answers_late_heals_all_the_same() -> None:
    health, slow, second = Health(), object(), object()
    for _ in range(3):
        fail(health, 0.0)
    health.began(5.0, slow)
    health.began(20.0, second)
    health.succeeded(slow, 5.0)
    assert health.reason(20.5) == ""


def test_whoever_is_asked_during_an_ejection_is_no_probe() -> None:
    health = Health()
    for _ in range(3):
        fail(health, 0.0)
    health.began(5.0, object())
    health.began(12.0, object())  # the first one is overdue, and nobody else was left to ask
    assert health.probe is None and health.reason(19.9) == "ejected" and health.reason(20.0) == ""


def test_lost_requests_among_answered_ones_are_no_row_of_failures() -> None:
    health = Health()
    for sent in (0.0, 1.0, 2.0):
        health.succeeded(object(), sent + 0.5)
        health.failed(60.0 + sent, TimedOut("no byte"), object(), sent)
    assert health.reason(63.0) == ""
    for sent in (3.0, 3.1, 3.2):
        health.failed(60.0 + sent, TimedOut("no byte"), object(), sent)
    assert health.reason(63.3) == "ejected", "nobody was answered since"


def test_echoes_of_older_requests_neither_lengthen_nor_lift_an_ejection() -> None:
    health = Health()
    for _ in range(3):
        fail(health, 10.0)
    health.failed(12.0, TimedOut("slow"), object(), 2.0)
    health.succeeded(object(), 9.0)
    assert health.ready_at(12.0) == pytest.approx(15.0)
    assert health.reason(12.0) == "ejected"
    health.succeeded(object(), 12.0)  # somebody had to ask it although ejected, and it answered
    assert health.reason(12.1) == ""


def test_rate_limits_wait_and_are_no_failures() -> None:
    health = Health()
    for _ in range(5):
        fail(health, 1.0, RateLimited("429", retry_after_s=30.0, answered=True))
    assert health.reason(30.9) == "rate_limited"
    assert health.ready_at(1.0) == pytest.approx(31.0)
    assert health.reason(31.0) == ""
    fail(health, 40.0, RateLimited("429", answered=True))
    assert health.reason(40.5) == "cooling"
    assert health.reason(41.0) == ""


def test_a_long_retry_after_is_bounded() -> None:
    health = Health()
    fail(health, 0.0, RateLimited("429", retry_after_s=1e9, answered=True))
    assert health.ready_at(0.0) == RETRY_AFTER_CAP_S


def test_quota_and_loading_backends_cool() -> None:
    health = Health()
    fail(health, 0.0, QuotaExhausted("pay", answered=True))
    assert health.reason(29.0) == "cooling"
    loading = Health()
    fail(loading, 0.0, Unavailable("loading", retry_after_s=4.0, answered=True))
    assert loading.reason(3.9) == "cooling"
    assert loading.reason(4.0) == ""


def test_a_rejected_request_shows_that_the_backend_lives() -> None:
    health = Health()
    for now in (0.0, 1.0):
        fail(health, now)
    fail(health, 2.0, Rejected("bad request", answered=True))
    fail(health, 3.0)
    assert health.reason(3.0) == ""
