"""Signing in and out, by browsers that follow the forms and by others that do not."""

from __future__ import annotations

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.people.members import NewMember, add_member
from tests.console.checks import seen
from tests.console.conftest import ORIGIN, Site


async def test_a_key_with_a_role_signs_in_and_out(site: Site) -> None:
    browser = site.browser()
    key = await site.key("ops", "admin")
    first = await browser.get("/console/login?with=key&next=/console/overview?range=7d")
    assert first.status_code == 200 and "key" in seen(first.text).fields[0]
    answer = await browser.post("/console/login", data={"kind": "key", "key": f" {key} ", "next": "/console/overview?range=7d"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/overview?range=7d")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and key not in cookie and "secure" not in cookie
    page = await browser.get("/console/overview")
    assert page.status_code == 200
    token = page.text.partition('name="csrf" value="')[2].partition('"')[0]
    out = await browser.post("/console/logout", data={"csrf": token})
    assert (out.status_code, out.headers["location"]) == (303, "/console/login")
    assert (await browser.get("/console/overview")).status_code == 302


async def test_htmx_is_told_to_load_the_page(site: Site) -> None:
    sent = {"kind": "key", "key": await site.key("ops", "admin")}
    answer = await site.browser().post("/console/login", data=sent, headers={"hx-request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (200, "/console/overview")


REFUSED = [
    ({"kind": "key", "key": ""}, 400),
    ({"kind": "key", "key": "banana"}, 401),
    ({"kind": "key", "key": "tw-AAAAAAAAAAAA-" + "B" * 43}, 401),
    ({"kind": "password", "email": "", "password": "x"}, 400),
    ({"kind": "password", "email": "<script>@x", "password": "wrong"}, 401),
]


async def test_who_cannot_sign_in_is_told_on_the_form(site: Site) -> None:
    for sent, status in REFUSED:
        answer = await site.browser().post("/console/login", data=sent)
        assert answer.status_code == status and "set-cookie" not in answer.headers, sent
        assert 'role="alert"' in answer.text and "<script>@x" not in answer.text, sent


async def test_an_inference_key_is_no_way_in(site: Site) -> None:
    answer = await site.browser().post("/console/login", data={"kind": "key", "key": await site.key("ops", "inference")})
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


async def test_another_site_cannot_sign_anybody_in(site: Site) -> None:
    browser = site.browser()
    browser.headers.pop("origin")
    sent = {"kind": "key", "key": await site.key("ops", "admin")}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {}):
        answer = await browser.post("/console/login", data=sent, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers


ELSEWHERE = (
    "https://evil.example",
    "//evil.example",
    "/console/../admin",
    "/\\evil",
    "/console/logout",
    "javascript:1",
    "/console/\r\nx: y",
    "/console//evil.example",
)


async def test_the_way_on_stays_in_the_console(site: Site) -> None:
    key = await site.key("ops", "admin")
    for path in ELSEWHERE:
        answer = await site.browser().post("/console/login", data={"kind": "key", "key": key, "next": path})
        assert answer.headers["location"] == "/console/overview", path


async def test_over_tls_the_cookie_is_for_tls(site: Site) -> None:
    sent = {"kind": "key", "key": await site.key("ops", "admin")}
    answer = await site.browser().post("/console/login", data=sent, headers={"x-forwarded-proto": "https", "origin": ORIGIN})
    assert answer.headers["set-cookie"].startswith("__Host-tollway_session=") and "secure" in answer.headers["set-cookie"].lower()


async def test_a_member_sets_a_password_with_a_link_and_signs_in_with_it(site: Site) -> None:
    await people.add_team(site.parts.engine, "ops", actor=COMMAND_LINE)
    link, _ = await add_member(site.parts.engine, NewMember(email="anna@example.org", teams={"ops": "member"}), actor=COMMAND_LINE)
    browser = site.browser()
    form = await browser.get("/console/welcome", params={"link": link})
    assert form.status_code == 200 and {"link", "password", "again"} <= seen(form.text).fields[0]
    sent = {"link": link or "", "password": "correct horse battery", "again": "correct horse batteri"}
    assert (await browser.post("/console/welcome", data=sent)).status_code == 400
    answer = await browser.post("/console/welcome", data=sent | {"again": sent["password"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/overview")
    assert "anna@example.org" in (await browser.get("/console/overview")).text
    assert (await browser.post("/console/welcome", data=sent | {"again": sent["password"]})).status_code == 404, "once"
    other = site.browser()
    answer = await other.post("/console/login", data={"kind": "password", "email": "Anna@example.org", "password": sent["password"]})
    assert answer.status_code == 303 and (await other.get("/console/overview")).status_code == 200
