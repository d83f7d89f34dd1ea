from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.routing.features import Features
from gateway.routing.filters import unready
from gateway.routing.state import BackendState
from providers.errors import RateLimited, ServerFailed, TimedOut, Unreachable
from providers.limit_headers import Limits

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


def test_every_ending_frees_its_place_once(state: Make, features: MakeFeatures) -> None:
    s = state()
    calls = [s.started(0.0, features()) for _ in range(4)]
    assert s.in_flight == len(s.waiting) == 4
    calls[0].first_token(0.2)
    assert (s.in_flight, len(s.waiting)) == (4, 3)
    calls[0].ended(1.0, 50)
    calls[1].failed(1.0, ServerFailed("500", answered=True))
    calls[2].left(1.0)
    for call in calls[:3]:
        call.ended(2.0, 50)
        call.failed(2.0, ServerFailed("500"))
        call.left(2.0)
        call.first_token(2.0)
    assert (s.in_flight, len(s.waiting)) == (1, 1)


def test_streams_teach_both_times(state: Make, features: MakeFeatures) -> None:
    s = state(ttft_prior_ms=900.0, tpot_prior_ms=50.0)
    for i in range(10):
        call = s.started(float(i), features(input_tokens=0))
        call.first_token(i + 0.3)
        call.ended(i + 0.3 + 0.99, 100)
    assert s.ttft_line(10.0)[0] == pytest.approx(300_000, abs=2)
    assert s.predictor.tpot.window.q95(10.0) == pytest.approx(10_000, abs=2)


def test_short_answers_teach_no_pace(state: Make, features: MakeFeatures) -> None:
    s = state()
    call = s.started(0.0, features())
    call.first_token(0.1)
    call.ended(0.1, 2)
    assert not s.predictor.tpot.window.samples


def test_a_hang_shows_before_anything_has_ended(state: Make, features: MakeFeatures) -> None:
    s = state(ttft_prior_ms=300.0)
    for i in range(30):
        call = s.started(i * 0.1, features(input_tokens=0))
        call.first_token(i * 0.1 + 0.2)
        call.ended(i * 0.1 + 1, 50)
    healthy = s.ttft_line(4.0)[0]
    assert healthy == pytest.approx(200_000, abs=2)
    for _ in range(10):
        s.started(4.0, features(input_tokens=0))
    assert s.ttft_line(4.1)[0] == healthy, "nobody has waited longer than usual"
    assert s.ttft_line(6.0)[0] == pytest.approx(2_000_000, abs=2)


def test_a_backend_whose_first_tokens_come_far_later_than_usual_is_held_to_write_slowly_until_it_is_known(
    state: Make, features: MakeFeatures
) -> None:
    s = state(ttft_prior_ms=300.0, tpot_prior_ms=10.0)
    for i in range(30):
        call = s.started(i * 0.1, features(input_tokens=0))
        call.first_token(i * 0.1 + 0.2)
        call.ended(i * 0.1 + 0.2 + 0.49, 50)
    healthy = s.lines(4.0)
    assert healthy[1] == (10_000,)
    calls = [s.started(4.0 + i * 0.1, features(input_tokens=0)) for i in range(8)]
    assert s.lines(4.3)[1] == (10_000,)
    assert s.lines(6.0)[1][0] > 50_000, "the eldest waits for ten times as long as is usual"
    for i, call in enumerate(calls):
        call.first_token(8.0 + i * 0.1)
    ttft, tpot = s.lines(9.0)
    assert ttft[0] == pytest.approx(4_000_000, rel=0.01) and tpot[0] > 100_000
    for call in calls[:3]:
        call.ended(8.0 + 4.9, 50)
    assert s.lines(13.0)[1][0] == pytest.approx(100_000, rel=0.1), "three of them are over: it is known"


def test_a_whole_answer_may_take_the_time_of_its_tokens(state: Make, features: MakeFeatures) -> None:
    s = state(ttft_prior_ms=300.0, tpot_prior_ms=20.0)
    s.started(0.0, features(stream=False, expected_output_tokens=100))
    assert s.ttft_line(2.0)[0] == 300_000, "0.3 s + 100 x 20 ms = 2.3 s is what was expected"
    assert s.ttft_line(4.0)[0] == pytest.approx(2_000_000, abs=2)


def test_failures_teach_only_long_waits(state: Make, features: MakeFeatures) -> None:
    s = state(ttft_prior_ms=300.0)
    s.started(0.0, features()).failed(0.001, Unreachable("refused"))
    s.started(0.0, features()).failed(0.001, ServerFailed("500", answered=True))
    s.started(0.0, features()).left(0.01)
    assert not s.predictor.ttft.window.samples, "a quick refusal is not a quick answer"
    s.started(0.0, features(input_tokens=0)).failed(5.0, TimedOut("no byte"))
    s.started(0.0, features(input_tokens=0)).left(7.0)
    assert sorted(raw[0] for _, _, raw in s.predictor.ttft.window.samples) == [5_000_000, 14_000_000], (
        "who was cancelled would have waited on"
    )


def test_three_failed_calls_eject_and_a_first_token_heals(state: Make, features: MakeFeatures) -> None:
    s = state()
    for _ in range(3):
        s.started(0.0, features()).failed(0.1, ServerFailed("500", answered=True))
    assert s.health.reason(0.2) == "ejected"
    probe = s.started(5.2, features())
    assert s.health.reason(5.3) == "probing"
    probe.first_token(5.4)
    assert s.health.reason(5.5) == ""


def test_reload_keeps_what_was_learnt(state: Make, features: MakeFeatures) -> None:
    s = state()
    call = s.started(0.0, features())
    call.first_token(0.5)
    s.update(state(price=None).backend)
    assert (s.rates, s.price_id, s.in_flight, len(s.predictor.ttft.window.samples)) == (None, "", 1, 1)


def test_what_an_answer_tells_of_limits_binds_good_or_refused(state: Make, features: MakeFeatures) -> None:
    s = BackendState(state().backend, workers=2)
    call = s.started(0.0, features(input_tokens=100, expected_output_tokens=10))
    call.told(1.0, Limits(requests=(8.0, 30.0), tokens=(10_000.0, 30.0)))
    assert unready(s, 100, 10, 1.0) == ("", 0.0)
    reason, wait_s = unready(s, 5000, 10, 1.0)
    assert reason == "headroom" and wait_s == pytest.approx(30.0), "half of what is left is ours"
    refused = RateLimited("slow down", answered=True, retry_after_s=1.0)
    refused.limits = Limits(requests=(0.0, 20.0))
    s.started(2.0, features()).failed(3.0, refused)
    assert unready(s, 100, 10, 3.5)[0] == "rate_limited"
    reason, wait_s = unready(s, 100, 10, 4.5)
    assert reason == "headroom" and wait_s == pytest.approx(18.5)
    assert unready(s, 100, 10, 23.5)[0] == ""


def test_limits_are_shared_by_the_workers_that_live(state: Make) -> None:
    s = state(rpm=240)
    assert [unready(s, 1, 1, 0.0)[0] for _ in range(1)] == [""]
    for _ in range(15):
        s.headroom.took(0.0, 1, 1)
    assert unready(s, 1, 1, 0.0)[0] == "", "60 at once"
    s.share(4)
    for _ in range(15):
        s.headroom.took(0.0, 1, 1)
    assert unready(s, 1, 1, 0.0)[0] == "headroom", "a quarter of it"
