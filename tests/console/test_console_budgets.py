"""Budgets: read by whom they are open to, changed by forms that work without a script, and refused with the field's name."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from msgspec.structs import replace

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.console import budgets
from gateway.money.forecast import Line, OfBudget
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.console.test_overview import HOSTILE, filled


async def token(browser: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await browser.get("/console/budgets")).text)
    assert found is not None
    return found[1]


async def sent(browser: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    return await browser.post(path, data={"csrf": await token(browser), **fields})


async def test_no_budget_says_what_one_is(site: Site) -> None:
    answer = await (await site.signed_in()).get("/console/budgets")
    sound(answer, paths(site))
    assert "No budgets" in answer.text and "Set a budget" in answer.text


async def test_each_role_reads_and_no_name_runs(site: Site) -> None:
    await filled(site)
    from sqlalchemy import text

    async with site.parts.engine.begin() as connection:
        for team, limit, period in ((1, 1, "month"), (2, 10**15, "week"), (3, 10**9, "total")):
            await connection.execute(
                text(
                    "INSERT INTO budgets (scope_kind, scope_id, period, limit_nanousd, created_at_us)"
                    " VALUES ('team', :team, :period, :limit, 0)"
                ),
                {"team": team, "limit": limit, "period": period},
            )
    for role, status in (("admin", 200), ("finance", 200), ("team_admin", 404)):
        browser = await site.signed_in(role)
        answer = await browser.get("/console/budgets")
        sound(answer, paths(site))
        assert ("No budgets" in answer.text) is (role == "team_admin")
        assert ("Set a budget" in answer.text) is (role != "finance")
        for number in (1, 2, 3, 4):
            one = await browser.get(f"/console/budgets/{number}")
            assert one.status_code == status, (role, number)
            sound(one, paths(site))
            assert "<img" not in one.text and "<script>alert" not in one.text
            assert any(name[:4] in one.text for name in ("Lift", *HOSTILE)) or role != "admin"
    listed = (await (await site.signed_in()).get("/console/budgets")).text
    assert listed.count('<polyline class="l" ') == 3 and listed.count("no end") == 1 and listed.count("rowlink") == 4
    spec = json.loads(re.search(r'id="c-burn">(.*?)</script>', (await (await site.signed_in()).get("/console/budgets/2")).text)[1])  # type: ignore[index]
    assert spec["shade"]["x"] and len(spec["series"]) == 3 and len(spec["x"]) == len(spec["series"][0]["data"])


def test_a_spark_runs_from_the_limit_to_what_is_left_and_on_to_the_forecast() -> None:
    day_us = 86_400_000_000
    line = Line(group=(), spent=100, expected=150, low=None, high=None, method="mean", days=9)
    of = OfBudget(budget=None, limit=100, line=line, passes="", since_us=0, until_us=4 * day_us, history={0: 25, 1: 75})  # type: ignore[arg-type]
    assert budgets.spark(of, 2 * day_us) == budgets.Spark("0.0,2.0 25.0,7.5 50.0,24.0", "50.0,24.0 100.0,24.0")
    half = replace(of, line=replace(line, spent=50, expected=75), history={0: 50})
    assert budgets.spark(half, 2 * day_us) == budgets.Spark("0.0,2.0 50.0,13.0", "50.0,13.0 100.0,18.5")
    assert budgets.spark(replace(of, line=replace(line, expected=None)), 2 * day_us).ahead == ""
    assert budgets.spark(replace(of, until_us=None), 2 * day_us) == budgets.Spark("", "")
    assert budgets.spark(replace(of, limit=0), 2 * day_us).left == "0.0,24.0 25.0,24.0 50.0,24.0"


async def test_a_budget_is_set_overridden_and_lifted(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await site.signed_in()
    fields = {
        "scope_kind": "team",
        "scope": "search",
        "usd": "$1,500.50",
        "per": "month",
        "timezone": "Europe/Berlin",
        "model": "",
        "alerts": "50 %, 90",
    }
    answer = await sent(browser, "/console/budgets", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/budgets/1"), answer.text
    made = (await people.list_budgets(site.parts.engine))[0]
    assert (made.limit_nanousd, made.timezone, made.alerts) == (1_500_500_000_000, "Europe/Berlin", (50, 90))
    assert (await sent(browser, "/console/budgets/1/override", usd="9", until="12h")).status_code == 303
    assert (await people.list_budgets(site.parts.engine))[0].override_nanousd == 9 * 10**9
    assert "End the override" in (await browser.get("/console/budgets/1")).text
    assert (await sent(browser, "/console/budgets/1/end-override")).status_code == 303
    assert (await people.list_budgets(site.parts.engine))[0].override_nanousd is None
    assert (await sent(browser, "/console/budgets/1/lift")).headers["location"] == "/console/budgets"
    assert await people.list_budgets(site.parts.engine) == []


async def test_what_cannot_be_set_is_said_at_its_field(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await site.signed_in()
    good = {"scope_kind": "team", "scope": "search", "usd": "5", "per": "month", "timezone": "UTC", "model": "", "alerts": "80"}
    for field, value in (
        ("usd", "five"),
        ("usd", "-1"),
        ("scope", "<b>nobody"),
        ("timezone", "Mars"),
        ("alerts", "x"),
        ("alerts", "500"),
        ("per", "year"),
    ):
        answer = await sent(browser, "/console/budgets", **(good | {field: value}))
        sound(answer, paths(site))
        assert answer.status_code in (400, 404), field
        assert f'id="d-{field}"' in answer.text or field == "per", (field, value)
        assert "<b>nobody" not in answer.text and '<dialog id="set"' in answer.text
    assert await people.list_budgets(site.parts.engine) == []
    await people.set_budget(
        site.parts.engine, people.NewBudget(scope_kind="team", scope="search", limit_nanousd=5, period="day"), actor=COMMAND_LINE
    )
    answer = await sent(browser, "/console/budgets/1/override", usd="9", until="yesterday")
    sound(answer, paths(site))
    assert answer.status_code == 400 and 'id="d-until"' in answer.text
    assert (await sent(browser, "/console/budgets/99/override", usd="9", until="12h")).status_code == 404


async def test_who_may_not_change_one_cannot(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    await people.set_budget(
        site.parts.engine, people.NewBudget(scope_kind="team", scope="search", limit_nanousd=5, period="day"), actor=COMMAND_LINE
    )
    fields = {"scope_kind": "team", "scope": "search", "usd": "5000", "per": "day"}
    for role in ("finance", "team_admin"):
        browser = await site.signed_in(role)
        for path in ("/console/budgets", "/console/budgets/1/override", "/console/budgets/1/end-override", "/console/budgets/1/lift"):
            answer = await sent(browser, path, **fields, until="12h")
            assert answer.status_code in (403, 404), (role, path)
    assert [one.limit_nanousd for one in await people.list_budgets(site.parts.engine)] == [5]
