"""The overview, as a page and as a call: its sums are the ledger's, of those teams alone that are seen."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC
from typing import Any

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.money.ledger import DAY_US
from gateway.views import figures
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.fixtures.ledger import mixed, record, write

HOSTILE = ("<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "مرحبا \u202eevil")


async def teams(site: Site) -> None:
    """Teams 1 to 3 with names that nobody should have; the commands refuse such, a database may hold them."""
    from sqlalchemy import text

    for name in ("one", "two", "three"):
        await people.add_team(site.parts.engine, name, actor=COMMAND_LINE)
    async with site.parts.engine.begin() as connection:
        for number, name in enumerate(HOSTILE, 1):
            await connection.execute(text("UPDATE teams SET name = :name WHERE id = :id"), {"name": name, "id": number})


async def filled(site: Site) -> list[Any]:
    await teams(site)
    now_us = time.time_ns() // 1000
    records = mixed(120, now_us - 2 * DAY_US, now_us - 60_000_000)
    await write(site.parts.engine, records)
    await people.set_budget(
        site.parts.engine,
        people.NewBudget(scope_kind="organisation", scope="default", limit_nanousd=10**9, period="month"),
        actor=COMMAND_LINE,
    )
    return records


async def test_nothing_yet_says_what_to_do(site: Site) -> None:
    answer = await (await site.signed_in()).get("/console/overview")
    sound(answer, paths(site))
    assert answer.status_code == 200 and "No requests yet" in answer.text


async def test_every_role_sees_its_own_and_no_name_runs(site: Site) -> None:
    await filled(site)
    for role in ("admin", "finance", "team_admin"):
        browser = await site.signed_in(role, team="ops")
        for query in (
            "",
            "?range=1h",
            "?range=30d&split=route",
            "?range=7d&split=backend&tz=Asia/Kathmandu",
            "?range=month",
            "?range=quarter",
        ):
            answer = await browser.get(f"/console/overview{query}")
            assert answer.status_code == 200, query
            sound(answer, paths(site))
            assert "<script>alert" not in answer.text and "<img" not in answer.text
            if query == "":  # a month that began a moment ago has nobody in it
                assert ("&lt;script&gt;" in answer.text) is (role != "team_admin"), role


async def test_parts_of_the_page_are_told_alone(site: Site) -> None:
    await filled(site)
    browser = await site.signed_in()
    for part in ("kpis", "attention"):
        answer = await browser.get(f"/console/overview/-/{part}?range=7d")
        sound(answer, paths(site))
        assert answer.status_code == 200 and f'id="{part}"' in answer.text and "<html" not in answer.text
    assert (await browser.get("/console/overview/-/main")).status_code == 404


async def test_the_sums_are_the_ledger_s(site: Site) -> None:
    records = await filled(site)
    key = await site.key("ops", "admin")
    quarter = time.time_ns() // 1000 // 900_000_000 * 900_000_000
    until_us, since_us = quarter + 900_000_000, quarter - DAY_US  # told, so that both calls mean the same when an hour ends between them
    stretch = {"from": figures.rfc3339(since_us, UTC), "to": figures.rfc3339(until_us, UTC)}
    answer = await site.browser().get("/admin/overview", params=stretch, headers={"authorization": f"Bearer {key}"})
    told = answer.json()
    assert (told["since_us"], told["until_us"]) == (since_us, until_us)
    mine = [one for one in records if one.started_at_us >= since_us]
    assert told["requests"] == len(mine)
    assert told["spent"]["nanousd"] == sum(one.cost or 0 for one in mine) == sum(one["spent"]["nanousd"] for one in told["points"])
    assert sum(one["requests"] for one in told["places"]) == len(mine)
    assert told["saved"]["cache"]["nanousd"] == sum(one.saved for one in mine)
    assert told["unpriced"] == sum(one.cost is None for one in mine)
    ends = [(end.outcome, end.usage) for one in mine for end in one.attempts]
    ends += [(one.outcome, one.usage) for one in mine if not one.attempts]
    tokens = sum(
        usage.output + usage.reasoning + usage.output_audio + usage.output_image for outcome, usage in ends if outcome == "completed"
    )
    took_ms = sum(one.duration_ms for one in mine if one.outcome == "completed")
    assert told["output_tokens_per_s"] == round(1000 * tokens / took_ms, 3)
    assert told["month"]["limit"] == {"nanousd": 10**9, "usd": "1.000000000"}
    page = await (await site.signed_in()).get("/console/overview", params=stretch)
    assert f"{figures.rate(told['output_tokens_per_s'])} mean" in page.text
    found = re.search(r"Spend, range</dt><dd><b><data class=\"money\" value=\"(\d+)\"", page.text)
    assert found is not None and int(found[1]) == told["spent"]["nanousd"]
    spec = json.loads(re.search(r'id="c-spend">(.*?)</script>', page.text)[1])  # type: ignore[index]
    assert sum(sum(one["data"]) for one in spec["series"]) == told["spent"]["nanousd"]


async def test_a_team_s_admin_sees_the_team_alone(site: Site) -> None:
    await filled(site)
    key = await site.key("ops", "team_admin")
    ops = next(one.id for one in await people.list_teams(site.parts.engine) if one.name == "ops")
    now_us = time.time_ns() // 1000
    await write(site.parts.engine, [record(now_us - 3_600_000_000, [("a", "completed", 77)], team_id=ops)])
    told = (await site.browser().get("/admin/overview", headers={"authorization": f"Bearer {key}"})).json()
    assert (told["requests"], told["spent"]["nanousd"], told["budgets"]) == (1, 77, [])
    assert told["month"]["limit"] is None and [one["requests"] for one in told["places"]] == [1]


async def test_what_needs_a_hand_is_said_with_a_way_on(site: Site) -> None:
    await filled(site)
    spent = people.NewBudget(scope_kind="organisation", scope="default", limit_nanousd=1, period="total")
    number = (await people.set_budget(site.parts.engine, spent, actor=COMMAND_LINE)).id
    text = (await (await site.signed_in()).get("/console/overview")).text
    assert "default has spent its budget." in text and f'href="/console/budgets/{number}"' in text
    assert "requests have no price." in text


async def test_every_page_counts_what_needs_a_hand_in_its_side_bar(site: Site) -> None:
    """And the overview says how fast a month's errors are used up, of those teams alone that are seen."""
    await teams(site)
    now_us = time.time_ns() // 1000
    failed = [record(now_us - 90_000_000, [("near", "failed", 3)], outcome="failed", team_id=1) for _ in range(60)]
    await write(site.parts.engine, failed)
    for team in ("ops", "other"):
        await site.key(team, "inference")
        spent = people.NewBudget(scope_kind="team", scope=team, limit_nanousd=0, period="month")
        await people.set_budget(site.parts.engine, spent, actor=COMMAND_LINE)
    site.parts.router.states(site.parts.catalog)["near"].health.wait_until = time.monotonic() + 600.0
    await site.parts.attention.look()
    admin, team_admin, finance = [await site.signed_in(role) for role in ("admin", "team_admin", "finance")]
    for page in ("overview", "teams", "reports", "budgets", "nothing-here"):
        assert counted((await admin.get(f"/console/{page}")).text) == {"backends": 1, "budgets": 2}, page
        assert counted((await team_admin.get(f"/console/{page}")).text) == {"backends": 1, "budgets": 1}, page
        assert counted((await finance.get(f"/console/{page}")).text) == {"budgets": 2}, page
    said = re.search(
        r"<b><bdi>(.*? of the requests of the last hour failed.)</bdi></b>.*?used up in (.*?)</span>.*?href=\"(.*?)\"",
        (await admin.get("/console/overview")).text,
    )
    assert said is not None and said[3] == "/console/requests?range=1h&amp;outcome=failed", said
    assert "of the requests" not in (await team_admin.get("/console/overview")).text
    key = await site.key("ops", "admin")
    told = (await site.browser().get("/admin/overview", headers={"authorization": f"Bearer {key}"})).json()
    assert [one["bad"] for one in told["attention"] if one["kind"] == "burn"] == [True]


def counted(text: str) -> dict[str, int]:
    """Entry of the side bar -> its count."""
    return {
        path: int(number)
        for path, number in re.findall(
            r'<a href="/console/(\w+)"[^>]*>(?:(?!</a>).)*?<span class="cnt bad">(\d+)<span class="vh"> needs attention</span>', text
        )
    }


async def test_what_is_asked_wrongly_is_said(site: Site) -> None:
    browser = await site.signed_in()
    for query in ("range=2d", "split=key", "team=ops", "x=1"):
        assert (await browser.get(f"/console/overview?{query}")).status_code == 400, query
