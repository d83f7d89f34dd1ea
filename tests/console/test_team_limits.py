"""Rate limits by form: of the team and its keys, set, changed and lifted by those who may; what is wrong is said at its field."""

from __future__ import annotations

import re

from gateway import audit, people, rates
from gateway.access import COMMAND_LINE
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.console.test_teams import member, sent

AT = "teams/search/limits"


async def key(site: Site, team: str = "search", **more: str) -> people.Key:
    return (await people.add_key(site.parts.engine, site.secret, people.NewKey(team=team, **more), actor=COMMAND_LINE))[1]  # type: ignore[arg-type]


async def held(site: Site) -> list[tuple[str, str, str | None, int | None, int | None, int | None]]:
    return [(one.scope_kind, one.scope, one.model, one.rpm, one.tpm, one.parallel) for one in await rates.list_limits(site.parts.engine)]


async def test_a_limit_is_set_changed_and_lifted(site: Site) -> None:
    browser = await site.signed_in()
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    made = await key(site, name="<b>ci</b>")
    empty = await browser.get(f"/console/{AT}")
    sound(empty, paths(site))
    assert "No rate limits" in empty.text
    answer = await sent(browser, AT, key="", route="", rpm="1,200", tpm="", parallel="0")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/console/{AT}")
    await sent(browser, AT, key=made.public, route="assistant", rpm="", tpm=" 90000 ", parallel="")
    assert await held(site) == [("team", "search", None, 1200, None, 0), ("key", made.public, "assistant", None, 90_000, None)]
    page = await browser.get(f"/console/{AT}")
    sound(page, paths(site))
    assert "1,200" in page.text and "90,000" in page.text and "&lt;b&gt;ci" in page.text and "no limit" in page.text

    begun = await browser.get(f"/console/{AT}?limit=2")
    sound(begun, paths(site))
    assert f'value="{made.public}" selected' in begun.text and 'value="90000"' in begun.text and 'value="assistant" selected' in begun.text
    assert (await browser.get(f"/console/{AT}?limit=99")).status_code == 404
    await sent(browser, AT, key=made.public, route="assistant", rpm="5", tpm="", parallel="")
    assert (await held(site))[1] == ("key", made.public, "assistant", 5, None, None)
    assert (await sent(browser, f"{AT}/1/lift")).headers["location"] == f"/console/{AT}"
    assert len(await held(site)) == 1
    told = [(one.actor[:4], one.action, one.team) for one in (await audit.read(site.parts.engine, audit.Asked(kind="limit")))[0]]
    assert told == [("key ", action, "search") for action in ("limit.delete", "limit.set", "limit.set", "limit.set")]


async def test_what_cannot_be_a_limit_is_said_at_its_field(site: Site) -> None:
    browser = await site.signed_in()
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    for field, value in (("rpm", "many"), ("tpm", "-1"), ("parallel", "2.5"), ("rpm", "٣"), ("tpm", "9" * 40), ("rpm", "1000000000001")):
        answer = await sent(browser, AT, **({"key": "", "route": "", "rpm": "5", "tpm": "", "parallel": ""} | {field: value}))
        sound(answer, paths(site))
        assert answer.status_code == 400 and f'id="d-{field}"' in answer.text, (field, value)
        assert re.search(r'<dialog id="set"[^>]* open', answer.text) and "aria-invalid" in answer.text
    none = await sent(browser, AT, key="", route="", rpm="", tpm="", parallel="")
    assert none.status_code == 400 and "at least one of" in none.text
    gone = await sent(browser, AT, key="<b>nobody", route="", rpm="5")
    sound(gone, paths(site))
    assert gone.status_code == 404 and "There is no key" in gone.text and "<b>nobody" not in gone.text
    assert await held(site) == []


async def test_who_leads_a_team_limits_its_keys_and_not_the_team(site: Site) -> None:
    browser = await site.signed_in("team_admin", "search")
    mine, other = await key(site), (await people.add_team(site.parts.engine, "ads", actor=COMMAND_LINE), await key(site, "ads"))[1]
    for kind, scope in (("team", "search"), ("team", "ads"), ("key", other.public)):
        await rates.set_limit(site.parts.engine, rates.NewLimit(scope_kind=kind, scope=scope, rpm=7), actor=COMMAND_LINE)
    page = await browser.get(f"/console/{AT}")
    sound(page, paths(site))
    assert "The team, all its keys" not in page.text and "limits/1/lift" not in page.text and other.public not in page.text
    assert (await sent(browser, AT, key=mine.public, route="", rpm="9")).status_code == 303
    assert "limits/4/lift" in (await browser.get(f"/console/{AT}")).text
    refused = await sent(browser, AT, key="", route="", rpm="5000")
    sound(refused, paths(site))
    assert refused.status_code == 403 and "an admin sets" in refused.text
    assert (await sent(browser, AT, key=other.public, route="", rpm="5000")).status_code == 404
    assert [(await sent(browser, f"{AT}/{number}/lift")).status_code for number in (1, 2, 3, 99)] == [403, 404, 404, 404]
    assert (await browser.get("/console/teams/ads/limits")).status_code == 404
    assert [one[3] for one in await held(site)] == [7, 7, 7, 9]


async def test_a_member_reads_the_team_s_and_its_own(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await member(site, "ben@x.org", search="member")
    mine, theirs = await key(site, name="mine", member="ben@x.org"), await key(site, name="theirs")
    for kind, scope in (("team", "search"), ("key", mine.public), ("key", theirs.public)):
        await rates.set_limit(site.parts.engine, rates.NewLimit(scope_kind=kind, scope=scope, rpm=7), actor=COMMAND_LINE)
    page = await browser.get(f"/console/{AT}")
    sound(page, paths(site))
    assert "The team" in page.text and "mine" in page.text and "theirs" not in page.text and theirs.public not in page.text
    assert "Set a limit" not in page.text and "/lift" not in page.text and f"{AT}/../members" not in page.text
    assert (await sent(browser, AT, key=mine.public, route="", rpm="9")).status_code == 403
    assert (await sent(browser, f"{AT}/2/lift")).status_code == 403
