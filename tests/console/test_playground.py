"""The playground end to end in process: its call goes through the gateway as the key's, is charged to it, and a refusal is said."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from typing import Any

import httpx
from sqlalchemy import func, select

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.db.tables import api_keys, usage
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths

HOSTILE = "</script><img src=x onerror=alert(1)>"


async def token(browser: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await browser.get("/console/playground")).text)
    assert found is not None
    return found[1]


async def public(site: Site, team: str) -> str:
    async with site.parts.engine.connect() as connection:
        found = select(api_keys.c.public).where(api_keys.c.name == team, api_keys.c.scopes == "inference")
        return str((await connection.execute(found)).scalar_one())


async def settled(site: Site, request_id: str) -> Any:
    """The ledger row, once it is written."""
    for _ in range(600):
        async with site.parts.engine.connect() as connection:
            rows = (await connection.execute(select(usage))).all()
        found = [row for row in rows if str(row.id) == request_id]
        if found:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError("no row appeared")


async def send(browser: httpx.AsyncClient, key: str, csrf: str, **more: str) -> httpx.Response:
    fields = {"route": "assistant", "key": key, "message": "Say hello.", "max_tokens": "50"} | more
    return await browser.post("/console/playground/send", json=fields, headers={"x-csrf-token": csrf})


async def test_a_call_streams_and_is_charged_to_the_key(site: Site) -> None:
    await site.key("growth", "inference", name="growth")
    browser = await site.signed_in()
    key = await public(site, "growth")
    answer = await send(browser, key, await token(browser))
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert text and events[-1]["usage"]["completion_tokens"] > 0
    cost = re.search(r": tollway-cost-usd (\S+)", answer.text)
    request_id = answer.headers["x-tollway-request-id"]
    row = await settled(site, request_id)
    assert cost is not None and row.cost == round(float(cost[1]) * 1e9) > 0 and row.outcome == "completed"
    async with site.parts.engine.connect() as connection:
        whose = await connection.execute(select(api_keys.c.public).where(api_keys.c.id == row.key_id))
        assert whose.scalar_one() == key
    assert (await browser.get(f"/console/playground/-/why/{request_id}")).status_code == 404, "its decision is not stored yet"
    await site.application.decisions.flush()
    why = await browser.get(f"/console/playground/-/why/{request_id}")
    assert why.status_code == 200 and "Chosen" in why.text and why.text.count("<bdi>near</bdi>") == 1
    assert request_id in (await browser.get(f"/console/requests/{request_id}")).text


async def test_a_budget_that_is_spent_is_said(site: Site) -> None:
    browser = await site.signed_in()
    assert "No key to try with" in (await browser.get("/console/playground")).text
    await site.key("growth", "inference", name="growth")
    await site.key("search", "inference", name="search", models=("other",))
    refused = await send(browser, await public(site, "search"), await token(browser))
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "model_not_allowed", "a key's allow-list holds here too"
    await people.set_budget(
        site.parts.engine, people.NewBudget(scope_kind="team", scope="growth", limit_nanousd=5, period="month"), actor=COMMAND_LINE
    )
    await site.parts.snapshot.load()
    key, csrf = await public(site, "growth"), await token(browser)
    answer = await send(browser, key, csrf)
    assert answer.status_code == 402
    said = answer.json()["error"]["message"]
    assert "growth" in said and answer.json()["error"]["code"] == "insufficient_quota"
    form = {"route": "assistant", "key": key, "message": "Say hello.", "max_tokens": "50", "do": "send", "csrf": csrf}
    page = await browser.post("/console/playground", data=form)
    assert page.status_code == 200 and said in unescape(page.text) and "Refused." in page.text
    sound(page, paths(site))


async def test_without_scripts_the_form_shows_the_whole_answer(site: Site) -> None:
    await site.key("growth", "inference", name="growth")
    browser = await site.signed_in()
    form = {"route": "assistant", "key": await public(site, "growth"), "message": HOSTILE, "csrf": await token(browser)}
    would = await browser.post("/console/playground", data=form | {"do": "would"})
    assert "Would go to" in would.text and "The same call with curl" in would.text
    async with site.parts.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(usage))).scalar_one() == 0
    answer = await browser.post("/console/playground", data=form | {"do": "send"})
    page = sound(answer, paths(site))
    assert "x-tollway-request-id" in answer.text and any(link.startswith("/console/requests/") for link in page.links)
    assert HOSTILE not in answer.text and HOSTILE in unescape(answer.text)
    wrong = await browser.post("/console/playground", data=form | {"do": "would", "max_tokens": "many"})
    assert "no whole number" in wrong.text


async def test_nothing_is_sent_without_the_form_s_token_or_with_somebody_else_s_key(site: Site) -> None:
    for team in ("growth", "search"):
        await site.key(team, "inference", name=team)
    browser = await site.signed_in("team_admin", team="growth")
    own, foreign, csrf = await public(site, "growth"), await public(site, "search"), await token(browser)
    assert (await send(browser, own, "")).status_code == 403
    assert (await send(browser, own, csrf.replace(csrf[0], "0" if csrf[0] != "0" else "1"))).status_code == 403
    elsewhere = site.browser(origin="https://evil.example", cookie="; ".join(f"{k}={v}" for k, v in browser.cookies.items()))
    assert (await send(elsewhere, own, csrf)).status_code == 403
    for key in (foreign, "nothing"):
        refused = await send(browser, key, csrf)
        assert refused.status_code == 404 and refused.json()["error"]["param"] == "key"
    assert foreign not in (await browser.get("/console/playground")).text
    assert (await send(browser, own, csrf, route="banana")).status_code == 404
    assert (await browser.post("/console/playground/send", content=b"[1]", headers={"x-csrf-token": csrf})).status_code == 400
    assert (await send(browser, own, csrf)).status_code == 200
    assert len(site.parts.pipeline.in_flight) == 0
