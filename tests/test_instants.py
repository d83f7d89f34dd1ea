from __future__ import annotations

import pytest

from gateway.errors import InvalidRequest
from gateway.instants import date_us, future_us, instant_us

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("12h", 12 * HOUR_US),
        ("8w", 8 * 7 * 24 * HOUR_US),
        ("1970-01-02", 24 * HOUR_US),
        ("1970-01-01T01:00:00Z", HOUR_US),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_instants_are_read(text: str, at_us: int) -> None:
    assert instant_us(text, 0) == at_us


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:59", "9999-12-31", "0001-01-01", "0001-01-01T00:00:00+23:59", "1899-12-31"])
def test_an_instant_that_no_calendar_can_show_in_every_zone_is_refused_by_name(text: str) -> None:
    """One such price, key or override made every later listing fail."""
    with pytest.raises(InvalidRequest, match=r"^until: '.*' is no time: write 12h, 30d, 8w, ") as told:
        instant_us(text, 0, "until")
    assert told.value.param == "until"


def test_a_date_is_not_a_stretch_of_time() -> None:
    assert date_us("1970-01-02", "--since") == 24 * HOUR_US
    with pytest.raises(InvalidRequest, match=r"^--since: '30d' is no time: write 2027-01-31 or "):
        date_us("30d", "--since")


def test_an_end_lies_in_the_future() -> None:
    assert future_us("1h", 5, "until", "an override") == HOUR_US + 5
    with pytest.raises(InvalidRequest, match=r"^until: '1970-01-02' is past: an override ends in the future.$"):
        future_us("1970-01-02", 24 * HOUR_US, "until", "an override")
