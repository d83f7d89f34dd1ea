"""Charts: what is drawn, what the legend says and what the table tells are the same numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.console import charts
from gateway.money.ledger import DAY_US, HOUR_US
from gateway.views.series import Steps

AT = 1_795_008_667_000_000 // DAY_US * DAY_US
HOURS = Steps(HOUR_US, (AT, AT + HOUR_US), AT + 2 * HOUR_US, "Europe/Berlin")


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), max_size=20))
def test_nothing_is_lost_in_the_rest(named: dict[str, tuple[int, int]]) -> None:
    made = charts.stacked(named, {}, HOURS, "usd", "Spend")
    drawn = [sum(column) for column in zip(*(one["data"] for one in made.spec["series"]), strict=True)] or [0, 0]
    assert drawn == [sum(column) for column in zip(*named.values(), strict=True)] or not named
    assert len(made.spec["series"]) <= charts.TOP + 1
    assert len({one["color"] for one in made.spec["series"]}) == len(made.spec["series"])
    assert [one.label for one in made.legend] == list(made.head[1:])


def test_the_largest_is_at_the_bottom_and_keeps_its_colour() -> None:
    made = charts.stacked({"a": [1, 1], "b": [5, 5], "none": [0, 0]}, {"a": 0, "b": 1}, HOURS, "n", "Requests")
    assert [(one["label"], one["color"]) for one in made.spec["series"]] == [("b", "c2"), ("a", "c1")]
    assert made.label == "Requests, stacked. Total 12. The largest is b with 10."
    assert made.rows[0] == ("18 Nov 01:00", "5", "1")
    assert (made.spec["zone"], made.spec["step"]) == ("Europe/Berlin", 3600)


def test_quantiles_stand_against_the_objective() -> None:
    lines = {"p50": [300, None], "p95": [900, None], "p99": [1500, None]}
    made = charts.quantiles(lines, {"p50": 300, "p95": 900, "p99": 1500}, HOURS, 1500.0)
    assert made.spec["lines"] == [{"y": 1500.0, "label": "objective 1.50 s"}]
    assert made.rows[1] == ("18 Nov 02:00", "no samples", "no samples", "no samples")
    assert "lines" not in charts.quantiles(lines, dict.fromkeys(lines), HOURS, None).spec
    assert made.legend[2].dash and made.spec["series"][1]["data"] == [900, None]
