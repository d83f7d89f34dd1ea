"""How long a backend asks to wait, from the headers and words of an ERROR. (Some send `retry-after` with good answers: never read there.)

Four forms: plain seconds, durations (`130ms`, `1m30s`), instants (RFC 3339, HTTP dates) and `0`. Bounded.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_S = 3600.0

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_WORDS = re.compile(r"(?:retry|try again) (?:in|after) (\d+(?:\.\d+)?) ?(ms|milliseconds?|s|seconds?|m|minutes?)?\b", re.IGNORECASE)


def retry_after_s(
    status: int, headers: Mapping[str, str], message: str = "", stated_s: float | None = None, reset_s: float | None = None
) -> float | None:
    """Seconds, 0 … MAX_RETRY_AFTER_S; None where nothing is said. stated_s: what the body said in a field of its own. reset_s: when its
    rate limits are whole again, of which nothing is left (limit_headers.py)."""
    if status < 400:
        return None
    now = time.time()
    found = [
        seconds
        for seconds in (wait_s(headers.get("retry-after"), now), wait_s(headers.get("retry-after-ms"), now, unit=0.001))
        if seconds is not None
    ]
    if found:
        return max(found)  # some send whole seconds beside 0 milliseconds
    if stated_s is not None:
        return _bounded(stated_s)
    if status == 429 and reset_s is not None:
        return _bounded(reset_s)
    match = _WORDS.search(message)
    if match is None:
        return None
    unit = (match.group(2) or "s").lower()
    return _bounded(float(match.group(1)) * (0.001 if unit.startswith(("ms", "milli")) else 60.0 if unit.startswith("m") else 1.0))


def wait_s(value: str | None, now: float, unit: float = 1.0) -> float | None:
    """Seconds from `now` (Unix) that one header value means; None where it means nothing. unit: seconds of a plain number."""
    text = (value or "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return _duration(text) if text[0].isdigit() and "-" not in text else _instant(text, now)
    if not math.isfinite(number):
        return None
    if number > 1e12:
        return _bounded(number / 1000 - now)  # an instant in Unix milliseconds
    if number > 1e9:
        return _bounded(number - now)
    return _bounded(number * unit)


def _duration(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return _bounded(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)


def _instant(text: str, now: float) -> float | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            instant = parsedate_to_datetime(text)
        except ValueError:
            return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return _bounded(instant.timestamp() - now)


def _bounded(seconds: float) -> float | None:
    if seconds != seconds:  # noqa: PLR0124 - NaN
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
