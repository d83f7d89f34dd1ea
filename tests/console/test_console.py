"""The console as a whole: closed to everybody who has not signed in, every answer under one policy, every failure a page."""

from __future__ import annotations

import re
from collections.abc import Iterator

from litestar.routes import HTTPRoute
from sqlalchemy import text

from gateway import access, console
from gateway.console import assets, nav, shell
from gateway.settings import ConsoleSettings
from tests.console.checks import meets, sound
from tests.console.conftest import Site

OPEN = {"/console/login", "/console/welcome", "/console/static/{version}/{name}", "/", "/console"}


def routes(site: Site) -> Iterator[tuple[str, str, frozenset[str] | None]]:
    """(method, path, whom it is open to) of every call of the console."""
    for route in site.application.litestar.routes:
        if isinstance(route, HTTPRoute) and (route.path_format == "/" or route.path_format.startswith("/console")):
            for handler in route.route_handlers:
                for method in handler.http_methods - {"OPTIONS"}:
                    yield method, route.path_format, handler.opt.get("access")


def address(path: str) -> str:
    """A path with something in the place of its parameters."""
    return re.sub(r"\{(\w+)\}", lambda found: "1" if found[1].endswith("_id") else "x", path)


def paths(site: Site) -> list[str]:
    return [path for _, path, _ in routes(site)]


async def test_every_call_says_whom_it_is_open_to_and_asks(site: Site) -> None:
    stranger = site.browser()
    for method, path, open_to in routes(site):
        if path in OPEN:
            continue
        assert open_to is not None and open_to <= access.EVERYONE, (method, path)
        answer = await stranger.request(method, address(path))
        assert answer.status_code == 302 and answer.headers["location"].startswith("/console/login"), (method, path)
        assert answer.headers["content-security-policy"] == shell.CSP


async def test_a_change_without_a_form_s_token_changes_nothing(site: Site) -> None:
    browser = await site.signed_in()
    for method, path, _ in routes(site):
        if method != "GET" and path not in OPEN:
            assert (await browser.request(method, address(path))).status_code == 403, (method, path)
    assert (await browser.get("/console/overview")).status_code == 200


async def test_the_side_bar_leads_where_the_role_may_go(site: Site) -> None:
    for role in ("admin", "finance", "team_admin"):
        browser = await site.signed_in(role)
        for entry in nav.ENTRIES:
            answer = await browser.get(f"/console/{entry.path}")
            assert answer.status_code == (200 if role in entry.open_to else 403), entry.path
            page = sound(answer, paths(site))
            assert page.headings.count("h1") == 1
            assert (f"/console/{entry.path}" in page.links) is (role in entry.open_to)


async def test_what_goes_wrong_is_told_as_a_page(site: Site) -> None:
    browser = await site.signed_in()
    for path, status in (("/console/nothing", 404), ("/console/nothing/-/part", 404), ("/console/overview?x=%3Cscript%3E", 400)):
        answer = await browser.get(path)
        page = sound(answer, paths(site))
        assert answer.status_code == status and "/console/overview" in page.links
        assert "<script>" not in answer.text


async def test_a_live_part_that_fails_leaves_the_page_as_it_is(site: Site) -> None:
    browser = await site.signed_in()
    answer = await browser.get("/console/nothing/-/part", headers={"hx-request": "true"})
    assert (answer.status_code, answer.headers["hx-reswap"], answer.text) == (404, "none", "")
    stranger = await site.browser().get("/console/overview/-/kpis", headers={"hx-request": "true"})
    assert (stranger.status_code, stranger.headers["hx-refresh"]) == (401, "true")


async def test_a_database_that_is_away_is_said(site: Site) -> None:
    browser = await site.signed_in()
    async with site.parts.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE sessions RENAME TO hidden"))
    answer = await browser.get("/console/overview")
    assert answer.status_code == 503 and "The database does not answer" in answer.text
    sound(answer, paths(site))


async def test_static_files_are_kept_for_ever_under_their_content(site: Site) -> None:
    browser = site.browser()
    for name in assets.files():
        answer = await browser.get(assets.url(name))
        assert (answer.status_code, answer.content) == (200, assets.files()[name])
        assert "immutable" in answer.headers["cache-control"] and answer.headers["x-content-type-options"] == "nosniff"
    old = await browser.get("/console/static/0123/console.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    for name in ("vendor/README.md", "../templates/base.html", "..%2ftemplates/base.html", "nothing.css"):
        assert (await browser.get(f"/console/static/{assets.version()}/{name}")).status_code == 404


async def test_the_root_leads_to_the_console(site: Site) -> None:
    browser = site.browser()
    for path in ("/", "/console"):
        answer = await browser.get(path)
        assert (answer.status_code, answer.headers["location"]) == (302, "/console/overview")


async def test_it_can_be_switched_off(site: Site) -> None:
    import msgspec

    site.parts.settings = msgspec.structs.replace(site.parts.settings, console=ConsoleSettings(enabled=False))
    assert console.handlers(site.parts) == []


def test_links_meet_routes_of_their_own_shape() -> None:
    assert meets("/console/requests/7", "/console/requests/{id}")
    assert not meets("/console/requests", "/console/requests/{id}")
    assert not meets("/console/anything", "/console/{rest}")
