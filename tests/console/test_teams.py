"""Teams and keys as pages: made, shown once, rotated, blocked, extended, revoked by forms; members invited; nothing of another team."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import httpx
import pytest

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.console import budgets as console_budgets
from gateway.console import teams as console_teams
from gateway.people import members
from gateway.sessions import Sessions
from tests.console.checks import sound
from tests.console.conftest import ORIGIN, Site
from tests.console.test_console import paths
from tests.fixtures.ledger import record, write

WORD = "correct horse battery"


async def token(browser: httpx.AsyncClient) -> str:
    """What this session's forms send."""
    found = re.search(r'name="csrf" value="(\w+)"', (await browser.get("/console/teams")).text)
    assert found is not None
    return found[1]


async def sent(browser: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    return await browser.post(f"/console/{path}", data={"csrf": await token(browser), **fields})


async def member(site: Site, email: str, **teams: str) -> httpx.AsyncClient:
    """A browser with the session of a member who set a password."""
    link, _ = await members.add_member(site.parts.engine, members.NewMember(email=email, teams=teams), actor=COMMAND_LINE)
    browser = site.browser()
    answer = await browser.post("/console/welcome", data={"link": link or "", "password": WORD, "again": WORD})
    assert answer.status_code == 303
    return browser


def secret_in(answer: httpx.Response) -> str:
    found = re.findall(r"tw-[0-9A-Za-z]{12}-[0-9A-Za-z]{43}", answer.text)
    assert len(set(found)) == 1
    return found[0]


async def test_a_team_and_its_first_key(site: Site) -> None:
    browser = await site.signed_in()
    assert "New team" in (await browser.get("/console/teams")).text
    refused = await sent(browser, "teams", name="a b")
    assert refused.status_code == 400 and "cannot name a team" in refused.text and 'aria-invalid="true"' in refused.text
    made = await sent(browser, "teams", name="search", org="product")
    assert (made.status_code, made.headers["location"]) == (303, "/console/teams/search")
    empty = await browser.get("/console/teams/search")
    sound(empty, paths(site))
    assert "No keys" in empty.text
    shown = await sent(browser, "teams/search", name="<b>ci</b>", models="assistant, gpt-4o", expires="30d")
    sound(shown, paths(site))
    secret = secret_in(shown)
    assert shown.headers["cache-control"] == "no-store" and "&lt;b&gt;ci" in shown.text
    (key,) = await people.list_keys(site.parts.engine, "search")
    assert (key.public, key.name, key.models) == (secret[3:15], "<b>ci</b>", ("assistant", "gpt-4o"))
    for path in ("teams", "teams/search", f"teams/search/keys/{key.public}", "audit"):
        page = await browser.get(f"/console/{path}")
        sound(page, paths(site))
        assert secret[16:] not in page.text and "<b>ci</b>" not in page.text
    wrong = await sent(browser, "teams/search", name="x", expires="yesterday")
    assert wrong.status_code == 400 and "yesterday" in wrong.text
    assert (await sent(browser, "teams/nowhere", name="x")).status_code == 404


async def test_a_key_is_rotated_blocked_extended_and_revoked_by_forms(site: Site) -> None:
    browser = await site.signed_in("team_admin", "search")
    first = secret_in(await sent(browser, "teams/search", name="ci"))
    at = f"teams/search/keys/{first[3:15]}"
    second = secret_in(await sent(browser, f"{at}/rotate", overlap="7d"))
    assert second != first
    page = await browser.get(f"/console/{at}")
    assert page.status_code == 200 and "Rotating, old secret ends" in page.text and second[3:15] in page.text
    at = f"teams/search/keys/{second[3:15]}"
    assert (await sent(browser, f"{at}/rotate", overlap="yesterday")).status_code == 400
    assert (await sent(browser, f"{at}/block")).headers["location"] == f"/console/{at}"
    assert "Blocked" in (await browser.get(f"/console/{at}")).text
    await sent(browser, f"{at}/unblock")
    await sent(browser, f"{at}/expire", expires="2d")
    await sent(browser, at, name="nightly", models="", tag="t", member="")
    key = (await people.list_keys(site.parts.engine, "search"))[-1]
    assert (key.blocked_at_us, key.expires_at_us is not None, key.name, key.models, key.tag) == (None, True, "nightly", None, "t")
    assert (await sent(browser, at, name="x" * 300)).status_code == 400
    await sent(browser, f"{at}/revoke")
    page = await browser.get(f"/console/{at}")
    sound(page, paths(site))
    assert "Revoked" in page.text and "/rotate" not in page.text


async def test_members_are_invited_and_see_what_they_may(site: Site) -> None:
    admin = await site.signed_in()
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    invited = await sent(admin, "teams/search/members", email="Carla@x.org", name="Carla", role="team_admin")
    sound(invited, paths(site))
    link = re.search(r"/console/welcome\?link=([\w-]+)", invited.text)
    assert link is not None and f"{ORIGIN}/console/welcome" in invited.text
    carla = site.browser()
    assert (await carla.post("/console/welcome", data={"link": link[1], "password": WORD, "again": WORD})).status_code == 303
    page = await carla.get("/console/teams/search/members")
    sound(page, paths(site))
    assert "carla@x.org" in page.text and "Invite" in page.text
    assert (await sent(carla, "teams/search/members", email="no address", role="member")).status_code == 400
    await sent(carla, "teams/search/members", email="ben@x.org", role="member")
    await sent(carla, "teams/search/members/role", email="ben@x.org", role="team_admin")
    assert [one.teams for one in await members.list_members(site.parts.engine)] == [{"search": "team_admin"}] * 2
    await sent(carla, "teams/search/members/role", email="ben@x.org", role="none")
    assert len(await members.list_members(site.parts.engine, team="search")) == 1


async def test_a_member_sees_its_own_keys_and_changes_nothing(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await member(site, "ben@x.org", search="member")
    for name, owner in (("mine", "ben@x.org"), ("theirs", None)):
        await people.add_key(site.parts.engine, site.secret, people.NewKey(team="search", name=name, member=owner), actor=COMMAND_LINE)
    page = await browser.get("/console/teams/search")
    sound(page, paths(site))
    assert "mine" in page.text and "theirs" not in page.text and "New key" not in page.text
    mine, theirs = (await people.list_keys(site.parts.engine, "search"))[:2]
    assert (await browser.get(f"/console/teams/search/keys/{mine.public}")).status_code == 200
    assert (await browser.get(f"/console/teams/search/keys/{theirs.public}")).status_code == 404
    assert (await sent(browser, "teams/search", name="x")).status_code == 403
    assert (await sent(browser, f"teams/search/keys/{mine.public}/block")).status_code == 403
    assert (await browser.get("/console/teams/search/members")).status_code == 403


async def test_what_is_left_of_the_team_s_budget_is_drawn(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await member(site, "ben@x.org", search="member")
    assert "What is left" not in (await browser.get("/console/teams/search")).text
    new = people.NewBudget(scope_kind="team", scope="search", limit_nanousd=12_500_000_000, period="month")
    await people.set_budget(site.parts.engine, new, actor=COMMAND_LINE)
    page = await browser.get("/console/teams/search")
    sound(page, paths(site))
    assert "What is left" in page.text and "$12.50" in page.text and "/console/budgets/" not in page.text
    assert "/console/budgets/1" in (await (await site.signed_in()).get("/console/teams/search")).text


async def test_spend_by_route_is_drawn_in_the_viewer_s_zone_and_range(site: Site) -> None:
    for name in ("search", "ads"):
        await people.add_team(site.parts.engine, name, actor=COMMAND_LINE)
    team, other = sorted(await people.list_teams(site.parts.engine), key=lambda one: one.name != "search")
    browser = await site.signed_in()
    empty = await browser.get("/console/teams/search")
    sound(empty, paths(site))
    assert "Nothing spent in this time" in empty.text
    now_us, day_us = time.time_ns() // 1000, 86_400_000_000
    costs = (("assistant", 2, 3 * 10**9), ("assistant", 10, 4 * 10**9), ("", 1, 5), ("old", 20, 10**9), ("assistant", 40, 10**11))
    rows = [record(now_us - days * day_us, [("near", "completed", cost)], team_id=team.id, route=route) for route, days, cost in costs]
    await write(site.parts.engine, [*rows, record(now_us, [("near", "completed", 10**12)], team_id=other.id)], now_us)
    page = await browser.get("/console/teams/search?range=30d&tz=Asia/Kathmandu")
    sound(page, paths(site))
    spec = spec_of(page, "spend")
    assert [(one["label"], sum(one["data"])) for one in spec["series"]] == [("assistant", 7 * 10**9), ("old", 10**9), ("none", 5)]
    assert (spec["zone"], spec["step"]) == ("Asia/Kathmandu", day_us // 10**6) and len(spec["x"]) == len(spec["series"][0]["data"]) == 31
    assert all((at + 5 * 3600 + 45 * 60) % 86_400 == 0 for at in spec["x"][1:]), "days begin at midnight there"
    assert "per day" in page.text and "Total $8.00" in page.text
    week = spec_of(await browser.get("/console/teams/search?range=7d"), "spend")
    assert [(one["label"], sum(one["data"])) for one in week["series"]] == [("assistant", 3 * 10**9), ("none", 5)]
    assert (await browser.get("/console/teams/search?route=assistant")).status_code == 400


def spec_of(page: httpx.Response, name: str) -> Any:
    found = re.search(rf'id="c-{name}">(.*?)</script>', page.text)
    assert found is not None
    return json.loads(found[1])


async def test_another_team_is_not_there(site: Site) -> None:
    browser = await site.signed_in("team_admin", "search")
    await people.add_team(site.parts.engine, "secretteam", actor=COMMAND_LINE)
    _, key = await people.add_key(site.parts.engine, site.secret, people.NewKey(team="secretteam", name="secretkey"), actor=COMMAND_LINE)
    for path in ("teams", "audit", "teams/search", "teams/search/members"):
        assert "secret" not in (await browser.get(f"/console/{path}")).text.replace("secrets", "").replace("secret is shown", "")
    for path in ("teams/secretteam", "teams/secretteam/members", f"teams/search/keys/{key.public}", f"teams/secretteam/keys/{key.public}"):
        assert (await browser.get(f"/console/{path}")).status_code == 404, path
    for path in ("block", "unblock", "revoke", "rotate", "expire"):
        assert (await sent(browser, f"teams/search/keys/{key.public}/{path}")).status_code == 404, path
    assert (await sent(browser, "teams/secretteam", name="x")).status_code == 404
    assert (await sent(browser, "teams/secretteam/members", email="a@x.org", role="member")).status_code == 404
    assert (await sent(browser, "teams", name="mine")).status_code == 403
    assert (await people.list_keys(site.parts.engine, "secretteam"))[0].blocked_at_us is None


async def test_signed_out_everywhere_means_here_too(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await member(site, "ben@x.org", search="member")
    sessions = Sessions(site.parts.engine, site.parts.keyring, 1)
    who = await sessions.actor(browser.cookies["tollway_session"])
    assert who is not None
    await sessions.end_all(who)
    assert (await browser.get("/console/teams")).status_code == 302


async def test_who_leads_one_team_sees_of_another_no_more_than_its_members_do(site: Site) -> None:
    for name in ("lead", "other"):
        await people.add_team(site.parts.engine, name, actor=COMMAND_LINE)
    await people.set_budget(
        site.parts.engine, people.NewBudget(scope_kind="team", scope="other", limit_nanousd=10**9, period="month"), actor=COMMAND_LINE
    )
    browser = await member(site, "anna@example.org", lead="team_admin", other="member")
    assert (await browser.get("/console/teams/lead/members")).status_code == 200
    assert (await browser.get("/console/teams/other/members")).status_code == 403
    await people.label_team(site.parts.engine, "other", {"residency": "mars"}, actor=COMMAND_LINE)
    log = await browser.get("/console/audit")
    assert log.status_code == 200 and "mars" not in log.text
    assert "/console/budgets/1" not in (await browser.get("/console/budgets")).text
    assert (await browser.get("/console/budgets/1")).status_code == 404
    assert (await browser.get("/console/reports/statement", params={"team": "other", "month": "2026-11"})).status_code == 404
    asked = await browser.get("/console/reports/statement")
    assert asked.status_code == 200 and ">lead<" in asked.text and ">other<" not in asked.text


async def test_a_long_list_is_cut_and_searched_by_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_teams, "SHOWN_MAX", 21)
    monkeypatch.setattr(console_budgets, "SHOWN_MAX", 21)
    browser = await site.signed_in()
    for number in range(22):
        made = await people.add_team(site.parts.engine, f"team-{number:02}", actor=COMMAND_LINE)
        new = people.NewBudget(scope_kind="team", scope=made.name, limit_nanousd=10**9, period="month")
        await people.set_budget(site.parts.engine, new, actor=COMMAND_LINE)
    for page, more in (("teams", "2 more"), ("budgets", "1 more")):  # the team of this very session is a team, too
        answer = await browser.get(f"/console/{page}")
        sound(answer, paths(site))
        assert answer.text.count("rowlink") == 21 and f"{more}: search by name" in answer.text, page
        found = await browser.get(f"/console/{page}?q=TEAM-21")
        assert found.text.count("rowlink") == 1 and "more: search" not in found.text and 'value="TEAM-21"' in found.text
        sound(found, paths(site))
        assert "Nothing by this name" in (await browser.get(f"/console/{page}?q=nobody")).text
        assert (await browser.get(f"/console/{page}?qq=x")).status_code == 400
