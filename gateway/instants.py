"""Instants as people write them: stretches from now, dates, ISO instants. Microseconds since 1970, UTC. Knows no clock."""

from __future__ import annotations

import re

from gateway.errors import InvalidRequest
from gateway.money.windows import read_instant

MICROSECONDS = {"h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}


def instant_us(text: str, now_us: int, field: str = "expires") -> int:
    """An instant as microseconds: from now (12h, 30d, 8w), a date (its midnight, UTC), or an ISO instant. InvalidRequest names `field`."""
    ahead = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    return date_us(text, field, "12h, 30d, 8w, ") if ahead is None else now_us + int(ahead[1]) * MICROSECONDS[ahead[2]]


def date_us(text: str, field: str, besides: str = "") -> int:
    """A date (its midnight, UTC) or an ISO instant as microseconds. besides: forms that the caller reads. InvalidRequest names `field`."""
    try:
        return read_instant(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{field}: '{text[:80]}' is no time: write {besides}2027-01-31 or 2027-01-31T12:00:00Z.", param=field
        ) from error


def future_us(text: str, now_us: int, field: str, what: str) -> int:
    """An instant after now; what: whose end it is. InvalidRequest names `field`."""
    at_us = instant_us(text, now_us, field)
    if at_us <= now_us:
        raise InvalidRequest(f"{field}: '{text}' is past: {what} ends in the future.", param=field)
    return at_us
