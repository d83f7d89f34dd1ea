"""Series that are bound once, bounded in their number, and survive a change of bounds."""

from __future__ import annotations

from gateway.metrics import BOUNDS, MAX_SERIES
from gateway.numbers import Numbers, exposition

DURATION = "tollway_request_duration_seconds"


def fresh() -> Numbers:
    return Numbers({}, {}, {}, {})


def test_a_bound_counter_and_an_unbound_one_are_the_same_series() -> None:
    numbers = fresh()
    bound = numbers.counter("tollway_refusals_total", ("x",))
    assert numbers.counters["tollway_refusals_total"] == {("x",): 0}, "it begins at 0, so that a rate sees its first one"
    bound.add()
    numbers.add("tollway_refusals_total", ("x",), 2)
    bound.add(3)
    assert numbers.counters["tollway_refusals_total"] == {("x",): 6}


def test_labels_are_bounded() -> None:
    numbers = fresh()
    for n in range(MAX_SERIES + 10):
        numbers.add("tollway_refusals_total", (f"code-{n}",))
        numbers.observe(DURATION, ("r", f"b-{n}"), 1.0)
    counted = numbers.counters["tollway_refusals_total"]
    assert len(counted) == MAX_SERIES + 1 and counted[("other",)] == 10
    observed = numbers.histograms[DURATION]
    assert len(observed) == MAX_SERIES + 1 and sum(observed["other", "other"][:-1]) == 10


def test_a_bin_holds_its_upper_bound() -> None:
    numbers = fresh()
    histogram = numbers.histogram(DURATION, ("r", "b"))
    for bound in BOUNDS[DURATION]:
        histogram.observe(bound)
    histogram.observe(BOUNDS[DURATION][-1] + 1)
    assert numbers.histograms[DURATION]["r", "b"][:-1] == [1.0] * (len(BOUNDS[DURATION]) + 1)


def test_bins_of_other_bounds_are_not_taken_over() -> None:
    """A worker of an older version left them; counters of it are taken."""
    old, new = fresh(), fresh()
    old.histograms[DURATION] = {("r", "b"): [1.0, 2.0, 3.0]}
    old.add("tollway_refusals_total", ("x",))
    new.counted_from(old)
    assert new.histograms == {DURATION: {}}
    assert new.counters == {"tollway_refusals_total": {("x",): 1}}


def test_an_engine_s_total_is_a_counter_that_is_read() -> None:
    one, two, total = fresh(), fresh(), fresh()
    one.gauges = {("tollway_engine_steps_total", "smol"): 8.0}
    two.gauges = {("tollway_engine_steps_total", "smol"): 9.0}
    for numbers in (one, two):
        total.present_from(numbers)
    page = exposition(total).decode()
    assert 'tollway_engine_steps_total{backend="smol"} 9.0' in page
    assert "# TYPE tollway_engine_steps_total counter" in page
