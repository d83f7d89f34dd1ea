"""Reports as pages: every grouping, hostile names, filters, files and statements."""

from __future__ import annotations

import csv
import io
import json
import re
import time

from gateway import people
from gateway.console import reports
from gateway.views import spend
from tests.console.checks import seen, sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.console.test_overview import HOSTILE, filled


async def test_every_grouping_is_a_sound_page(site: Site) -> None:
    await filled(site)
    browser = await site.signed_in()
    for place, by in enumerate(reports.GROUPS):
        then = reports.GROUPS[(place + 3) % len(reports.GROUPS)]
        answer = await browser.get(
            f"/console/reports?by={by}&then={then}&range=7d&measure={list(reports.MEASURES)[place % 3]}&tz=Asia/Kathmandu"
        )
        assert answer.status_code == 200, (by, then)
        page = sound(answer, paths(site))
        assert "Rows sum to the ledger" in answer.text and page.headings.count("h1") == 1
        assert "<script>alert" not in answer.text and "<img" not in answer.text


async def test_the_page_and_the_file_tell_the_same(site: Site) -> None:
    await filled(site)
    browser = await site.signed_in()
    page = (await browser.get("/console/reports?by=team&then=model&range=7d")).text
    answer = await browser.get("/console/reports/csv?by=team&then=model&range=7d")
    assert answer.headers["content-disposition"].startswith('attachment; filename="tollway-team-model-')
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["x-tollway-rows"] == str(len(rows))
    found = re.search(r'Rows sum to the ledger</span><span class="num">([^<]+)<', page)
    assert found is not None
    summed = sum(int(row["cost_nanousd"]) for row in rows)
    assert f"{summed / 10**9:,.9f}" == found[1].removeprefix("$")
    assert {row["team"].lstrip("'") for row in rows} == {*HOSTILE}


async def test_the_ledger_is_added_up_step_by_step(site: Site) -> None:
    records = await filled(site)
    browser = await site.signed_in()
    answer = await browser.get("/console/reports/check?by=team&range=7d")
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert told[0] == {"done": 0, "total": len(records)} and told[-2] == {"done": len(records), "total": len(records)}
    assert "Rows sum to the ledger" in told[-1]["html"] and f"{sum(one.cost or 0 for one in records) / 10**9:,.9f}" in told[-1]["html"]
    assert seen(told[-1]["html"]).ids == ["checked"]
    for query, status in (("team=nobody", 404), ("backend=a", 400), ("x=1", 400)):
        refused = await browser.get(f"/console/reports/check?{query}")
        sound(refused, paths(site))
        assert refused.status_code == status, query
    assert (await (await site.signed_in("team_admin")).get("/console/reports/csv", params={"team": HOSTILE[0]})).status_code == 404


async def test_a_sum_that_differs_is_red(site: Site) -> None:
    from sqlalchemy import text

    await filled(site)
    async with site.parts.engine.begin() as connection:
        await connection.execute(text("UPDATE usage SET cost = cost + 1 WHERE id = (SELECT id FROM usage WHERE cost > 0 LIMIT 1)"))
    answer = (await (await site.signed_in()).get("/console/reports?range=7d")).text
    assert "Rows do not sum to the ledger" in answer and "tollway ledger audit" in answer


async def test_roles_and_empty_states(site: Site) -> None:
    empty = await (await site.signed_in()).get("/console/reports")
    sound(empty, paths(site))
    assert "Nothing in this time" in empty.text
    await filled(site)
    told = await (await site.signed_in("finance")).get("/console/reports?range=7d")
    assert "&lt;script&gt;" in told.text
    own = await (await site.signed_in("team_admin")).get("/console/reports?range=7d")
    sound(own, paths(site))
    assert own.status_code == 200 and "&lt;script&gt;" not in own.text and "Nothing in this time" in own.text
    assert (await (await site.signed_in("team_admin")).get("/console/reports", params={"team": HOSTILE[0]})).status_code == 404
    filtered = await (await site.signed_in()).get("/console/reports?range=7d&tag=nothing-like-it&route=code")
    sound(filtered, paths(site))
    assert "Nothing matches" in filtered.text and "Remove filter tag: nothing-like-it" in filtered.text


async def test_what_cannot_be_reported_is_refused_by_name(site: Site) -> None:
    browser = await site.signed_in()
    for query in (
        "by=colour",
        "by=team&then=team",
        "measure=love",
        "team=a&team=b",
        "key=x",
        "from=2026-11-02&to=2026-11-01",
        "check=maybe",
    ):
        answer = await browser.get(f"/console/reports?{query}")
        sound(answer, paths(site))
        assert answer.status_code == 400, query


async def test_a_statement_is_a_team_s_month(site: Site) -> None:
    await filled(site)
    browser = await site.signed_in()
    which = await browser.get("/console/reports/statement")
    sound(which, paths(site))
    assert "Choose a team and a month" in which.text
    month = time.strftime("%Y-%m", time.gmtime(time.time() - 3600))
    answer = await browser.get("/console/reports/statement", params={"team": HOSTILE[0], "month": month})
    sound(answer, paths(site))
    made = await spend.told(
        site.parts.engine, spend.Asked(by=("team",), since_us=0, until_us=time.time_ns() // 1000 // 900_000_000 * 900_000_000 + 900_000_000)
    )
    assert answer.status_code == 200 and "&lt;script&gt;" in answer.text and made.groups
    for month, status in (("2026-13", 400), ("", 200)):
        assert (await browser.get("/console/reports/statement", params={"team": HOSTILE[0], "month": month})).status_code == status
    assert (await browser.get("/console/reports/statement?team=nobody&month=2026-11")).status_code == 404
    other = await site.signed_in("team_admin")
    assert (await other.get("/console/reports/statement", params={"team": HOSTILE[0], "month": "2026-11"})).status_code == 404
    assert [one.name for one in await people.list_teams(site.parts.engine) if one.name == "ops"] == ["ops"]
