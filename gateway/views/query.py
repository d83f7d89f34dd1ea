"""The common query of the console's pages: range, zone, filters, order and cursor from a URL, and the URL of the same view changed.

A page names the filters that it applies; a name that it does not know is refused, because it may be a filter that was meant. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.pricing import nanousd
from gateway.money.windows import bounds, read_instant, to_datetime, zone

LONGEST_US = 10 * 366 * DAY_US  # of a stretch: its steps are made while others wait
RANGES = {"1h": HOUR_US, "24h": DAY_US, "7d": 7 * DAY_US, "30d": 30 * DAY_US, "month": 0, "quarter": 0}
RANGE_WORDS = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d", "month": "Month", "quarter": "Quarter"}
TIME = ("range", "from", "to", "tz")
WORDS = ("team", "route", "backend", "outcome", "key", "model", "tag", "only")  # may be repeated: any of them
MONEY = ("cost_min", "cost_max")  # USD
MILLISECONDS = ("ttft_min", "ttft_max")
FILTERS = (*WORDS, *MONEY, *MILLISECONDS, "q")
ONLY = ("failed_over", "hedged", "missed_objective", "unpriced")
VALUES_MAX = 50  # of one repeated name
LENGTH_MAX = 200  # characters of one value
MS_MAX = 10**9


class Query(Struct, frozen=True, kw_only=True):
    """What a page was asked for. range: of RANGES, or "" for from_us and until_us as given (until_us is not included).

    words: the repeated filters by name. money: nano-USD by name. ms: by name. more: the page's own single values. asked: name and value
    pairs as they stood in the URL, without the zone when it came from the cookie.
    """

    range: str
    from_us: int
    until_us: int
    now_us: int
    tz: str
    words: Mapping[str, tuple[str, ...]] = {}
    money: Mapping[str, int] = {}
    ms: Mapping[str, int] = {}
    q: str = ""
    sort: str = ""
    after: str = ""
    more: Mapping[str, str] = {}
    asked: tuple[tuple[str, str], ...] = ()

    @property
    def zone(self) -> ZoneInfo:
        return zone(self.tz)

    @property
    def buckets(self) -> tuple[int, int]:
        """from_us and until_us widened to whole quarters of an hour, the grain of roll-ups."""
        return self.from_us - self.from_us % BUCKET_US, self.until_us + -self.until_us % BUCKET_US

    @property
    def before(self) -> tuple[int, int]:
        """The stretch of the same length that ends where this one begins."""
        from_us, until_us = self.buckets
        return from_us - (until_us - from_us), from_us

    @property
    def words_of_range(self) -> str:
        """For figures: "24 h", "Month"; "range" for a custom one."""
        return RANGE_WORDS.get(self.range, "range")

    def one(self, name: str) -> str:
        """The value of a filter that a page takes once; "" without it."""
        values = self.words.get(name, ())
        if len(values) > 1:
            raise InvalidRequest(f"{name}: this page takes one, not {len(values)}.", param=name)
        return values[0] if values else ""

    def url(self, path: str = "", **changes: str | int | Iterable[str] | None) -> str:
        """This view with other values: None or "" drops a name, a list repeats it. A cursor is kept only where it is named.

        Choosing a range drops from and to, and the other way round. Names that are Python words end in an underscore: from_="…".
        """
        told = {name.rstrip("_"): value for name, value in changes.items()}
        dropped = set(told) | {"after"}
        if "range" in told:
            dropped |= {"from", "to"}
        if "from" in told:
            dropped |= {"range"}
        pairs = [(name, value) for name, value in self.asked if name not in dropped]
        for name, value in told.items():
            if value is None or value == "":
                continue
            pairs += [(name, str(value))] if isinstance(value, str | int) else [(name, one) for one in value]
        return f"{path}?{urlencode(pairs)}" if pairs else path or "?"

    def without(self, name: str, value: str) -> str:
        """The URL with one value of a repeated filter taken away, for a chip's cross."""
        kept: dict[str, Any] = {name: [one for one in self.words.get(name, ()) if one != value]}
        return self.url(**kept)


def read(
    pairs: Iterable[tuple[str, str]],
    now_us: int,
    names: Collection[str] = (),
    *,
    more: Mapping[str, Collection[str]] = {},
    default: str = "24h",
    tz: str = "UTC",
) -> Query:
    """The query of a URL. names: of FILTERS, sort and after, that the page applies. more: its own names with the values they may have, the
    first of which holds when it is not there; none = any text. tz: of the viewer, when the URL names none. InvalidRequest names what is
    wrong.
    """
    asked = tuple((name, value) for name, value in pairs if value)
    given: dict[str, list[str]] = {}
    for name, value in asked:
        if name not in TIME and name not in names and name not in more:
            raise InvalidRequest(f"There is no parameter '{name[:80]}' here.", param=name[:80])
        if len(value) > LENGTH_MAX or not value.isprintable():
            raise InvalidRequest(f"{name}: write at most {LENGTH_MAX} printable characters.", param=name)
        given.setdefault(name, []).append(value)
    for name, values in given.items():
        if len(values) > (VALUES_MAX if name in WORDS else 1):
            raise InvalidRequest(f"{name}: it is there {len(values)} times.", param=name)
    single = {name: values[0] for name, values in given.items() if name not in WORDS}
    chosen = _zone(single.get("tz", tz), tz)
    stretch, from_us, until_us = _stretch(single, now_us, chosen, default)
    return Query(
        range=stretch,
        from_us=from_us,
        until_us=until_us,
        now_us=now_us,
        tz=chosen,
        words={name: tuple(given[name]) for name in WORDS if name in given},
        money={name: _usd(name, single[name]) for name in MONEY if name in single},
        ms={name: _ms(name, single[name]) for name in MILLISECONDS if name in single},
        q=single.get("q", ""),
        sort=single.get("sort", ""),
        after=single.get("after", ""),
        more={name: _own(name, single.get(name), allowed) for name, allowed in more.items()},
        asked=asked,
    )


def _own(name: str, value: str | None, allowed: Collection[str]) -> str:
    if value is None:
        return next(iter(allowed), "")
    if allowed and value not in allowed:
        raise InvalidRequest(f"{name}: use {', '.join(one for one in allowed if one)}.", param=name)
    return value


def _zone(asked: str, known: str) -> str:
    """What the URL says must be a zone; what a cookie says may be any text, and is then UTC."""
    try:
        return str(zone(asked))
    except ValueError as error:
        if asked == known:
            return "UTC"
        raise InvalidRequest(f"tz: {error}.", param="tz") from error


def _stretch(single: Mapping[str, str], now_us: int, tz: str, default: str) -> tuple[str, int, int]:
    """(range, from, until). Relative ranges end with the hour that runs, short ones with its quarter: roll-ups by team are of hours."""
    chosen = single.get("range", default)
    end_us = now_us + -now_us % (BUCKET_US if chosen == "1h" else HOUR_US)
    if "from" in single or "to" in single:
        if "range" in single:
            raise InvalidRequest("range: give it or from and to, not both.", param="range")
        if "from" not in single:
            raise InvalidRequest("from is missing: from=2026-11-01.", param="from")
        from_us = _instant("from", single["from"], tz)
        until_us = _instant("to", single["to"], tz) if "to" in single else end_us
        if from_us >= until_us:
            raise InvalidRequest("to: the end comes after the beginning.", param="to")
        if until_us - from_us > LONGEST_US:
            raise InvalidRequest("from: ask for ten years at most.", param="from")
        return "", from_us, until_us
    if chosen not in RANGES:
        raise InvalidRequest(f"range: use {', '.join(RANGES)}, or from and to.", param="range")
    if chosen == "month":
        return chosen, bounds("month", tz, now_us)[0], end_us
    if chosen == "quarter":
        return chosen, _quarter(tz, now_us), end_us
    return chosen, end_us - RANGES[chosen], end_us


def _quarter(tz: str, now_us: int) -> int:
    """Where the quarter of a year began that holds an instant."""
    start_us = bounds("month", tz, now_us)[0]
    for _ in range((to_datetime(now_us).astimezone(zone(tz)).month - 1) % 3):
        start_us = bounds("month", tz, start_us - 1)[0]
    return start_us


def _instant(name: str, text: str, tz: str) -> int:
    try:
        at_us = read_instant(text.replace(" ", "+") if "T" in text else text, zone(tz))  # a plus that a URL made a blank
    except ValueError as error:
        raise InvalidRequest(f"{name}: '{text[:80]}' is no date or time: write 2026-11-01 or 2026-11-01T12:00:00Z.", param=name) from error
    if len(text) == 10:  # where midnight does not exist, the day begins later
        noon = to_datetime(at_us).astimezone(zone(tz)) + timedelta(hours=12)
        return bounds("day", tz, read_instant(noon.isoformat()))[0]
    return at_us


def _usd(name: str, text: str) -> int:
    try:
        return nanousd(text, name)
    except ValueError as error:
        raise InvalidRequest(f"{error}.", param=name) from error


def _ms(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MS_MAX:
        raise InvalidRequest(f"{name}: write a whole number of milliseconds, such as 1500.", param=name)
    return int(text)
