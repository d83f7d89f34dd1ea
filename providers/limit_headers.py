"""What an answer's headers say is left of a vendor's rate limits: OpenAI's and Anthropic's names, the IETF's, and their relatives.

A table of names, one look at each header of an answer; where none of them is there, nothing is made. Values are a stranger's: what cannot
be read says nothing. Knows no vendor and no error's `retry-after`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from providers.retry_after import wait_s

UNSAID_S = 10.0  # a limit without a word on its reset is believed for so long
LONGEST_VALUE = 256  # bytes; a longer one says nothing
ITEMS_MOST = 8  # limits that one structured header lists

Left = tuple[float, float]
"""(what is left, seconds until the limit is whole again)"""


class Limits(Struct, frozen=True, kw_only=True):
    """Of each kind the tightest limit that was told, None = nothing was. tokens: of prompt and answer together; input, output: apart."""

    requests: Left | None = None
    tokens: Left | None = None
    input: Left | None = None
    output: Left | None = None

    @property
    def reset_s(self) -> float | None:
        """Seconds until those of which nothing is left are whole again; None where something is left of each."""
        return max(
            (left[1] for left in (self.requests, self.tokens, self.input, self.output) if left is not None and left[0] < 1.0), default=None
        )


_PERIODS = {"": 0.0, "-10-second": 10.0, "-second": 1.0, "-minute": 60.0, "-hour": 3600.0, "-day": 86_400.0, "-month": 2_592_000.0}
_PERIODS |= {f"-per{name}": seconds for name, seconds in _PERIODS.items() if name}
_KINDS = {  # as they stand in x-ratelimit-…-KIND and anthropic-ratelimit-KIND-…
    "requests": "requests",
    "req": "requests",
    "tokens": "tokens",
    "tokens_usage_based": "tokens",
    "tokens-prompt": "input",
    "input-tokens": "input",
    "tokens-generated": "output",
    "output-tokens": "output",
}
_MEMBERS = ("limit", "remaining", "reset", "renewalperiod")

Slot = tuple[tuple[str, str, float], str]  # (kind, which limit of this kind, seconds it spans or 0), member


def _names() -> dict[bytes, Slot]:
    """Every header in lower case that tells something of a limit."""
    found: dict[str, Slot] = {}
    for member in _MEMBERS:
        for period, seconds in _PERIODS.items():
            for word, kind in _KINDS.items():
                found[f"x-ratelimit-{member}-{word}{period}"] = ((kind, word + period, seconds), member)
            for plain in ("x-ratelimit", "ratelimit"):
                found[f"{plain}-{member}{period}"] = (("requests", plain + period, seconds), member)
        for word, kind in _KINDS.items():
            found[f"anthropic-ratelimit-{word}-{member}"] = ((kind, word, 0.0), member)
        for plain in ("ratelimitbysize", "x-tokenlimit"):
            found[f"{plain}-{member}"] = (("tokens", plain, 0.0), member)
    found["ratelimit"] = (("requests", "listed", 0.0), "list")
    return {name.encode(): slot for name, slot in found.items()}


NAMES = _names()
Found = dict[tuple[str, str, float], dict[str, str]]  # the members of each limit
_LEADING = re.compile(r"\d{1,18}(?=\s*[;,])")
_PARAMETER = re.compile(r"(?:^|[;,\s])(r|remaining|t|reset)=(\d{1,18})(?![\w.])")


def told(headers: Iterable[tuple[bytes, bytes]]) -> Limits | None:
    """What the headers of an answer say, good or refused; None where they say nothing of limits. headers: names in any case."""
    found: Found | None = None
    for name, value in headers:
        slot = NAMES.get(name.lower())
        if slot is None or len(value) > LONGEST_VALUE:
            continue
        if found is None:
            found = {}
        found.setdefault(slot[0], {})[slot[1]] = value.decode("latin-1").strip()
    return None if found is None else _tightest(found)


def _tightest(found: Found) -> Limits | None:
    now = time.time()
    best: dict[str, Left] = {}
    for (kind, _, period_s), members in found.items():
        listed = members.get("list")
        for left in _listed(listed) if listed is not None else [_read(members, period_s, now)]:
            if left is not None and (kind not in best or (left[0], -left[1]) < (best[kind][0], -best[kind][1])):
                best[kind] = left
    return Limits(**best) if best else None


def _read(members: dict[str, str], period_s: float, now: float) -> Left | None:
    """One limit of its members; None where nothing is said of what is left, or where it is none."""
    left = _number(members.get("remaining", ""))
    if left is None or members.get("limit") == "0":
        return None
    period = members.get("renewalperiod")
    if period is not None:
        period_s = _number(period) or period_s
    reset = members.get("reset", "")
    seconds = None if reset[4:5] == "-" else _relative(reset)  # a year comes first in an instant
    if seconds is None:
        seconds = wait_s(reset, now)
        if seconds is None:
            return left, min(period_s, UNSAID_S) if period_s else UNSAID_S
    elif period_s and seconds > period_s and _number(reset) is not None:  # Azure's, at times: a plain number of milliseconds
        seconds /= 1000
    return left, seconds


@lru_cache(4096)
def _relative(reset: str) -> float | None:
    """The seconds of a reset that needs no clock; None of an instant, and of what means nothing. Few are written, over and over."""
    return wait_s(reset, math.nan)


def _listed(value: str) -> list[Left]:
    """The IETF's structured form: `"minute";r=3;t=20, "day";r=900`, and its older one: `limit=10, remaining=3, reset=20`."""
    items = [value] if "remaining=" in value else value.split(",")[:ITEMS_MOST]
    found = []
    for item in items:
        said = {name[0:3]: float(number) for name, number in _PARAMETER.findall(item)}
        left = said.get("r", said.get("rem"))
        if left is not None:
            found.append((left, said.get("t", said.get("res", UNSAID_S))))
    return found


def _number(text: str) -> float | None:
    """A number that is not negative: some say -1 for what is not limited. The IETF's older headers go on after it: `100;w=60`."""
    try:
        number = float(text)
    except ValueError:
        match = _LEADING.match(text)
        if match is None:
            return None
        number = float(match[0])
    return number if 0.0 <= number < math.inf else None
