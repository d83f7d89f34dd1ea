"""Numbers and instants as the console writes them: short text from exact integers, rounded half up here and nowhere else. Pure.

Money is integer nano-USD, durations are milliseconds, instants are microseconds since 1970, shares are floats from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo

from gateway.money.windows import to_datetime

NANO = 1_000_000_000
MINUS = "−"
NBSP = "\u00a0"
SLOTS = 7  # colours that name a thing; the eighth is for the rest
REST = 8
UNPRICED = "unpriced"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_THOUSANDS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_US = 1_000_000


def half_up(value: int, unit: int) -> int:
    """value / unit rounded half away from zero, exact for integers of any size."""
    whole, rest = divmod(abs(value), unit)
    rounded = whole + (2 * rest >= unit)
    return rounded if value >= 0 else -rounded


def exact(nanousd: int | None) -> str:
    """All nine decimals: $1,287.327141136."""
    if nanousd is None:
        return UNPRICED
    whole, rest = divmod(abs(nanousd), NANO)
    return f"{_sign(nanousd)}${whole:,}.{rest:09d}"


def money(nanousd: int | None) -> str:
    """From a dollar on two decimals and commas, below it three significant digits; $0; None is unpriced, which is not zero."""
    if nanousd is None:
        return UNPRICED
    size = abs(nanousd)
    if size == 0:
        return "$0"
    if size >= NANO:
        cents = half_up(size, NANO // 100)
        return f"{_sign(nanousd)}${cents // 100:,}.{cents % 100:02d}"
    digits = len(str(size))
    places = min(9, 9 - digits + 3)  # of decimals that leave three significant digits
    unit = 10 ** (9 - places)
    rounded = half_up(size, unit)
    if rounded >= 10**places:  # $0.9996
        return f"{_sign(nanousd)}$1.00"
    text = f"{rounded:0{places}d}"
    if places > 3 and len(str(rounded)) > 3 and text.endswith("0"):  # 0.09996 is 0.100, not 0.1000
        text = text[:-1]
    return f"{_sign(nanousd)}$0.{text}"


def _sign(value: int) -> str:
    return MINUS if value < 0 else ""


def count(number: int) -> str:
    """Every digit, with commas."""
    return f"{_sign(number)}{abs(number):,}"


def tokens(number: int) -> str:
    """Exact under 10,000, then three significant digits: 45.2k, 1.30B."""
    size = abs(number)
    if size < 10_000:
        return count(number)
    for unit, letter in _THOUSANDS:
        if size * 2000 >= unit * 1999:  # from here on three digits of the next smaller unit would be a thousand
            return f"{_sign(number)}{significant(size, unit)}{letter}"
    raise AssertionError("the smallest unit fits whatever is not small")


def significant(size: int, unit: int) -> str:
    """size / unit with three significant digits, for quotients below 1000 (or above, without decimals)."""
    for places in (2, 1):
        rounded = half_up(size * 10**places, unit)
        if rounded < 1000:
            return f"{rounded // 10**places}.{rounded % 10**places:0{places}d}"
    return f"{half_up(size, unit):,}"


def duration(ms: float | None) -> str:
    """318 ms · 1.12 s · 38.6 s · 2 min 05 s · 3 h 07 min. None is "no samples"."""
    if ms is None:
        return "no samples"
    whole = round(ms)
    if whole < 1000:
        return f"{whole} ms"
    if half_up(whole, 100) < 600:
        return f"{significant(whole, 1000)} s"
    seconds = half_up(whole, 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = half_up(seconds, 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def share(part: float | None) -> str:
    """Per cent: one decimal under ten, whole above. None is "none"."""
    if part is None:
        return "none"
    tenths = half_up(round(abs(part) * 1_000_000), 1000)
    sign = MINUS if part < 0 and tenths else ""
    text = f"{tenths // 10}.{tenths % 10}" if tenths < 100 else f"{half_up(round(abs(part) * 1_000_000), 10_000):,}"
    if tenths == 0:
        text = "0" if part == 0 else "<0.1"
    return f"{sign}{text}{NBSP}%"


def share_fine(part: float | None) -> str:
    """Per cent with one decimal, rounded down: 99.96 % is not all of them."""
    if part is None:
        return "none"
    tenths = int(part * 1000 + 1e-9)
    return f"{tenths // 10}.{tenths % 10}{NBSP}%" if tenths < 1000 else f"100{NBSP}%"


def ratio(part: int, whole: int) -> float | None:
    """part / whole; None of nothing."""
    return part / whole if whole else None


def per_million(nanousd: int, number: int) -> str:
    """USD per million tokens, two decimals from $10 on, three below. "none" without a token."""
    if number <= 0:
        return "none"
    price = half_up(nanousd * 1_000_000, number)  # nano-USD per million
    if abs(price) >= 10 * NANO:
        return money(price)
    mills = half_up(price, NANO // 1000)
    return f"{_sign(mills)}${abs(mills) // 1000}.{abs(mills) % 1000:03d}"


def rate(per_second: float | None) -> str:
    """58.4 tokens/s."""
    return "no samples" if per_second is None else f"{significant(round(per_second * 1000), 1000)} tokens/s"


def change(now: int, before: int) -> tuple[str, float] | None:
    """How much more or less than before: ("▼ 6.1 %", -0.061). None where there was nothing to compare with."""
    if before <= 0:
        return None
    part = (now - before) / before
    arrow = "▲" if part > 0 else "▼" if part < 0 else "="
    return f"{arrow}{NBSP}{share(abs(part))}", part


# ---- instants
def day(at_us: int, zone: tzinfo, now_us: int | None = None) -> str:
    """18 Nov; with its year where that is another than now's."""
    at = to_datetime(at_us).astimezone(zone)
    year = "" if now_us is None or to_datetime(now_us).astimezone(zone).year == at.year else f" {at.year}"
    return f"{at.day} {_MONTHS[at.month - 1]}{year}"


def clock(at_us: int, zone: tzinfo) -> str:
    return f"{to_datetime(at_us).astimezone(zone):%H:%M}"


def when(at_us: int, zone: tzinfo, now_us: int) -> str:
    """14:31:07 of today, 18 Nov 14:31 of this year, 18 Nov 2025 14:31."""
    at, now = to_datetime(at_us).astimezone(zone), to_datetime(now_us).astimezone(zone)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{day(at_us, zone, now_us)} {at:%H:%M}"


def rfc3339(at_us: int, zone: tzinfo) -> str:
    """For <time datetime> and links: seconds, with the zone's offset."""
    at = to_datetime(at_us).astimezone(zone)
    return at.isoformat(timespec="seconds") if at_us % _US == 0 else at.isoformat(timespec="microseconds")


def local_input(at_us: int, zone: tzinfo) -> str:
    """For <input type=datetime-local>."""
    return f"{to_datetime(at_us).astimezone(zone):%Y-%m-%dT%H:%M}"


def offset(at_us: int, zone: tzinfo) -> str:
    """UTC+1, UTC−3:30: what a zone's clocks are ahead by at an instant."""
    ahead = to_datetime(at_us).astimezone(zone).utcoffset()
    minutes = 0 if ahead is None else round(ahead.total_seconds()) // 60
    if minutes == 0:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{MINUS if minutes < 0 else '+'}{hours}{f':{rest:02d}' if rest else ''}"


def ago(at_us: int | None, now_us: int) -> str:
    """Only for "last used": just now, 4 min ago, 3 h ago, 12 days ago, never."""
    if at_us is None:
        return "never"
    seconds = max(0, now_us - at_us) // _US
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h ago"
    return f"{seconds // 86_400} days ago"


# ---- drawing
def slots(names: Iterable[str], order: Mapping[str, int]) -> dict[str, int]:
    """The colour of each name, 1 to 7: its place of birth modulo seven; on a clash the later takes the next free one, and REST when all
    are taken. order: the place of each name where it is known."""
    taken: set[int] = set()
    found: dict[str, int] = {}
    for name in sorted(names, key=lambda one: (order.get(one, len(order)), one)):
        first = order.get(name, len(order) + len(found)) % SLOTS
        free = [slot for slot in ((first + step) % SLOTS + 1 for step in range(SLOTS)) if slot not in taken]
        found[name] = free[0] if free else REST
        taken.add(found[name])
    return found


def percent(part: float) -> str:
    """A width for SVG: 0 to 100 with one decimal."""
    return f"{min(1.0, max(0.0, part)) * 100:.1f}%"


def spark(values: Iterable[float | None], width: int = 100, height: int = 26) -> str:
    """Points of a polyline from zero to the largest; what is missing is drawn at zero. Empty without two values."""
    points = [0.0 if value is None else float(value) for value in values]
    if len(points) < 2:
        return ""
    top = max(points) or 1.0
    room = height - 4
    return " ".join(
        f"{place * width / (len(points) - 1):.1f},{height - 1 - max(0.0, value) / top * room:.1f}" for place, value in enumerate(points)
    )
