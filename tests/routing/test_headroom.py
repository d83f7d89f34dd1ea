from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.headroom import BURST_S, TOLD_CAP_S, Headroom


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 4000)), min_size=1, max_size=120), st.integers(1, 600), st.integers(100, 100_000)
)
def test_what_goes_out_never_passes_the_limits(asked: list[tuple[float, int]], rpm: int, tpm: int) -> None:
    room, now, sent = Headroom(rpm, tpm), 0.0, []
    for gap, tokens in asked:
        now += gap
        if tokens <= tpm * BURST_S / 60 and room.wait_s(now, tokens) == 0.0:
            room.requests.took(now, 1.0)
            room.tokens.took(now, tokens)
            sent.append((now, tokens))
    for begin, _ in sent:
        within = [tokens for at, tokens in sent if begin <= at < begin + 60.0]
        assert len(within) <= rpm + max(1.0, rpm * BURST_S / 60) + 1e-6
        assert sum(within) <= tpm * (1 + BURST_S / 60) + 1e-6


def test_the_wait_is_long_enough_and_no_longer() -> None:
    room = Headroom(60, None)
    for _ in range(15):
        assert room.wait_s(0.0, 1) == 0.0
        room.requests.took(0.0, 1.0)
    assert room.wait_s(0.0, 1) == pytest.approx(1.0)
    assert room.wait_s(0.99, 1) > 0.0
    assert room.wait_s(1.001, 1) == 0.0


def test_a_request_larger_than_a_burst_waits_for_a_full_one() -> None:
    room = Headroom(None, 4000)
    room.tokens.took(0.0, 500)
    assert room.wait_s(0.0, 50_000) == pytest.approx(7.5)
    assert room.wait_s(7.6, 50_000) == 0.0


def test_tokens_not_used_come_back() -> None:
    room = Headroom(None, 4000)
    room.tokens.took(0.0, 1000)
    assert room.wait_s(0.0, 600) > 0.0
    room.tokens.took(0.0, -700)
    assert room.wait_s(0.0, 600) == 0.0


def test_what_a_vendor_tells_counts_down_until_its_reset() -> None:
    room = Headroom(None, None)
    assert not room.limited and room.wait_s(0.0, 10**9) == 0.0
    room.told(10.0, (2.0, 20.0), (5000.0, 8.0))
    assert room.limited
    assert room.wait_s(10.0, 4000) == 0.0
    assert room.wait_s(10.0, 6000) == pytest.approx(8.0)
    assert room.wait_s(18.5, 6000) == 0.0, "its limit is whole again"
    room.requests.took(11.0, 1.0)
    room.requests.took(11.0, 1.0)
    assert room.wait_s(18.5, 10) == pytest.approx(11.5)


def test_a_vendor_that_names_a_day_is_believed_for_a_minute() -> None:
    room = Headroom(None, None)
    room.told(0.0, (0.0, 86_400.0), None)
    assert room.wait_s(1.0, 1) == pytest.approx(TOLD_CAP_S - 1)
