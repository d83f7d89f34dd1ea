"""Ways to spend less, as a part of a team's page and as a page of their own: hidden while there is little to go by, closed to others."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import insert

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.db.rollup_tables import rollups
from gateway.routing.decision import Quality
from gateway.views.ways import RECORDS_MIN
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.routing.test_what_if import two
from tests.views.test_ways import HOUR_US, put, row

HOSTILE = "<img src=x>"


async def test_ways_are_hidden_while_there_is_little_to_go_by(site: Site) -> None:
    browser = await site.signed_in("team_admin", "search")
    await people.add_team(site.parts.engine, "ads", actor=COMMAND_LINE)
    page = await browser.get("/console/teams/search")
    sound(page, paths(site))
    assert 'hx-get="/console/teams/search/-/ways"' in page.text and 'hx-trigger="load"' in page.text
    hidden = await browser.get("/console/teams/search/-/ways")
    assert hidden.status_code == 200 and hidden.text.strip() == ""
    few = await browser.get("/console/teams/search/ways")
    sound(few, paths(site))
    assert "Too few choices yet" in few.text and "1,000" in few.text
    for name in ("ads", "nowhere"):
        assert [(await browser.get(f"/console/teams/{name}/{path}")).status_code for path in ("-/ways", "ways")] == [404, 404]


async def test_ways_are_told_each_in_a_sentence(site: Site) -> None:
    browser = await site.signed_in("team_admin", "search")
    (team,) = await people.list_teams(site.parts.engine)
    now_us = time.time_ns() // 1000
    weak = Quality("m", 110_000, 800_000, 0, 100_000, 500_000, ("cheap",))
    records = [two(ttft_ms=1500.0), two(ttft_ms=750.0), two("rate_limited"), two("quality", quality=weak)]
    for record in records[:2]:
        record.route = HOSTILE
    await put(site.parts, [row(now_us - n * 1_000_000, team.id) for n in range(1, RECORDS_MIN + 1)], *records)  # type: ignore[arg-type]
    keys: dict[str, Any] = {"bucket_us": now_us - now_us % HOUR_US - HOUR_US, "org_id": 1, "team_id": team.id, "key_id": 1}
    words = {"backend": "dear", "vendor": "v", "model": "m", "outcome": "completed", "tag": ""}
    async with site.parts.engine.begin() as connection:
        for route in ("assistant", HOSTILE):
            await connection.execute(insert(rollups).values(keys | words | {"route": route, "cost": 7 * 10**9, "requests": 500}))
    for path in ("-/ways", "ways"):
        found = await browser.get(f"/console/teams/search/{path}")
        sound(found, paths(site))
        text = found.text.replace("\u00a0", " ")
        assert "the newest 1,000 of last week&#39;s 1,000 choices" in found.text and HOSTILE not in found.text
        assert "take 3.0 times as long to the first token" in text and "100 % of its requests would have gone elsewhere" in text
        assert "Get more room at <bdi>cheap</bdi>" in found.text and "50 % of requests went elsewhere" in text
        assert "right 11.0 points more often" in found.text and found.text.count("−<data") == 3
        assert "$24.00" in found.text, "4,000 of 5,000 of 7 USD a week, for 30 days"
