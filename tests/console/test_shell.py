"""The shell around every page: who, where, zone, theme; and the ways on."""

from __future__ import annotations

import re

from gateway.console import shell
from gateway.views.query import read
from tests.console.conftest import Site

NOW = 1_795_008_667_000_000  # 2026-11-18 14:31:07 in Berlin


def test_stretches_are_spelled_out() -> None:
    assert shell.spelled(read([], NOW, tz="Europe/Berlin")) == "17 Nov 15:00 to 18 Nov 14:31, Europe/Berlin"
    asked = [("from", "2025-11-01"), ("to", "2025-11-02")]
    assert shell.spelled(read(asked, NOW, tz="UTC")) == "1 Nov 2025 00:00 to 2 Nov 2025 00:00, UTC"


async def test_theme_and_zone_come_from_cookies_and_the_zone_from_the_url(site: Site) -> None:
    browser = await site.signed_in()
    plain = (await browser.get("/console/overview")).text
    assert "data-theme" not in plain.partition("<head>")[0]
    browser.cookies.set("tollway_theme", "dark")
    browser.cookies.set("tollway_tz", "Europe/Berlin")
    told = (await browser.get("/console/overview")).text
    assert 'data-theme="dark"' in told.partition("<head>")[0]
    assert re.search(r'<option value="Europe/Berlin" selected>Europe/Berlin \(UTC\+[12]\)', told)
    other = (await browser.get("/console/overview?tz=Asia/Tokyo&range=7d")).text
    assert 'value="Asia/Tokyo" selected' in other and "Europe/Berlin" in other
    assert "tz=Asia%2FTokyo" in other, "links keep a zone that the URL names"


async def test_forms_of_filters_keep_the_rest_of_the_query(site: Site) -> None:
    told = (await (await site.signed_in()).get("/console/overview?range=7d")).text
    assert '<input type="hidden" name="range" value="7d">' in told


def test_redirects_end_a_form() -> None:
    answer = shell.redirect("/console/overview")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/overview")
    assert answer.headers["content-security-policy"] == shell.CSP
