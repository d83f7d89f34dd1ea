"""How long to wait, in every form that servers use, bounded, and never from a good answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.retry_after import MAX_RETRY_AFTER_S, retry_after_s, wait_s

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30),
        ("0", 0),
        ("1.5", 1.5),
        ("-5", 0),
        ("130ms", 0.13),
        ("11.486s", 11.486),
        ("1m30s", 90),
        ("1h", 3600),
        ("2m59.56s", 179.56),
        ("2026-09-21T14:13:50Z", 30),
        ("2026-09-21T14:13:50", 30),
        ("2026-09-21T16:13:50+02:00", 30),
        ("2020-01-01T00:00:00Z", 0),
        ("Mon, 21 Sep 2026 14:13:50 GMT", 30),
        ("1790000030", 30),
        ("1790000030000", 30),
        ("999999", MAX_RETRY_AFTER_S),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("1x", None),
    ],
)
def test_every_form(value, seconds):
    found = wait_s(value, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


def test_a_good_answer_is_never_asked():
    assert retry_after_s(200, {"retry-after": "30"}) is None
    assert retry_after_s(302, {"retry-after": "30"}) is None


def test_milliseconds_have_their_header_and_the_longer_word_counts():
    assert retry_after_s(429, {"retry-after-ms": "1500"}) == 1.5
    assert retry_after_s(429, {"retry-after": "1", "retry-after-ms": "0"}) == 1


def test_a_spent_limit_s_reset_counts_where_no_wait_is_named():
    assert retry_after_s(429, {}, reset_s=11.486) == pytest.approx(11.486)
    assert retry_after_s(429, {}, reset_s=1e9) == MAX_RETRY_AFTER_S
    assert retry_after_s(503, {}, reset_s=11.486) is None
    assert retry_after_s(429, {"retry-after": "2"}, reset_s=11.486) == 2
    assert retry_after_s(429, {}, "Please try again in 20.5s.", reset_s=3.0) == 3.0


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 20.5s.", 20.5),
        ("Please retry in 48.9 seconds", 48.9),
        ("try again in 850ms", 0.85),
        ("retry after 2 minutes", 120),
        ("Retry after 3", 3),
        ("again and again", None),
    ],
)
def test_words_are_the_last_resort(message, seconds):
    assert retry_after_s(429, {}, message) == (None if seconds is None else pytest.approx(seconds))
    assert retry_after_s(429, {"retry-after": "7"}, message) == 7


@given(st.text(max_size=30))
def test_no_value_breaks_it_and_none_passes_the_bound(value):
    found = wait_s(value, NOW)
    assert found is None or 0 <= found <= MAX_RETRY_AFTER_S
