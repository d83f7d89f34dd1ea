"""What another team is and did, asked for by its names and numbers: told like what is not there, and changed by nobody of a team beside."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from msgspec import Struct
from sqlalchemy import text

from gateway import people, rates
from gateway.access import COMMAND_LINE
from gateway.people import members
from gateway.people.members import NewMember
from tests.console.conftest import Site
from tests.console.test_hostile import token_of
from tests.console.test_roles import TABLE
from tests.fixtures.ledger import record, write

RIVAL, NOBODY = "zqrival", "zqnobody"
ASKED = (  # filters of pages and calls
    *(f"/console/requests?{one}" for one in ("team={team}", "key={public}", "q={request_id}", "tag={team}-tag")),
    *("/console/reports?by=key&team={team}", "/console/reports/csv?team={team}", "/console/reports/statement?team={team}&month=2026-11"),
    *("/console/audit?team={team}", "/console/audit?ident={public}", "/console/audit?actor={email}"),
    *("/console/playground?key={public}&route=assistant&message=hello", "/console/budgets", "/console/teams", "/console/overview"),
    *("/admin/keys?team={team}", "/admin/members?team={team}", "/admin/audit?team={team}", "/admin/audit?ident={public}"),
    *("/admin/requests?team={team}", "/admin/requests?key={public}", "/admin/requests?q={request_id}", "/admin/reports/spend?team={team}"),
    *("/admin/reports/statement?team={team}&month=2026-11", "/admin/reports/forecast?team={team}", "/v1/requests/{request_id}"),
)
CHANGING = re.compile(r'name="csrf" value="\w+"|"x-csrf-token":"\w+"|datetime="[^"]+"|\d\d:\d\d(:\d\d)?|"now_us":\d+')
KEPT = (
    *("teams", "api_keys", "former_secrets", "members", "memberships", "budgets", "limits", "made_entries", "backend_orders", "price_book"),
)
PASSWORD = "a bridge that asks for no toll"
FORMS = {  # what a form of each path sends; every other sends {}
    "/console/teams/{team}": {"name": "mine"},
    "/console/teams/{team}/keys/{public}": {"name": "mine"},
    "/console/teams/{team}/keys/{public}/expire": {"expires": "1d"},
    "/console/teams/{team}/keys/{public}/rotate": {"overlap": "1h"},
    "/console/teams/{team}/members": {"email": "mine@example.org", "role": "member"},
    "/console/teams/{team}/members/role": {"email": f"{RIVAL}@example.org", "role": "team_admin"},
    "/console/budgets/{budget_id}/override": {"usd": "1", "until": "1d"},
}


class Theirs(Struct, frozen=True, kw_only=True):
    """Of a team that is not the caller's, or that is not there: what stands in a path, and the secret words that only its own may see."""

    values: dict[str, str]
    hidden: tuple[str, ...] = ()


NOTHING = Theirs(
    values={
        "team": NOBODY,
        "public": "A" * 12,
        "budget_id": "999999",
        "limit_id": "999999",
        "request_id": "00000000-0000-7000-8000-000000000001",
        "email": f"{NOBODY}@example.org",
    }
)


async def rival(site: Site) -> Theirs:
    """A team with everything that a team can have."""
    engine = site.parts.engine
    key = await site.key(RIVAL, "inference", name=f"{RIVAL}-key", tag=f"{RIVAL}-tag")
    their = NewMember(email=f"{RIVAL}@example.org", name=f"{RIVAL} name", teams={RIVAL: "team_admin"})
    _, member = await members.add_member(engine, their, COMMAND_LINE)
    public = key.removeprefix("tw-")[:12]
    team = next(one.id for one in await people.list_teams(engine) if one.name == RIVAL)
    (key_id,) = (one.id for one in await people.list_keys(engine, RIVAL))
    spend = people.NewBudget(scope_kind="team", scope=RIVAL, limit_nanousd=77 * 10**9, period="month")
    budget = await people.set_budget(engine, spend, actor=COMMAND_LINE)
    limit = await rates.set_limit(engine, rates.NewLimit(scope_kind="team", scope=RIVAL, rpm=77), actor=COMMAND_LINE)
    now_us = time.time_ns() // 1000
    row = record(now_us - 60_000_000, [("near", "completed", 10**6)], team_id=team, key_id=key_id, tag=f"{RIVAL}-tag")
    await write(engine, [row], now_us)
    values = {"team": RIVAL, "public": public, "budget_id": str(budget.id), "limit_id": str(limit.id), "request_id": str(row.id)}
    return Theirs(values={**values, "email": member.email}, hidden=(f"{RIVAL}-key", f"{RIVAL}-tag", f"{RIVAL} name", "77.00", "$77"))


def placed(path: str, whose: Theirs) -> str:
    """A path with somebody's values; {name} of /admin/teams is a team's."""
    values = whose.values | ({"name": whose.values["team"]} if "/teams/{name}" in path else {"name": "near"})
    values |= {"part": "kpis", "order": "drain", "rest": "nowhere"}
    return re.sub(r"{(\w+)}", lambda found: values[found[1]], path)


def plain(answer: httpx.Response, template: str, whose: Theirs) -> str:
    """The answer without the names that were asked for: what is left must not depend on whether they are there."""
    said = unquote(answer.text)
    said = said.partition("<main")[2].partition("</main>")[0] or said
    for name, value in whose.values.items():
        if f"{{{name}}}" in template:
            said = re.sub(rf"{'budget ' * (name == 'budget_id')}\b{re.escape(value)}\b", "·", said)
    return CHANGING.sub("", said)


async def signed_in_as_member(site: Site, email: str, teams: dict[str, str]) -> httpx.AsyncClient:
    link, _ = await members.add_member(site.parts.engine, NewMember(email=email, teams=teams), COMMAND_LINE)
    browser = site.browser()
    answer = await browser.post("/console/welcome", data={"link": link, "password": PASSWORD, "again": PASSWORD})
    assert answer.status_code == 303
    return browser


async def kept(site: Site) -> list[Any]:
    async with site.parts.engine.connect() as connection:
        return [list(await connection.execute(text(f"SELECT * FROM {table}"))) for table in KEPT]


@pytest.fixture
async def strangers(site: Site) -> dict[str, httpx.AsyncClient]:
    """Browsers of those who may see team growth alone."""
    await site.key("growth", "inference")
    return {
        "team_admin": await signed_in_as_member(site, "lead@example.org", {"growth": "team_admin"}),
        "member": await signed_in_as_member(site, "maria@example.org", {"growth": "member"}),
    }


async def test_what_another_team_has_answers_like_what_is_not_there(site: Site, strangers: dict[str, httpx.AsyncClient]) -> None:
    theirs = await rival(site)
    keys = {scope: await site.key("growth", scope) for scope in ("team_admin", "inference")}
    calls = {scope: site.browser(authorization=f"Bearer {key}") for scope, key in keys.items()}
    in_paths = [path for method, path in (name.split() for name in TABLE) if method == "GET" and "{" in path]
    wrong = []
    for template in (*in_paths, *ASKED):
        for caller, browser in strangers.items() if template.startswith("/console") else calls.items():
            answer, absent = await browser.get(placed(template, theirs)), await browser.get(placed(template, NOTHING))
            shown = [word for word in theirs.hidden if word in answer.text and word not in placed(template, theirs)]
            if answer.status_code != absent.status_code or plain(answer, template, theirs) != plain(absent, template, NOTHING) or shown:
                wrong.append(f"{caller} {template}: {answer.status_code} {absent.status_code} {shown}")
    assert wrong == []
    told = await (await site.signed_in("finance", "ledgers")).get(placed("/console/teams/{team}/keys/{public}", theirs))
    assert f"{RIVAL}-key" in told.text, "who may see it does"


async def test_nobody_changes_what_another_team_has(site: Site, strangers: dict[str, httpx.AsyncClient]) -> None:
    theirs = await rival(site)
    before, wrong = await kept(site), []
    for name in TABLE:
        method, path = name.split()
        if method != "POST" or not path.startswith("/console") or "{" not in path:
            continue
        for caller, browser in strangers.items():
            token = token_of(await browser.get("/console/overview"))
            answer = await browser.post(placed(path, theirs), data={**FORMS.get(path, {}), "csrf": token})
            if answer.status_code not in (403, 404):
                wrong.append(f"{caller} {path}: {answer.status_code} {answer.text[-300:]}")
    assert wrong == []
    assert await kept(site) == before
    for caller, browser in strangers.items():
        token = token_of(await browser.get("/console/overview"))
        played = {"key": theirs.values["public"], "route": "assistant", "message": "hello"}
        answer = await browser.post("/console/playground/send", json=played, headers={"x-csrf-token": token})
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "key"), caller
