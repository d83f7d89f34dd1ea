from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.headroom import BURST_S, TOLD_CAP_S, Headroom
from providers.limit_headers import Limits


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 4000)), min_size=1, max_size=120), st.integers(1, 600), st.integers(100, 100_000)
)
def test_what_goes_out_never_passes_the_limits(asked: list[tuple[float, int]], rpm: int, tpm: int) -> None:
    room, now, sent = Headroom(rpm, tpm), 0.0, []
    for gap, tokens in asked:
        now += gap
        if tokens <= tpm * BURST_S / 60 and room.wait_s(now, tokens, 0) == 0.0:
            room.took(now, tokens, 0)
            sent.append((now, tokens))
    for begin, _ in sent:
        within = [tokens for at, tokens in sent if begin <= at < begin + 60.0]
        assert len(within) <= rpm + max(1.0, rpm * BURST_S / 60) + 1e-6
        assert sum(within) <= tpm * (1 + BURST_S / 60) + 1e-6


def test_the_wait_is_long_enough_and_no_longer() -> None:
    room = Headroom(60, None)
    for _ in range(15):
        assert room.wait_s(0.0, 1, 0) == 0.0
        room.requests.took(0.0, 1.0)
    assert room.wait_s(0.0, 1, 0) == pytest.approx(1.0)
    assert room.wait_s(0.99, 1, 0) > 0.0
    assert room.wait_s(1.001, 1, 0) == 0.0


def test_a_request_larger_than_a_burst_waits_for_a_full_one() -> None:
    room = Headroom(None, 4000)
    room.tokens.took(0.0, 500)
    assert room.wait_s(0.0, 50_000, 0) == pytest.approx(7.5)
    assert room.wait_s(7.6, 40_000, 10_000) == 0.0


def test_tokens_not_used_come_back() -> None:
    room = Headroom(None, 4000)
    room.took(0.0, 200, 800)
    assert room.wait_s(0.0, 500, 100) > 0.0
    room.came(0.0, -700)
    assert room.wait_s(0.0, 500, 100) == 0.0


def tells(room: Headroom, now: float, workers: int = 1, began: float | None = None, **said: tuple[float, float]) -> None:
    room.told(now, Limits(**said), workers, now if began is None else began, room.sent)


def test_what_a_vendor_tells_counts_down_until_its_reset() -> None:
    room = Headroom(None, None)
    assert not room.limited and room.wait_s(0.0, 10**9, 0) == 0.0
    tells(room, 10.0, requests=(2.0, 20.0), tokens=(5000.0, 8.0))
    assert room.limited
    assert room.wait_s(10.0, 3000, 1000) == 0.0
    assert room.wait_s(10.0, 5000, 1000) == pytest.approx(8.0)
    assert room.wait_s(18.5, 5000, 1000) == 0.0, "its limit is whole again"
    room.took(11.0, 1, 1)
    room.took(11.0, 1, 1)
    assert room.wait_s(18.5, 10, 0) == pytest.approx(11.5)


def test_a_vendor_that_names_a_day_is_believed_for_a_minute() -> None:
    room = Headroom(None, None)
    tells(room, 0.0, requests=(0.0, 86_400.0))
    assert room.wait_s(1.0, 1, 0) == pytest.approx(TOLD_CAP_S - 1)


def test_what_is_left_is_divided_among_the_workers() -> None:
    room = Headroom(None, None)
    tells(room, 0.0, workers=4, tokens=(4000.0, 30.0))
    assert room.wait_s(0.0, 900, 100) == 0.0
    assert room.wait_s(0.0, 900, 101) == pytest.approx(30.0)


def test_prompt_and_answer_limited_apart_are_looked_at_apart() -> None:
    room = Headroom(None, None)
    tells(room, 0.0, input=(50_000.0, 20.0), output=(500.0, 40.0))
    assert room.wait_s(0.0, 40_000, 400) == 0.0, "more than 500 in all, but not of the answer"
    assert room.wait_s(0.0, 100, 600) == pytest.approx(40.0)
    assert room.wait_s(0.0, 60_000, 100) == pytest.approx(20.0)
    room.took(0.0, 100, 400)
    assert room.wait_s(0.0, 100, 200) == pytest.approx(40.0)
    room.came(1.0, -300)
    assert room.wait_s(1.0, 100, 200) == 0.0, "the answer was shorter than expected"


def test_what_went_out_while_an_answer_was_under_way_is_not_counted_as_left() -> None:
    room = Headroom(None, None)
    tells(room, 0.0, requests=(100.0, 60.0))
    room.took(1.0, 10, 10)
    sent = room.sent
    for _ in range(3):
        room.took(1.1, 10, 10)
    room.told(2.0, Limits(requests=(3.0, 60.0)), 1, 1.0, sent)
    assert room.wait_s(2.0, 1, 1) == pytest.approx(60.0), "three were left, and three have gone since"


def test_old_news_is_none() -> None:
    room = Headroom(None, None)
    tells(room, 20.0, began=19.0, requests=(50.0, 60.0))
    tells(room, 30.0, began=1.0, requests=(0.0, 60.0))
    assert room.wait_s(30.0, 1, 1) == 0.0


def test_another_share_of_the_limits_takes_effect_and_what_was_told_stays() -> None:
    room = Headroom(60, None)
    tells(room, 0.0, tokens=(10.0, 50.0))
    room.resize(30, None)
    assert room.wait_s(0.0, 100, 0) == pytest.approx(50.0)
    for _ in range(7):
        room.took(0.0, 1, 0)
    assert room.wait_s(0.0, 1, 0) == pytest.approx(1.0), "7.5 at once, one every two seconds"
    unlimited = Headroom(None, None)
    unlimited.resize(None, 4000)
    assert unlimited.limited and unlimited.wait_s(0.0, 900, 0) == 0.0 and unlimited.wait_s(0.0, 50_000, 0) == 0.0
    unlimited.took(0.0, 1000, 0)
    assert unlimited.wait_s(0.0, 900, 0) > 0.0
