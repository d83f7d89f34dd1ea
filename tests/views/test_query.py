"""The query of a page: what it means, what it refuses, and the links made of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.money.ledger import BUCKET_US, DAY_US
from gateway.money.windows import to_us
from gateway.views.query import FILTERS, RANGES, Query, read

NOW = to_us(datetime(2026, 11, 18, 13, 32, 7, tzinfo=UTC))
END = to_us(datetime(2026, 11, 18, 14, tzinfo=UTC))


def at(*when: int) -> int:
    return to_us(datetime(*when, tzinfo=UTC))  # type: ignore[misc,arg-type]


def of(url: str, **more: Any) -> Query:
    return read(parse_qsl(url.lstrip("?"), keep_blank_values=True), NOW, more.pop("names", FILTERS), **more)


@pytest.mark.parametrize(
    ("url", "from_us", "until_us"),
    [
        ("", END - DAY_US, END),
        ("range=7d", END - 7 * DAY_US, END),
        ("range=1h", at(2026, 11, 18, 12, 45), at(2026, 11, 18, 13, 45)),
        ("range=month&tz=Europe/Berlin", at(2026, 10, 31, 23), END),
        ("range=quarter&tz=Europe/Berlin", at(2026, 9, 30, 22), END),
        ("from=2026-11-01&to=2026-11-02&tz=Europe/Berlin", at(2026, 10, 31, 23), at(2026, 11, 1, 23)),
        ("from=2026-11-01T10:00:00%2B01:00&to=2026-11-01T10:07:00Z", at(2026, 11, 1, 9), at(2026, 11, 1, 10, 7)),
        ("from=2026-11-01T10:00&tz=Europe/Berlin", at(2026, 11, 1, 9), END),
        ("from=2026-09-06&to=2026-09-07&tz=America/Santiago", at(2026, 9, 6, 4), at(2026, 9, 7, 3)),  # a day without a midnight
    ],
)
def test_stretches_of_time(url: str, from_us: int, until_us: int) -> None:
    query = of(url)
    assert (query.from_us, query.until_us) == (from_us, until_us)


def test_roll_ups_are_asked_for_whole_quarters_of_an_hour() -> None:
    query = of("from=2026-11-01T10:01:00Z&to=2026-11-01T10:16:00Z")
    assert query.buckets == (at(2026, 11, 1, 10), at(2026, 11, 1, 10, 30))
    assert query.before == (at(2026, 11, 1, 9, 30), at(2026, 11, 1, 10))


@given(st.sampled_from(sorted(RANGES)), st.sampled_from(["UTC", "Asia/Kathmandu", "America/Santiago"]))
def test_every_range_holds_the_present(name: str, tz: str) -> None:
    query = of(f"range={name}&tz={tz}")
    assert query.from_us < NOW <= query.until_us
    assert query.until_us % BUCKET_US == 0


@pytest.mark.parametrize(
    ("url", "param"),
    [
        ("range=2d", "range"),
        ("range=7d&from=2026-11-01", "range"),
        ("to=2026-11-01", "from"),
        ("from=2026-11-02&to=2026-11-01", "to"),
        ("from=yesterday", "from"),
        ("tz=Mars/Base", "tz"),
        ("banana=1", "banana"),
        ("cost_min=-1", "cost_min"),
        ("cost_min=1.0000000001", "cost_min"),
        ("cost_max=1e99999", "cost_max"),
        ("ttft_max=fast", "ttft_max"),
        ("q=a&q=b", "q"),
        ("q=" + "x" * 201, "q"),
        ("q=%00", "q"),
        ("&".join(f"team=t{n}" for n in range(51)), "team"),
        ("by=nothing", "by"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(url: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        of(url, more={"by": ("team", "model")})
    assert told.value.param == param


def test_a_filter_that_a_page_does_not_apply_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        of("team=a", names=("route",))


def test_filters() -> None:
    query = of("team=a&team=b&cost_min=0.5&ttft_min=1500&q=x&sort=-cost", names=(*FILTERS, "sort"), more={"by": ("team", "model")})
    assert query.words == {"team": ("a", "b")}
    assert (query.money, query.ms, query.q, query.sort, query.more) == (
        {"cost_min": 500_000_000},
        {"ttft_min": 1500},
        "x",
        "-cost",
        {"by": "team"},
    )
    with pytest.raises(InvalidRequest):
        query.one("team")


def test_links_keep_what_they_do_not_change() -> None:
    query = of("range=7d&team=a&team=b&after=9", names=(*FILTERS, "after"))
    assert query.url() == "?range=7d&team=a&team=b"
    assert query.url("/console/x", range="24h") == "/console/x?team=a&team=b&range=24h"
    assert query.url(from_="2026-11-01", to="2026-11-02") == "?team=a&team=b&from=2026-11-01&to=2026-11-02"
    assert query.without("team", "a") == "?range=7d&team=b"
    assert of("").url() == "?"


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20))
def test_a_link_means_what_it_was_made_of(word: str) -> None:
    query = of("").url(team=[word])
    assert of(query).words["team"] == (word,)


def test_a_cookie_s_zone_may_be_nonsense() -> None:
    assert of("", tz="banana").tz == "UTC"
    assert of("", tz="Europe/Berlin").tz == "Europe/Berlin"
