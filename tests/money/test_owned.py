"""The share of busy time: fair by weight and time, never more than the time costs, and the price that a budget reserves at."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalog import Backend, Price
from gateway.money.owned import Machine, Owned, Share

SECOND = 1_000_000_000  # nano-USD that a second of the machine costs in these tests
RATE = 3600 * SECOND


def machine(rate: int = RATE) -> Machine:
    return Machine(rate, 0.0)


def backend(hourly: int | None = 400_000_000, **more: object) -> Backend:
    fields = {"name": "smol", "vendor": "local", "model": "m", "dialect": "", "price": Price(id="hourly:smol", input=0, output=0)} | more
    return Backend(hourly_nanousd=hourly, **fields)  # type: ignore[arg-type]


def test_who_is_alone_pays_for_the_time() -> None:
    one = machine()
    share = one.enter(700, 10.0)
    assert share.leave(12.5) in (2 * SECOND + SECOND // 2, 2 * SECOND + SECOND // 2 - 1)


def test_nobody_pays_for_idle_time() -> None:
    one = machine()
    first = one.enter(5, 0.0)
    paid = first.leave(1.0)
    second = one.enter(5, 100.0)
    assert paid + second.leave(101.0) in range(2 * SECOND - 2, 2 * SECOND + 1)


def test_two_pay_by_the_tokens_they_hold() -> None:
    """Alone for 1 s, then 1 : 3 for 2 s, then the other alone for 1 s."""
    one = machine()
    light = one.enter(100, 0.0)
    heavy = one.enter(300, 1.0)
    assert abs(light.leave(3.0) - (SECOND + SECOND // 2)) <= 1
    assert abs(heavy.leave(4.0) - (3 * SECOND // 2 + SECOND)) <= 1


def test_what_other_workers_have_in_flight_pays_too() -> None:
    one = machine()
    one.set_others(300, 0.0)
    share = one.enter(100, 0.0)
    one.set_others(0, 4.0)  # 4 s at a quarter, then 1 s alone
    assert abs(share.leave(5.0) - 2 * SECOND) <= 1


def test_a_new_rate_counts_from_its_instant() -> None:
    one = machine()
    share = one.enter(1, 0.0)
    one.set_rate(3 * RATE, 1.0)
    assert abs(share.leave(2.0) - 4 * SECOND) <= 1


def test_a_clock_that_stands_or_goes_back_costs_nothing() -> None:
    one = machine()
    share = one.enter(1, 5.0)
    assert share.leave(4.0) == 0


def test_the_mean_weight_is_of_the_time_since_it_was_asked() -> None:
    one = machine()
    share = one.enter(100, 0.0)
    share.leave(1.0)
    assert one.mean_weight(4.0) == 25
    assert one.mean_weight(5.0) == 0
    one.enter(7, 5.0)
    assert one.mean_weight(6.0) == 7


Schedule = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 200_000)), min_size=1, max_size=40
)  # start ms, length ms, weight


@settings(deadline=None)
@given(Schedule, st.integers(0, 200 * RATE))
def test_the_shares_of_any_schedule_are_the_busy_time(schedule: list[tuple[int, int, int]], rate: int) -> None:
    one = machine(rate)
    events = sorted(
        [(start, 0, number) for number, (start, _, _) in enumerate(schedule)]
        + [(start + length, 1, number) for number, (start, length, _) in enumerate(schedule)]
    )
    shares: dict[int, Share] = {}
    paid = busy_ms = running = last = 0
    for at, kind, number in events:
        busy_ms += at - last if running else 0
        last = at
        if kind == 0:
            shares[number] = one.enter(schedule[number][2], at / 1000)
            running += 1
        else:
            paid += shares[number].leave(at / 1000)
            running -= 1
    cost = rate * busy_ms / 3_600_000
    assert paid <= cost + rate * 1e-9 * len(events) / 3600  # an instant is a float of seconds: a nanosecond of doubt each
    assert paid >= cost - 2 * len(events) - rate * 1e-9 * len(events) / 3600


def test_two_workers_with_steady_load_pay_the_machine_once() -> None:
    """Each knows of the other what it had on average: 100 and 300 tokens all the time."""
    workers = machine(), machine()
    loads = 100, 300
    for one, others in zip(workers, reversed(loads), strict=True):
        one.set_others(others, 0.0)
    paid = [one.enter(load, 0.0).leave(3600.0) for one, load in zip(workers, loads, strict=True)]
    assert RATE - 2 <= sum(paid) <= RATE
    assert abs(paid[0] * 3 - paid[1]) <= 4


def played(workers: int, requests: list[tuple[float, float, int, int]]) -> tuple[float, float]:
    """(paid, busy) in seconds of the machine. requests: (begin, end, worker, weight). Each second they tell each other their mean load."""
    machines = [machine() for _ in range(workers)]
    events: list[tuple[float, int, int]] = [(float(second), 2, 0) for second in range(3601)]
    for number, (begin, end, _, _) in enumerate(requests):
        events += [(begin, 0, number), (end, 1, number)]
    shares: dict[int, Share] = {}
    paid = 0
    busy = last = 0.0
    for now, kind, number in sorted(events):
        busy += now - last if shares else 0.0
        last = now
        if kind == 0:
            shares[number] = machines[requests[number][2]].enter(requests[number][3], now)
        elif kind == 1:
            paid += shares.pop(number).leave(now)
        else:
            loads = [one.mean_weight(now) for one in machines]
            for place, one in enumerate(machines):
                one.set_others(sum(loads) - loads[place], now)
    return paid / SECOND, busy


@pytest.mark.parametrize(("every_s", "workers"), [(8.0, 2), (2.0, 2), (0.5, 2), (4.0, 4), (0.7, 4)])
def test_workers_that_know_each_others_load_pay_about_the_busy_time(every_s: float, workers: int) -> None:
    """An hour of requests at random, of 1 s on average: never more than the hour, and near the time in which anybody was served."""
    rng = random.Random(workers)
    requests = []
    for worker in range(workers):
        at = 0.0
        while (at := at + rng.expovariate(1 / every_s)) < 3590:
            requests.append((at, min(3600.0, at + rng.expovariate(1.0)), worker, rng.randint(50, 2000)))
    paid, busy = played(workers, requests)
    assert paid <= 3600
    assert 0.75 * busy <= paid <= 1.1 * busy


@pytest.mark.parametrize(("every_s", "length_s"), [(20.0, 0.5), (3.0, 2.4), (30.0, 20.0), (1.3, 1.2)])
def test_bursts_that_reach_all_workers_at_once_stay_within_the_hour(every_s: float, length_s: float) -> None:
    """The worst case for knowing each other a second late: each burst begins as if everybody were alone."""
    requests = []
    begin = 0.3
    while begin + length_s < 3600:
        requests += [(begin, begin + length_s, worker, 500) for worker in range(4)]
        begin += every_s
    paid, busy = played(4, requests)
    assert paid <= 3600
    assert busy * 0.9 <= paid <= busy + 3 * 1.1 * len(requests) / 4


def test_a_worst_case_is_reckoned_at_the_last_hours_average() -> None:
    owned = Owned()
    smol = backend()
    price = owned.reserving(smol)
    assert price is not None and price.id == "hourly:smol"
    # nothing known: 0.40 USD an hour, 20 ms a token: 180,000 tokens an hour, so 2.222… USD per million
    assert (price.input, price.output) == (2_222_222_223, 2_222_222_223)
    owned.machine(smol, 0.0).average = 55_000_000
    price = owned.reserving(smol)
    assert price is not None and (price.input, price.output) == (55_000_000, 55_000_000)


def test_token_prices_are_left_alone() -> None:
    owned = Owned()
    hosted = backend(None, price=Price(id="p", input=1, output=2))
    assert owned.reserving(hosted) is hosted.price
    assert owned.enter(hosted, 10, 0.0) is None
    assert owned.machines == {}


def test_the_attempts_of_a_backend_share_its_machine() -> None:
    owned = Owned()
    first, second = owned.enter(backend(RATE), 1, 0.0), owned.enter(backend(RATE), 1, 0.0)
    assert first is not None and second is not None
    assert abs(first.leave(2.0) + second.leave(2.0) - 2 * SECOND) <= 2
