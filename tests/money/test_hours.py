"""What an hour came to, worked out by hand, and that any hour's shares and rows together are hours × rate."""

from __future__ import annotations

from uuid import RFC_4122

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.money.hours import GAP_US, PRESENT, Hour, Owed, Span, hour_of, owed, row_id, rows_of
from gateway.money.ledger import HOUR_US, IDLE, WARM_UP
from gateway.money.owned import Machine, Share

HOUR = 500_000 * HOUR_US
MINUTE = HOUR_US // 60
RATE = 600_000_000  # 0.60 USD an hour: a cent a minute
CENT = 10_000_000


def span(from_minute: float, until_minute: float, rate: int = RATE, machine: str = "", kind: str = PRESENT) -> Span:
    return Span(machine, kind, HOUR + int(from_minute * MINUTE), HOUR + int(until_minute * MINUTE), rate)


@pytest.mark.parametrize(
    ("spans", "cents"),
    [
        ([], 0),
        ([span(-90, 200)], 60),
        ([span(0, 60)], 60),
        ([span(20, 200)], 40),
        ([span(-90, 15)], 15),
        ([span(10, 20), span(15, 30), span(12, 13)], 20),
        ([span(0, 20), span(24, 60)], 60),
        ([span(0, 20), span(30, 60)], 50),
        ([span(-10, -4), span(-1, 60)], 60),
        ([span(-10, -1), span(3, 60)], 60),
        ([span(-10, -1), span(9, 60)], 51),
        ([span(0, 58), span(62, 100)], 60),
        ([span(-100, 100, machine="a"), span(-100, 100, machine="b")], 120),
        ([span(0, 30), span(30, 60, 2 * RATE)], 90),
        ([span(0, 32), span(30, 60, 2 * RATE)], 90),
        ([span(0, 30), span(33, 60, 2 * RATE)], 33 + 54),
        ([span(0, 60, kind=WARM_UP)], 0),
    ],
    ids=[
        "never there", "all the time", "exactly the hour", "appeared", "went away", "several processes", "a restart", "a longer gap",
        "a restart across the hour's beginning", "a gap begins before the hour", "a longer one", "a gap across the hour's end",
        "a machine per host", "a new rate", "the newer rate wins", "the older rate until the newer begins", "warm-up alone owes nothing",
    ],
)  # fmt: skip
def test_what_an_hour_came_to(spans: list[Span], cents: int) -> None:
    assert owed(spans, HOUR).nanousd == cents * CENT


def test_warm_up_is_counted_once_however_many_saw_it() -> None:
    found = owed([span(0, 60), span(0, 10, kind=WARM_UP), span(2, 12, kind=WARM_UP), span(40, 41, kind=WARM_UP)], HOUR)
    assert found == Owed(60 * CENT, 13 * CENT, HOUR_US)


def test_an_hour_is_rounded_once() -> None:
    third = span(0, 20, 1)  # a third of a nano-dollar, three times on three machines
    spans = [third, span(0, 20, 1, "b"), span(0, 20, 1, "c")]
    assert owed(spans, HOUR).nanousd == 1


def hour(written: int = 0, closed: bool = False) -> Hour:
    return Hour(backend="smol", hour_us=HOUR, vendor="local", model="m", written=written, closed=closed)


def test_what_nobody_paid_for_is_warm_up_first_and_then_idle() -> None:
    rows = rows_of(hour(), Owed(100, 30, HOUR_US), 50)
    assert [(row.outcome, row.cost) for row in rows] == [(WARM_UP, 30), (IDLE, 20)]
    assert {(row.team_id, row.key_id, row.org_id, row.charges, row.attempts) for row in rows} == {(0, 0, 0, (), ())}
    assert [row.outcome for row in rows_of(hour(), Owed(100, 30, HOUR_US), 90)] == [WARM_UP], "never more than is left"
    assert rows_of(hour(), Owed(100, 0, HOUR_US), 100) == []


def test_what_comes_late_is_corrected_in_either_direction() -> None:
    assert [(row.outcome, row.cost) for row in rows_of(hour(2, True), Owed(100, 30, HOUR_US), 107)] == [(IDLE, -7)]
    (row,) = rows_of(hour(2, True), Owed(100, 30, HOUR_US), 99)
    assert (row.cost, row.error, row.id) == (1, "late", row_id("smol", HOUR, 2))


def test_ids_are_the_same_for_everybody_and_of_their_hour() -> None:
    found = {row_id(name, at, n) for name in ("a", "b") for at in (HOUR, HOUR + HOUR_US) for n in range(3)}
    assert len(found) == 12
    for one in found:
        assert one.version == 7 and one.variant == RFC_4122
        assert hour_of((one.int >> 80) * 1000) in (HOUR, HOUR + HOUR_US)
    assert row_id("a", HOUR, 0) == row_id("a", HOUR, 0)


Spans = st.lists(
    st.builds(
        lambda at, length, rate, machine, kind: Span(machine, kind, HOUR + at, HOUR + at + length, rate),
        st.integers(-2 * HOUR_US, 2 * HOUR_US),
        st.integers(0, 3 * HOUR_US),
        st.integers(0, 10**12),
        st.sampled_from(["", "b"]),
        st.sampled_from([PRESENT, PRESENT, WARM_UP]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(Spans, st.lists(st.integers(0, 10**12), max_size=20), st.lists(st.integers(-(10**9), 10**12), max_size=5))
def test_shares_idle_and_warm_up_are_hours_times_rate(spans: list[Span], shares: list[int], late: list[int]) -> None:
    owing = owed(spans, HOUR)
    booked = sum(shares)
    rows = list(rows_of(hour(), owing, booked))
    booked += sum(row.cost or 0 for row in rows)
    assert booked == owing.nanousd
    for cost in late:
        correcting = rows_of(hour(len(rows), True), owing, booked + cost)
        assert cost + sum(row.cost or 0 for row in correcting) == 0
        rows += correcting
    assert len({row.id for row in rows}) == len(rows)


@settings(deadline=None)
@given(Spans)
def test_hours_side_by_side_owe_what_the_time_owes(spans: list[Span]) -> None:
    """Cut into hours or not, the covered time is the same, and never more than there is."""
    hours = [owed(spans, HOUR + number * HOUR_US) for number in range(-4, 7)]
    for one in hours:
        assert 0 <= one.covered_us <= 2 * HOUR_US
        assert 0 <= one.nanousd <= 2 * 10**12
    ends: dict[str, int] = {}
    total = 0
    for one in sorted((one for one in spans if one.kind == PRESENT), key=lambda one: one.from_us):
        end = ends.get(one.machine)
        if end is not None and one.from_us - end <= GAP_US:
            total += max(0, one.until_us - end)
        else:
            total += one.until_us - one.from_us
        ends[one.machine] = max(end if end is not None else one.until_us, one.until_us)
    assert sum(one.covered_us for one in hours) == total


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3 * 3600), st.integers(0, 900), st.integers(1, 5000)), min_size=1, max_size=30),
    st.integers(0, 10**13),
    st.integers(0, 1800),
    st.integers(1, 3 * 3600),
)
def test_any_schedule_of_requests_fills_its_hours_exactly(
    schedule: list[tuple[int, int, int]], rate: int, from_s: int, lasts_s: int
) -> None:
    """Requests as a worker meters them (second of begin, seconds, weight), each booked in the hour of its admission; then the closing."""
    one = Machine(rate, 0.0)
    shares: dict[int, Share] = {}
    booked: dict[int, int] = {}
    events = [(begin, 0, n) for n, (begin, _, _) in enumerate(schedule)] + [
        (begin + length, 1, n) for n, (begin, length, _) in enumerate(schedule)
    ]
    for at, kind, n in sorted(events):
        if kind == 0:
            shares[n] = one.enter(schedule[n][2], float(at))
        else:
            hour_us = hour_of(HOUR + schedule[n][0] * 1_000_000)
            booked[hour_us] = booked.get(hour_us, 0) + shares[n].leave(float(at))
    there = [Span("", PRESENT, HOUR + from_s * 1_000_000, HOUR + (from_s + lasts_s) * 1_000_000, rate)]
    whole = 0
    for number in range(5):
        at_us = HOUR + number * HOUR_US
        owing = owed(there, at_us)
        paid = booked.get(at_us, 0)
        rows = rows_of(structs.replace(hour(), hour_us=at_us), owing, paid)
        assert paid + sum(row.cost or 0 for row in rows) == owing.nanousd
        whole += owing.nanousd
    assert abs(whole * 3600 - rate * lasts_s) <= 3 * 3600, "cut into hours, each rounded once"
