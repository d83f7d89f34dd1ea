"""Numbers as people read them: what is shown rounds to what is stored, and never says zero of what is not."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.views import figures
from gateway.views.figures import MINUS, NANO

BERLIN = ZoneInfo("Europe/Berlin")
AT = 1_795_008_667_000_000  # 2026-11-18 14:31:07 in Berlin
AMOUNTS = st.integers(-(10**18), 10**18)


def number(text: str) -> Decimal:
    return Decimal(text.replace(",", "").replace("$", "").replace(MINUS, "-"))


@given(AMOUNTS)
def test_exact_money_loses_nothing(amount: int) -> None:
    assert number(figures.exact(amount)) * NANO == amount


@given(AMOUNTS)
def test_short_money_is_the_amount_rounded_half_up(amount: int) -> None:
    told = number(figures.money(amount))
    value = Decimal(amount) / NANO
    if abs(value) >= 1:
        assert told == value.quantize(Decimal("0.01"), ROUND_HALF_UP)
    elif amount:
        step = Decimal(1).scaleb(max(-9, value.adjusted() - 2))
        assert told == value.quantize(step, ROUND_HALF_UP)
    assert (told == 0) is (amount == 0)
    assert figures.money(-amount).lstrip(MINUS) == figures.money(amount).lstrip(MINUS)


@pytest.mark.parametrize(
    ("amount", "told"),
    [
        (0, "$0"),
        (611_250, "$0.000611"),
        (1, "$0.000000001"),
        (992_000_000, "$0.992"),
        (999_500_000, "$1.00"),
        (1_287_327_141_136, "$1,287.33"),
        (-5_000_000_000, "−$5.00"),
        (None, "unpriced"),
    ],
)
def test_money(amount: int | None, told: str) -> None:
    assert figures.money(amount) == told


@given(st.integers(0, 10**15))
def test_tokens_are_exact_or_three_digits(many: int) -> None:
    told = figures.tokens(many)
    if many < 10_000:
        assert told == f"{many:,}"
    else:
        text, unit = told[:-1], {"k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}[told[-1]]
        assert abs(number(text) * unit - many) * 200 <= many + 1
        assert len(re.sub(r"[.,]", "", text)) == 3 or many >= 999_500_000_000_000


@pytest.mark.parametrize(("many", "told"), [(45_234, "45.2k"), (1_300_000_000, "1.30B"), (999_499, "999k"), (999_500, "1.00M")])
def test_tokens(many: int, told: str) -> None:
    assert figures.tokens(many) == told


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (None, "no samples"),
        (0, "0 ms"),
        (318, "318 ms"),
        (999.6, "1.00 s"),
        (1120, "1.12 s"),
        (9996, "10.0 s"),
        (38_600, "38.6 s"),
        (59_950, "1 min 00 s"),
        (125_000, "2 min 05 s"),
        (11_220_000, "3 h 07 min"),
    ],
)
def test_durations(ms: float | None, told: str) -> None:
    assert figures.duration(ms) == told


@pytest.mark.parametrize(
    ("part", "told"),
    [(None, "none"), (0.0, "0 %"), (0.00004, "<0.1 %"), (0.061, "6.1 %"), (0.0996, "10 %"), (0.594, "59 %"), (1.2, "120 %")],
)
def test_shares(part: float | None, told: str) -> None:
    assert figures.share(part).replace("\u00a0", " ") == told


@given(st.integers(0, 10**15), st.integers(1, 10**12))
def test_a_price_per_million_is_the_quotient(amount: int, many: int) -> None:
    exact = Decimal(amount) * 10**6 / many / NANO
    assert abs(number(figures.per_million(amount, many)) - exact) <= (Decimal("0.0051") if exact >= 10 else Decimal("0.00051"))


def test_changes_have_a_direction_and_need_something_to_compare_with() -> None:
    assert figures.change(5, 0) is None
    assert figures.change(939, 1000) == ("▼\u00a06.1\u00a0%", -0.061)
    assert figures.change(150, 100) == ("▲\u00a050\u00a0%", 0.5)


def test_instants_are_of_the_zone() -> None:
    assert figures.when(AT, BERLIN, AT + 1_000_000) == "14:31:07"
    assert figures.when(AT, BERLIN, AT + 86_400_000_000) == "18 Nov 14:31"
    assert figures.when(AT, BERLIN, AT + 90 * 86_400_000_000) == "18 Nov 2026 14:31"
    assert figures.rfc3339(AT, BERLIN) == "2026-11-18T14:31:07+01:00"
    assert figures.local_input(AT, BERLIN) == "2026-11-18T14:31"
    assert (figures.day(AT, BERLIN), figures.clock(AT, BERLIN)) == ("18 Nov", "14:31")


def test_offsets_are_of_the_instant() -> None:
    assert figures.offset(AT, BERLIN) == "UTC+1"
    assert figures.offset(AT, ZoneInfo("UTC")) == "UTC"
    assert figures.offset(AT, ZoneInfo("America/St_Johns")) == "UTC−3:30"


@pytest.mark.parametrize(("seconds", "told"), [(5, "just now"), (60, "1 min ago"), (7200, "2 h ago"), (3 * 86_400, "3 days ago")])
def test_last_uses_are_relative(seconds: int, told: str) -> None:
    assert figures.ago(AT - seconds * 1_000_000, AT) == told
    assert figures.ago(None, AT) == "never"


@given(st.lists(st.text(min_size=1, max_size=3), max_size=12, unique=True))
def test_no_two_things_share_a_colour_while_there_are_colours(names: list[str]) -> None:
    found = figures.slots(names, {name: place for place, name in enumerate(names)})
    named = [slot for slot in found.values() if slot != figures.REST]
    assert len(named) == min(len(names), figures.SLOTS) == len(set(named))
    assert set(found.values()) <= set(range(1, 9))


def test_a_thing_keeps_its_colour_among_others() -> None:
    order = {"a": 0, "b": 1, "c": 2}
    assert figures.slots(["c", "a"], order) == {"a": 1, "c": 3}


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=60))
def test_a_sparkline_stays_in_its_box(values: list[float | None]) -> None:
    points = [tuple(map(float, point.split(","))) for point in figures.spark(values).split()]
    assert len(points) == (len(values) if len(values) > 1 else 0)
    assert all(0 <= x <= 100 and 0 <= y <= 26 for x, y in points)


@given(st.floats(-2, 2))
def test_widths_are_between_nothing_and_all(part: float) -> None:
    assert 0 <= float(figures.percent(part).rstrip("%")) <= 100


def test_rates() -> None:
    assert figures.rate(58.4) == "58.4 tokens/s"
    assert figures.rate(None) == "no samples"
    assert figures.ratio(1, 0) is None and figures.ratio(1, 4) == 0.25
