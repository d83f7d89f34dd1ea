"""Periods: they tile time in every zone, and their edges are the ones a calendar in that zone shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.money.windows import PERIODS, bounds, read_instant, to_datetime, to_us, zone

ZONES = [
    "UTC",
    "Asia/Shanghai",
    "Europe/Amsterdam",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Sao_Paulo",
]
INSTANTS = st.integers(to_us(datetime(2000, 1, 1, tzinfo=UTC)), to_us(datetime(2040, 1, 1, tzinfo=UTC)))


def utc(text: str) -> int:
    return to_us(datetime.fromisoformat(text))


def test_g27_a_day_in_shanghai_ends_at_sixteen_utc() -> None:
    """G27: exhausted at 15:59:59Z, open at 16:00:00Z, next reset a day later."""
    before = bounds("day", "Asia/Shanghai", utc("2026-08-19T15:59:59Z"))
    after = bounds("day", "Asia/Shanghai", utc("2026-08-19T16:00:00Z"))
    assert before[1] == after[0] == utc("2026-08-19T16:00:00Z")
    assert after[1] == utc("2026-08-20T16:00:00Z")


def test_g27_the_day_of_the_autumn_change_has_25_hours() -> None:
    """G27."""
    found = bounds("day", "Europe/Amsterdam", utc("2026-10-25T12:00:00Z"))
    assert found == (utc("2026-10-24T22:00:00Z"), utc("2026-10-25T23:00:00Z"))


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    at = utc("2026-03-01T03:30:00Z")  # a Sunday; in New York still Saturday, the 28th of February
    assert bounds("week", "UTC", at) == (utc("2026-02-23T00:00:00Z"), utc("2026-03-02T00:00:00Z"))
    assert bounds("month", "UTC", at) == (utc("2026-03-01T00:00:00Z"), utc("2026-04-01T00:00:00Z"))
    assert bounds("month", "America/New_York", at) == (utc("2026-02-01T05:00:00Z"), utc("2026-03-01T05:00:00Z"))
    assert bounds("total", "America/New_York", at) == (0, None)


def test_a_day_whose_midnight_does_not_exist_begins_after_the_gap() -> None:
    """São Paulo put its clocks forward at 00:00 on 2018-11-04: the day began at 01:00 local, 03:00Z, and had 23 hours."""
    assert bounds("day", "America/Sao_Paulo", utc("2018-11-04T12:00:00Z")) == (utc("2018-11-04T03:00:00Z"), utc("2018-11-05T02:00:00Z"))


@settings(max_examples=150, deadline=None)
@given(at=INSTANTS, period=st.sampled_from(["day", "week", "month"]), timezone=st.sampled_from(ZONES))
def test_periods_tile_time(at: int, period: str, timezone: str) -> None:
    starts, ends = bounds(period, timezone, at)
    assert ends is not None
    assert starts <= at < ends
    assert bounds(period, timezone, starts) == bounds(period, timezone, ends - 1) == (starts, ends)
    assert bounds(period, timezone, ends)[0] == ends
    assert bounds(period, timezone, starts - 1)[1] == starts


@given(at=INSTANTS)
def test_microseconds_are_exact_both_ways(at: int) -> None:
    assert to_us(to_datetime(at)) == at


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(ValueError, match="Mars/Olympus"):
        bounds("day", "Mars/Olympus", 0)
    with pytest.raises(ValueError, match="day, week, month, total"):
        bounds("fortnight", "UTC", 0)
    assert PERIODS == ("day", "week", "month", "total")


@pytest.mark.parametrize("name", ["localtime", "posixrules", "Factory", "../etc/passwd", "a\0b", ""])
def test_a_file_beside_the_zones_is_no_zone(name: str) -> None:
    """Two machines would cut a budget's days at different instants."""
    with pytest.raises(ValueError, match="use an IANA name such as Europe/Berlin"):
        zone(name)


def test_dates_are_of_their_zone_and_instants_of_their_own() -> None:
    berlin = zone("Europe/Berlin")
    assert read_instant("2026-11-01") == utc("2026-11-01T00:00:00Z")
    assert read_instant("2026-11-01", berlin) == utc("2026-10-31T23:00:00Z")
    assert read_instant("2026-11-01T00:00:00+05:30", berlin) == utc("2026-10-31T18:30:00Z")
    for text in ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "1899-12-31", "soon", ""):
        with pytest.raises(ValueError):
            read_instant(text)
