"""Hostile names in the data and in every field of every form: what people or models say stays text, and no form takes a stranger's word.

Walks the pages by their links, so that a page is tried on the day it comes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from msgspec import Struct

from gateway import people, throttle
from gateway.access import COMMAND_LINE
from gateway.people.members import NewMember, add_member
from tests.console.checks import seen
from tests.console.conftest import Site
from tests.fixtures.ledger import record, write

HOSTILE = '<img src=x onerror="window.pwned=1">\'"><svg onload=window.pwned=1>{{7*7}}'
LEAVES = ("/console/logout", "/console/login", "/console/static")
MOST = 60


class Form(Struct, frozen=True):
    """A form of a page with what a browser would send of it, free fields filled by `with_text`."""

    action: str
    method: str
    fields: tuple[tuple[str, str, str], ...]  # name, type, value

    def with_text(self, said: str) -> dict[str, str]:
        return {name: said if kind in ("text", "search", "textarea", "email", "password") else value for name, kind, value in self.fields}


class Forms(HTMLParser):
    """Forms with their fields, and every element that a hostile text would have to become."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, str, list[tuple[str, str, str]]]] = []
        self.born: list[str] = []
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if (tag == "img" and named.get("src") == "x") or "onload" in named or "onerror" in named:
            self.born.append(f"<{tag} {named}>")
        if tag == "form":
            self.forms.append((named.get("action") or named.get("hx-post", ""), named.get("method", "get").lower(), []))
        elif not self.forms:
            return
        elif tag == "input" and named.get("name") and named.get("type") not in ("submit", "button"):
            self._add(named["name"], named.get("type", "text"), named.get("value", "1"))
        elif tag == "textarea" and named.get("name"):
            self._add(named["name"], "textarea", "")
        elif tag == "select":
            self._select = named.get("name", "")
        elif tag == "option" and self._select:
            self._add(self._select, "select", named.get("value", ""))
            self._select = ""

    handle_startendtag = handle_starttag

    def _add(self, name: str, kind: str, value: str) -> None:
        self.forms[-1][2].append((name, kind, value))


def kind_of(path: str) -> str:
    """Pages that differ by what they are about are of one kind."""
    parts = path.partition("?")[0].strip("/").split("/")
    return "/".join("{}" if n == 2 else part for n, part in enumerate(parts))


def harmless(answer: httpx.Response) -> Forms:
    """A page on which nothing hostile came to life."""
    where = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code in (*range(200, 500), 503), where  # 503: what this process alone cannot do
    found = Forms(answer.text)
    assert found.born == [] and seen(answer.text).wrong == [], where
    return found


def links(html: str) -> Iterator[str]:
    for link in seen(html).links:
        if link.startswith("/console/") and not link.startswith(LEAVES):
            yield link.partition("#")[0]


async def prepared(site: Site) -> httpx.AsyncClient:
    """An admin over data in which every name that can be hostile is."""
    engine = site.parts.engine
    browser = await site.signed_in()
    await site.key("growth", "inference")
    await people.set_budget(
        engine, people.NewBudget(scope_kind="team", scope="growth", limit_nanousd=10**9, period="month"), actor=COMMAND_LINE
    )
    await add_member(engine, NewMember(email="anna@example.org", name=HOSTILE, role="admin"), actor=COMMAND_LINE)
    team = next(one.id for one in await people.list_teams(engine) if one.name == "growth")
    said: dict[str, Any] = {
        "route": HOSTILE,
        "tag": HOSTILE[:64],
        "error": HOSTILE,
        "model": HOSTILE,
        "backend": HOSTILE,
        "provider_id": HOSTILE,
    }
    now_us = time.time_ns() // 1000
    rows = [record(now_us - n * 60_000_000, [(HOSTILE, "completed", 10**6)], team_id=team, **said) for n in range(1, 4)]
    await write(engine, rows, now_us)
    return browser


async def walked(browser: httpx.AsyncClient) -> list[tuple[str, Form]]:
    """Every form of every kind of page, each page seen harmless."""
    known: set[str] = set()
    waiting, forms = ["/console/overview"], []
    while waiting and len(known) < MOST:
        path = waiting.pop(0)
        if kind_of(path) in known:
            continue
        known.add(kind_of(path))
        answer = await browser.get(path)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        assert answer.status_code == 200, path
        forms += [(path, Form(action or path, method, tuple(fields))) for action, method, fields in harmless(answer).forms]
        waiting += links(answer.text)
    return forms


async def sent(browser: httpx.AsyncClient, form: Form, values: dict[str, str]) -> httpx.Response:
    if form.method == "get":
        return await browser.get(form.action.partition("?")[0], params=values)
    return await browser.post(form.action, data=values)


async def test_what_is_written_into_any_form_stays_text(site: Site) -> None:
    browser = await prepared(site)
    forms = await walked(browser)
    assert forms
    done, signed_in = set(), 0
    for _page, form in forms:
        shape = (kind_of(form.action), form.method, tuple(name for name, _kind, _value in form.fields))
        if shape in done or form.action.startswith(LEAVES):
            continue
        done.add(shape)
        token = token_of(await browser.get("/console/overview"))
        if not token:  # a form before was about the key of this very session
            signed_in += 1
            browser = await site.signed_in(team=f"again-{signed_in}")
            token = token_of(await browser.get("/console/overview"))
        bound = {"csrf": token} if form.method == "post" else {}
        harmless(await sent(browser, form, form.with_text(HOSTILE) | bound))
    await walked(await site.signed_in(team="last"))  # whatever was taken in is told harmlessly, too


def token_of(answer: httpx.Response) -> str:
    """What forms of this session must send; "" for nobody's."""
    return answer.text.partition('name="csrf" value="')[2].partition('"')[0]


async def test_no_form_that_changes_something_is_taken_without_its_token_or_with_another_s(site: Site) -> None:
    browser = await prepared(site)
    other = await site.signed_in(team="other")
    stolen = token_of(await other.get("/console/overview"))
    assert stolen
    changing = [form for _page, form in await walked(browser) if form.method == "post"]
    assert changing
    for form in changing:
        own = form.with_text("a")
        assert own.get("csrf") and own["csrf"] != stolen, form.action
        for token in ("", stolen):
            assert (await sent(browser, form, {**own, "csrf": token})).status_code == 403, form.action
        evil = await browser.post(form.action, data=own, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403, form.action
    assert (await browser.get("/console/overview")).status_code == 200, "still signed in: no logout was taken either"


async def test_guessing_a_password_comes_to_a_stop_on_the_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ACCOUNT_FAILURES", 2)
    browser = site.browser()
    told = []
    for n in range(3):
        told.append(await browser.post("/console/login", data={"kind": "password", "email": "anna@example.org", "password": f"guess {n}"}))
    assert [answer.status_code for answer in told] == [401, 401, 429]
    assert 'role="alert"' in told[-1].text and "set-cookie" not in told[-1].headers
