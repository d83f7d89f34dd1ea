"""One's own account: another password, signing out everywhere, and a session of a key, which has no password."""

from __future__ import annotations

from gateway import people
from gateway.access import COMMAND_LINE
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.console.test_teams import WORD, member, sent

NEW = "another horse battery"


async def test_another_password_and_out_everywhere(site: Site) -> None:
    await people.add_team(site.parts.engine, "search", actor=COMMAND_LINE)
    browser = await member(site, "ben@x.org", search="member")
    sound(await browser.get("/console/account"), paths(site))
    for fields, told in (
        ({"old": WORD, "new": NEW, "again": "other"}, "differ"),
        ({"old": "wrong", "new": NEW, "again": NEW}, "not your present password"),
        ({"old": WORD, "new": "short", "again": "short"}, "12 to 256 characters"),
    ):
        answer = await sent(browser, "account", **fields)
        assert answer.status_code in (400, 401) and told in answer.text and 'aria-invalid="true"' in answer.text
        sound(answer, paths(site))
        assert "wrong" not in answer.text and NEW not in answer.text
    other = site.browser()
    assert (await other.post("/console/login", data={"email": "ben@x.org", "password": WORD})).status_code == 303
    changed = await sent(browser, "account", old=WORD, new=NEW, again=NEW)
    assert (changed.status_code, changed.headers["location"]) == (303, "/console/account")
    assert (await browser.get("/console/teams")).status_code == 200
    assert (await other.get("/console/teams")).status_code == 302
    assert (await other.post("/console/login", data={"email": "ben@x.org", "password": WORD})).status_code == 401
    assert (await other.post("/console/login", data={"email": "ben@x.org", "password": NEW})).status_code == 303
    out = await sent(browser, "account/sign-out")
    assert (out.status_code, out.headers["location"]) == (303, "/console/login")
    for one in (browser, other):
        assert (await one.get("/console/teams")).status_code == 302


async def test_a_key_s_session_has_no_password(site: Site) -> None:
    browser = await site.signed_in("team_admin")
    page = await browser.get("/console/account")
    sound(page, paths(site))
    assert "opened with an API key" in page.text and 'name="old"' not in page.text
    assert (await sent(browser, "account", old="a", new=NEW, again=NEW)).status_code == 400
