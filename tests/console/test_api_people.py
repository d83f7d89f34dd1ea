"""Keys and members over HTTP: what each call answers, and that a team admin finds nothing of another team by any of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.console.conftest import Site


class Caller:
    def __init__(self, site: Site, key: str) -> None:
        self.client: httpx.AsyncClient = site.browser()
        self.headers = {"authorization": f"Bearer {key}"}

    async def __call__(self, method: str, path: str, body: Any = None, *, ok: int | None = None) -> Any:
        answer = await self.client.request(method, f"/admin/{path}", json=body, headers=self.headers)
        if ok is not None:
            assert answer.status_code == ok, (method, path, answer.text)
            return answer.json() if answer.content else None
        return answer.status_code, answer.json() if answer.content else None


@pytest.fixture
async def root(site: Site) -> Caller:
    return Caller(site, await site.key("ops", "admin"))


async def test_a_key_s_life(site: Site, root: Caller) -> None:
    made = await root("POST", "keys", {"team": "ops", "name": "ci"}, ok=201)
    public = made["key"]["public"]
    assert (await root("PATCH", f"keys/{public}", {"tag": "nightly"}, ok=200))["tag"] == "nightly"
    assert (await root("PUT", f"keys/{public}/block", ok=200))["blocked_at_us"] is not None
    assert (await root("DELETE", f"keys/{public}/block", ok=200))["blocked_at_us"] is None
    rotated = await root("POST", f"keys/{public}/rotate", {"overlap": "2d"}, ok=200)
    assert rotated["secret"] != made["secret"] and [one["public"] for one in rotated["key"]["former"]] == [public]
    listed = await root("GET", "keys?team=ops", ok=200)
    assert rotated["secret"][16:] not in str(listed) and [one["name"] for one in listed["data"]][-1] == "ci"
    assert (await root("DELETE", f"keys/{public}", ok=200))["revoked_at_us"] is None
    assert (await root("DELETE", f"keys/{rotated['key']['public']}", ok=200))["revoked_at_us"] is not None


async def test_a_member_s_life(site: Site, root: Caller) -> None:
    made = await root("POST", "members", {"email": "anna@x.org", "teams": {"ops": "member"}}, ok=201)
    assert made["link"].startswith("/console/welcome?link=") and made["member"]["teams"] == {"ops": "member"}
    browser = site.browser()
    word = "correct horse battery"
    link = made["link"].partition("=")[2]
    answer = await browser.post("/console/welcome", data={"link": link, "password": word, "again": word})
    assert answer.status_code == 303
    assert (await browser.get("/console/overview")).status_code == 200
    assert (await root("GET", "members?team=ops", ok=200))["data"][0]["has_password"] is True
    assert (await root("PUT", "members/anna@x.org/role", {"role": "finance"}, ok=200))["role"] == "finance"
    assert (await browser.get("/console/overview")).status_code == 302, "signed out: whoever invited them may know the password"
    assert (await root("PUT", "members/anna@x.org/teams/ops", {"role": "team_admin"}, ok=200))["teams"] == {"ops": "team_admin"}
    assert (await root("GET", "members?team=ops", ok=200))["data"][0]["has_password"] is False
    await root("DELETE", "members/anna@x.org/teams/ops", ok=204)
    again = await root("POST", "members/anna@x.org/link", ok=200)
    assert again["link"] != made["link"]
    link = again["link"].partition("=")[2]
    assert (await browser.post("/console/welcome", data={"link": link, "password": word, "again": word})).status_code == 303
    assert (await browser.get("/console/overview")).status_code == 200
    await root("DELETE", "members/anna@x.org", ok=204)
    assert (await browser.get("/console/overview")).status_code == 302
    assert (await root("GET", "members", ok=200)) == {"data": []}


async def test_a_team_admin_finds_nothing_of_another_team(site: Site, root: Caller) -> None:
    carla = Caller(site, await site.key("search", "team_admin"))
    await root("POST", "teams", {"name": "secretteam"}, ok=201)
    other = (await root("POST", "keys", {"team": "secretteam", "name": "secretkey"}, ok=201))["key"]["public"]
    await root("POST", "members", {"email": "secret@x.org", "teams": {"secretteam": "member"}}, ok=201)
    scope = {"scope_kind": "team", "scope": "secretteam"}
    budget = (await root("PUT", "budgets", scope | {"usd": "77", "per": "day"}, ok=200))["id"]
    limit = (await root("PUT", "limits", scope | {"rpm": 77}, ok=200))["id"]
    for path in ("teams", "keys", "members", "budgets", "limits", "audit?limit=500", "requests"):
        told = str(await carla("GET", path, ok=200))
        assert "secret" not in told.replace("secrets", "") and other not in told, path
    key_budget = {"scope_kind": "key", "scope": other, "usd": "1", "per": "day"}
    for method, path, body in (
        ("GET", "keys?team=secretteam", None),
        ("POST", "keys", {"team": "secretteam"}),
        ("PATCH", f"keys/{other}", {"name": "x"}),
        ("POST", f"keys/{other}/rotate", {}),
        ("PUT", f"keys/{other}/block", None),
        ("DELETE", f"keys/{other}/block", None),
        ("DELETE", f"keys/{other}", None),
        ("PUT", "budgets", key_budget),
        ("PUT", "budgets", scope | {"usd": "1", "per": "day"}),
        ("PUT", f"budgets/{budget}/override", {"usd": "1", "until": "1d"}),
        ("DELETE", f"budgets/{budget}/override", None),
        ("DELETE", f"budgets/{budget}", None),
        ("PUT", "limits", {"scope_kind": "key", "scope": other, "rpm": 1}),
        ("DELETE", f"limits/{limit}", None),
        ("POST", "members", {"email": "x@x.org", "teams": {"secretteam": "member"}}),
        ("PUT", "members/secret@x.org/teams/search", {"role": "member"}),
        ("DELETE", "members/secret@x.org/teams/secretteam", None),
    ):
        missing = path.replace(other, "A" * 12).replace("secretteam", "noteam").replace("secret@", "nobody@")
        missing = missing.replace(f"/{budget}", "/999999").replace(f"limits/{limit}", "limits/999999")
        absent = {name: {"secretteam": "noteam", other: "A" * 12}.get(str(value), value) for name, value in (body or {}).items()}
        if "teams" in absent:
            absent["teams"] = {"noteam": "member"}
        status, told = await carla(method, path, body)
        status_of_none, told_of_none = await carla(method, missing, None if body is None else absent)
        assert status == status_of_none == 404, (method, path, told, told_of_none)
        names = {
            "secretteam": "noteam",
            other: "A" * 12,
            "secret@": "nobody@",
            f" {budget}:": " N:",
            f" {limit}:": " N:",
            " 999999:": " N:",
        }
        same = [str(one["error"]) for one in (told, told_of_none)]
        for name, plain in names.items():
            same = [one.replace(name, plain) for one in same]
        assert same[0] == same[1], (method, path)
    assert (await root("GET", "keys?team=secretteam", ok=200))["data"][0]["name"] == "secretkey"
