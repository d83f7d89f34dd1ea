"""Where a budget's periods begin and end: day, ISO week, month in an IANA zone, or the whole of time. Pure; knows no budget's money."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

PERIODS = ("day", "week", "month", "total")
FIRST_YEAR, LAST_YEAR = 1900, 9998
NOT_ZONES = ("localtime", "posixrules", "Factory")  # files beside the zones, which differ from machine to machine or mean none
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Integer microseconds since 1970 of an aware datetime, exact."""
    return (instant - _EPOCH) // _MICROSECOND


def to_datetime(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def read_instant(text: str, local: tzinfo = UTC) -> int:
    """Microseconds of a date (its midnight in `local`) or an ISO instant. ValueError for any other text, and for years that nobody means
    and that no calendar could show in every zone."""
    try:
        at = datetime.fromisoformat(text)
        at = (at if at.tzinfo is not None else at.replace(tzinfo=local)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is beyond the calendar") from error
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise ValueError(f"{text!r} is not in the years {FIRST_YEAR} to {LAST_YEAR}")
    return to_us(at)


def zone(name: str) -> ZoneInfo:
    """The IANA zone, or ValueError that names what was wrong."""
    try:
        if name in NOT_ZONES:
            raise ValueError("what it means is each machine's own affair")
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name!r}: use an IANA name such as Europe/Berlin") from error


@lru_cache(maxsize=4096)
def _start_us(day: date, timezone: str) -> int:
    """The first instant of a local day. Where midnight does not exist (a change at 00:00) that is the first instant after the gap."""
    local = datetime.combine(day, time(), tzinfo=zone(timezone))
    instant = local.astimezone(UTC)
    if instant.astimezone(local.tzinfo).date() < day:  # the skipped midnight, read with the old offset, lies in the day before
        instant = local.replace(fold=1).astimezone(UTC)
    return to_us(instant)


def bounds(period: str, timezone: str, at_us: int) -> tuple[int, int | None]:
    """(starts_us, ends_us) of the period that holds at_us, half open; `total` is (0, None). Adjoining periods tile time."""
    if period == "total":
        return 0, None
    day = to_datetime(at_us).astimezone(zone(timezone)).date()
    if period == "day":
        first, after = day, day + timedelta(days=1)
    elif period == "week":
        first = day - timedelta(days=day.weekday())
        after = first + timedelta(days=7)
    elif period == "month":
        first = day.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    else:
        raise ValueError(f"unknown period {period!r}: use one of {', '.join(PERIODS)}")
    return _start_us(first, timezone), _start_us(after, timezone)
