"""The page of requests: what it shows is what the listing says, its links filter, and a hostile name is text."""

from __future__ import annotations

import csv
import io
import re
import time
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest

from gateway.console.requests import bars, chart, chips, step_words
from gateway.money.ledger import HOUR_US
from gateway.views.explorer import Listing
from gateway.views.explorer_counts import Counts
from gateway.views.explorer_filter import NAMES
from gateway.views.explorer_rows import Page
from gateway.views.query import read
from tests.console.checks import seen, sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.fixtures.ledger import mixed, record, write

HOSTILE = '"><script>alert(1)</script>'


async def test_it_lists_filters_and_pages(site: Site) -> None:
    browser = await site.signed_in()
    for name in ("search", "ads"):
        await site.key(name, "inference")
    now = time.time_ns() // 1000
    made = mixed(120, now - HOUR_US, now)
    await write(site.parts.engine, made)
    answer = await browser.get("/console/requests?range=24h")
    page = sound(answer, paths(site))
    assert "120 in the last 24 h · 120 match" in answer.text
    newest = sorted(made, key=lambda one: (-one.started_at_us, -one.id.int))
    shown = [link.rpartition("/")[2] for link in page.links if link.startswith("/console/requests/")]
    assert shown[1:] == [str(one.id) for one in newest[:50]] and shown[0].startswith("csv?")
    answer = await browser.get(f"/console/requests/{shown[0]}")
    assert answer.headers["x-tollway-rows-about"] == "120" and answer.headers["content-type"].startswith("text/csv")
    assert [row["id"] for row in csv.DictReader(io.StringIO(answer.text))] == [str(one.id) for one in newest]
    assert (await browser.get("/console/requests/csv?banana=1")).status_code == 400
    older = next(link for link in page.links if "after=" in link)
    second = await browser.get(older)
    assert [str(one.id) in second.text for one in newest[50:100]] == [True] * 50 and str(newest[0].id) not in second.text
    completed = [one for one in made if one.outcome == "completed" and one.team_id == 2]
    answer = await browser.get("/console/requests?range=24h&outcome=completed&team=search")
    assert f"120 in the last 24 h · {len(completed)} match" in answer.text
    assert re.search(r'name="outcome" value="completed" checked', answer.text)
    links = [sorted(parse_qsl(link.partition("?")[2])) for link in seen(answer.text).links]
    assert [("range", "24h"), ("team", "search")] in links, "the chip of the outcome takes it away"
    nothing = await browser.get("/console/requests?range=24h&backend=nowhere")
    assert "No request matches" in nothing.text and "Clear all filters" in nothing.text
    sound(nothing, paths(site))
    assert (await browser.get("/console/requests?banana=1")).status_code == 400


async def test_what_is_hostile_is_text(site: Site) -> None:
    browser = await site.signed_in()
    now = time.time_ns() // 1000
    made = record(now - 10, [(HOSTILE, "failed", 0)], route=HOSTILE, tag=HOSTILE, model=HOSTILE, error=HOSTILE, outcome="failed")
    await write(site.parts.engine, [made])
    for path in ("/console/requests", f"/console/requests?q={HOSTILE}", f"/console/requests/{made.id}"):
        answer = await browser.get(path)
        assert answer.status_code == 200
        sound(answer, paths(site))
        assert HOSTILE not in answer.text and HOSTILE in unescape(answer.text)
    formula = record(now - 10, [("a", "failed", 0)], tag="=1+1")
    await write(site.parts.engine, [formula])
    (row,) = csv.DictReader(io.StringIO((await browser.get("/console/requests/csv?tag==1%2B1")).text))
    assert row["tag"] == "'=1+1"


async def test_without_a_request_it_says_what_to_do_and_to_finance_which_role_it_needs(site: Site) -> None:
    assert (await (await site.signed_in("finance")).get("/console/requests")).status_code == 403
    browser = await site.signed_in("team_admin")
    answer = await browser.get("/console/requests")
    assert "No requests in this range" in answer.text and "/console/playground" in answer.text


NOW = 1_795_000_000_000_000


def listing(**counts: Any) -> Listing:
    base = {"total": 5, "total_since_us": 0, "matching": 5, "matching_since_us": 0, "step_us": 1_800_000_000, "bars": {}, "facets": {}}
    return Listing(page=Page(rows=[], after="", searched_from_us=0), counts=Counts(**(base | counts)), facets=(), order="-time")


def test_the_histogram_has_a_bar_for_each_step_and_adds_up() -> None:
    query = read([("range", "24h")], NOW, NAMES)
    first = query.from_us - query.from_us % 1_800_000_000
    drawn = chart(listing(bars={(first, "completed"): 3, (first, "refused"): 1, (first + 1_800_000_000, "failed"): 1}), query)
    assert len(drawn["x"]) in (48, 49) and drawn["x"][1] - drawn["x"][0] == drawn["step"] == 1800
    assert {one["label"]: sum(one["data"]) for one in drawn["series"]} == {"Completed": 3, "Failed or refused": 2}
    assert bars(drawn, query)[0][1:] == ["3", "1"] and len(bars(drawn, query)) == len(drawn["x"])
    part = chart(listing(matching_since_us=query.until_us - 2 * 1_800_000_000), query)
    assert len(part["x"]) in (2, 3), "what was not counted has no bar"


def test_chips_name_what_is_on_and_take_it_away() -> None:
    query = read([("team", "a"), ("team", "b"), ("only", "failed_over"), ("cost_min", "0.5"), ("ttft_max", "90"), ("q", "x")], NOW, NAMES)
    assert chips(query) == [
        ("team: a, b", "?only=failed_over&cost_min=0.5&ttft_max=90&q=x"),
        ("only: failed over", "?team=a&team=b&cost_min=0.5&ttft_max=90&q=x"),
        ("cost at least $0.5", "?team=a&team=b&only=failed_over&ttft_max=90&q=x"),
        ("TTFT at most 90 ms", "?team=a&team=b&only=failed_over&cost_min=0.5&q=x"),
        ("“x”", "?team=a&team=b&only=failed_over&cost_min=0.5&ttft_max=90"),
    ]


@pytest.mark.parametrize(("minutes", "words"), [(2, "2 min"), (30, "30 min"), (240, "4 h"), (1440, "1 d")])
def test_a_bar_s_length_in_words(minutes: int, words: str) -> None:
    assert step_words(minutes * 60_000_000) == words
