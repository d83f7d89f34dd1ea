"""Every route of a worker against the roles: who is let in stands here once more, route by route, and what is not here is a failure."""

from __future__ import annotations

import re

from litestar.handlers import HTTPRouteHandler

from gateway.access import ADMINS, EVERYONE, MONEY, TEAM_EDIT, WATCH
from gateway.app import COUNTING, SURFACES
from tests.console.conftest import Site
from tests.fixtures.ledger import record, write

TABLE = {
    "GET /admin/audit": TEAM_EDIT,
    "GET /admin/backends": WATCH,
    "PUT /admin/backends/{name}": ADMINS,
    "DELETE /admin/backends/{name}": ADMINS,
    "POST /admin/backends/{name}/drain": ADMINS,
    "POST /admin/backends/{name}/undrain": ADMINS,
    "POST /admin/backends/{name}/probe": ADMINS,
    "GET /admin/budgets": EVERYONE,
    "PUT /admin/budgets": TEAM_EDIT,
    "DELETE /admin/budgets/{budget_id}": TEAM_EDIT,
    "PUT /admin/budgets/{budget_id}/override": TEAM_EDIT,
    "DELETE /admin/budgets/{budget_id}/override": TEAM_EDIT,
    "GET /admin/config": ADMINS,
    "GET /admin/decisions/{request_id}": WATCH,
    "GET /admin/keys": EVERYONE,
    "POST /admin/keys": TEAM_EDIT,
    "PATCH /admin/keys/{public}": TEAM_EDIT,
    "DELETE /admin/keys/{public}": TEAM_EDIT,
    "PUT /admin/keys/{public}/block": TEAM_EDIT,
    "DELETE /admin/keys/{public}/block": TEAM_EDIT,
    "POST /admin/keys/{public}/rotate": TEAM_EDIT,
    "GET /admin/ledger/rows.csv": MONEY,
    "GET /admin/ledger/rows.jsonl": MONEY,
    "GET /admin/ledger/unknowns": MONEY,
    "POST /admin/ledger/unknowns/{request_id}": ADMINS,
    "GET /admin/limits": EVERYONE,
    "PUT /admin/limits": TEAM_EDIT,
    "DELETE /admin/limits/{limit_id}": TEAM_EDIT,
    "GET /admin/members": TEAM_EDIT,
    "POST /admin/members": TEAM_EDIT,
    "DELETE /admin/members/{email}": ADMINS,
    "POST /admin/members/{email}/link": ADMINS,
    "PUT /admin/members/{email}/role": ADMINS,
    "PUT /admin/members/{email}/teams/{team}": TEAM_EDIT,
    "DELETE /admin/members/{email}/teams/{team}": TEAM_EDIT,
    "GET /admin/organisations": MONEY,
    "GET /admin/overview": EVERYONE,
    "GET /admin/prices": MONEY,
    "PUT /admin/prices": ADMINS,
    "DELETE /admin/prices": ADMINS,
    "GET /admin/prices/check": MONEY,
    "GET /admin/reports/budgets": MONEY | TEAM_EDIT,
    "GET /admin/reports/forecast": MONEY | TEAM_EDIT,
    "GET /admin/reports/owned": MONEY,
    "GET /admin/reports/spend": MONEY | TEAM_EDIT,
    "GET /admin/reports/statement": MONEY | TEAM_EDIT,
    "GET /admin/requests": WATCH,
    "GET /admin/requests/{request_id}": WATCH,
    "POST /admin/reload": ADMINS,
    "POST /admin/route": WATCH,
    "GET /admin/routes": WATCH,
    "GET /admin/routes/{name}": WATCH,
    "PUT /admin/routes/{name}": ADMINS,
    "DELETE /admin/routes/{name}": ADMINS,
    "GET /admin/teams": EVERYONE,
    "POST /admin/teams": ADMINS,
    "DELETE /admin/teams/{name}": ADMINS,
    "PUT /admin/teams/{name}/labels": ADMINS,
    "GET /console/account": EVERYONE,
    "POST /console/account": EVERYONE,
    "POST /console/account/sign-out": EVERYONE,
    "GET /console/audit": TEAM_EDIT,
    "GET /console/backends": WATCH,
    "GET /console/backends/-/{part}": WATCH,
    "GET /console/backends/{name}": WATCH,
    "POST /console/backends/{name}/{order}": ADMINS,
    "GET /console/budgets": MONEY | TEAM_EDIT,
    "POST /console/budgets": TEAM_EDIT,
    "GET /console/budgets/{budget_id}": MONEY | TEAM_EDIT,
    "POST /console/budgets/{budget_id}/end-override": TEAM_EDIT,
    "POST /console/budgets/{budget_id}/lift": TEAM_EDIT,
    "POST /console/budgets/{budget_id}/override": TEAM_EDIT,
    "POST /console/logout": EVERYONE,
    "GET /console/overview": EVERYONE,
    "GET /console/playground": WATCH,
    "POST /console/playground": WATCH,
    "GET /console/playground/-/why/{request_id}": WATCH,
    "POST /console/playground/send": WATCH,
    "GET /console/requests/csv": WATCH,
    "GET /console/requests": WATCH,
    "GET /console/requests/{request_id}": WATCH,
    "GET /console/requests/{request_id}/-/live": WATCH,
    "GET /console/routes": WATCH,
    "POST /console/routes/{name}": ADMINS,
    "GET /console/routes/{name}": WATCH,
    "GET /console/settings": MONEY,
    "POST /console/settings/reload": ADMINS,
    "POST /console/teams": ADMINS,
    "GET /console/teams": EVERYONE,
    "GET /console/teams/{team}": EVERYONE,
    "POST /console/teams/{team}": TEAM_EDIT,
    "GET /console/teams/{team}/keys/{public}": EVERYONE,
    "POST /console/teams/{team}/keys/{public}": TEAM_EDIT,
    "POST /console/teams/{team}/keys/{public}/block": TEAM_EDIT,
    "POST /console/teams/{team}/keys/{public}/expire": TEAM_EDIT,
    "POST /console/teams/{team}/keys/{public}/revoke": TEAM_EDIT,
    "POST /console/teams/{team}/keys/{public}/rotate": TEAM_EDIT,
    "POST /console/teams/{team}/keys/{public}/unblock": TEAM_EDIT,
    "GET /console/teams/{team}/limits": EVERYONE,
    "POST /console/teams/{team}/limits": TEAM_EDIT,
    "POST /console/teams/{team}/limits/{limit_id}/lift": TEAM_EDIT,
    "GET /console/teams/{team}/-/ways": EVERYONE,
    "GET /console/teams/{team}/ways": EVERYONE,
    "GET /console/teams/{team}/members": TEAM_EDIT,
    "POST /console/teams/{team}/members": TEAM_EDIT,
    "POST /console/teams/{team}/members/role": TEAM_EDIT,
    "POST /console/trial/{name}": WATCH,
    "GET /console/overview/-/{part}": EVERYONE,
    "GET /console/reports": MONEY | TEAM_EDIT,
    "GET /console/reports/csv": MONEY | TEAM_EDIT,
    "GET /console/reports/check": MONEY | TEAM_EDIT,
    "GET /console/reports/statement": MONEY | TEAM_EDIT,
    "GET /console/{rest}": EVERYONE,
}
# without a role: a key of any kind, or nobody at all, as each says itself
OPEN = {
    *(f"POST {path}" for path in (*SURFACES, *COUNTING)),
    "GET /v1/models",
    "GET /v1/models/{model}",
    "GET /v1/requests/{request_id}",
    "GET /health/live",
    "HEAD /health/live",
    "GET /health/ready",
    "HEAD /health/ready",
    "GET /metrics",
    "GET /",
    "GET /console",
    "GET /console/login",
    "POST /console/login",
    "GET /console/welcome",
    "POST /console/welcome",
    "GET /console/static/{version}/{name}",
}
VALUES = {"budget_id": "1", "limit_id": "1", "request_id": "00000000-0000-7000-8000-000000000001", "rest": "nowhere"}
SCOPES = ("admin", "finance", "team_admin")


def routes(site: Site) -> dict[str, HTTPRouteHandler | None]:
    """ "METHOD /path" -> its handler; None for one of the surfaces."""
    found: dict[str, HTTPRouteHandler | None] = {}
    for route in site.application.litestar.routes:
        if route.path_format.startswith("/schema"):
            continue
        handlers = getattr(route, "route_handler_map", None)
        if handlers is None:
            found[f"POST {route.path_format}"] = None
            continue
        for method, handler in handlers.items():
            if method != "OPTIONS":  # Litestar's own: the methods of a path, which its document tells as well
                found[f"{method} {route.path_format}"] = handler[0]
    return found


def address(path: str) -> str:
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", VALUES.get(name, "x"))
    return path


async def test_every_route_stands_in_the_table_and_says_the_same(site: Site) -> None:
    found = routes(site)
    assert set(found) == set(TABLE) | OPEN
    said = {name: handler.opt.get("access") for name, handler in found.items() if handler is not None}
    assert {name: said[name] for name in TABLE} == TABLE
    assert {name for name in OPEN if said.get(name) is not None} == set()


async def test_each_role_is_let_in_where_the_table_says_and_nowhere_else(site: Site) -> None:
    keys = {scope: await site.key("ops", scope) for scope in (*SCOPES, "inference")}
    client = site.browser()
    for name, open_to in TABLE.items():
        method, path = name.split()
        if not path.startswith("/admin"):
            continue
        body = {} if method in ("POST", "PUT", "PATCH") else None
        for scope, key in keys.items():
            answer = await client.request(method, address(path), json=body, headers={"authorization": f"Bearer {key}"})
            told = answer.json() if answer.headers.get("content-type") == "application/json" else {}
            code = told.get("error", {}).get("code") if isinstance(told, dict) else None
            if scope in open_to:
                assert answer.status_code in (200, 201, 204, 400, 404) or code == "no_supervisor", (name, scope, told)
            else:
                assert (answer.status_code, code) == (403, "admin_required" if scope == "inference" else "role_required"), (name, scope)
        for wrong in ({}, {"authorization": "Bearer banana"}, {"authorization": "Bearer tw-AAAAAAAAAAAA-" + "b" * 43}):
            answer = await client.request(method, address(path), json=body, headers=wrong)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key"), (name, wrong)


async def test_pages_ask_who_is_there_first_and_then_for_the_role(site: Site) -> None:
    signed_in = {scope: await site.signed_in(scope) for scope in SCOPES}
    nobody = site.browser()
    for name, open_to in TABLE.items():
        method, path = name.split()
        if not path.startswith("/console") or method != "GET":
            continue
        answer = await nobody.get(address(path))
        assert (answer.status_code, answer.headers["location"].split("?")[0]) == (302, "/console/login"), name
        for scope, browser in signed_in.items():
            answer = await browser.get(address(path))
            assert (answer.status_code == 403) == (scope not in open_to), (name, scope)


async def test_every_change_is_written_down_with_who_asked(site: Site) -> None:
    """Each handler says who asked, and the row tells it."""
    client = site.browser()
    headers = {"authorization": f"Bearer {await site.key('ops', 'admin')}"}
    who = f"key {headers['authorization'][10:22]}"

    async def call(method: str, path: str, body: object = None) -> dict[str, object]:
        answer = await client.request(method, f"/admin/{path}", json=body, headers=headers)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else {}

    await call("POST", "teams", {"name": "search"})
    await call("PUT", "teams/search/labels", {"labels": {}})
    public = (await call("POST", "keys", {"team": "search"}))["key"]["public"]  # type: ignore[index]
    await call("PATCH", f"keys/{public}", {"name": "ci"})
    await call("PUT", f"keys/{public}/block")
    await call("DELETE", f"keys/{public}/block")
    public = (await call("POST", f"keys/{public}/rotate", {}))["key"]["public"]  # type: ignore[index]
    budget = (await call("PUT", "budgets", {"scope_kind": "key", "scope": public, "usd": "1", "per": "day"}))["id"]
    await call("PUT", f"budgets/{budget}/override", {"usd": "2", "until": "1d"})
    await call("DELETE", f"budgets/{budget}/override")
    await call("DELETE", f"budgets/{budget}")
    limit = (await call("PUT", "limits", {"scope_kind": "team", "scope": "search", "rpm": 5}))["id"]
    await call("DELETE", f"limits/{limit}")
    await call("DELETE", f"keys/{public}")
    await call("POST", "members", {"email": "anna@x.org", "teams": {"search": "member"}})
    await call("PUT", "members/anna@x.org/role", {"role": "finance"})
    await call("PUT", "members/anna@x.org/teams/search", {"role": "team_admin"})
    await call("DELETE", "members/anna@x.org/teams/search")
    await call("POST", "members/anna@x.org/link")
    await call("DELETE", "members/anna@x.org")
    price = await call("PUT", "prices", {"vendor": "openai", "model": "m", "input": "1", "output": "2"})
    await call("DELETE", f"prices?id={price['id']}")
    await call("DELETE", "teams/search")
    lost = record(1, [("b", "unknown", 500)], outcome="unknown")
    await write(site.parts.engine, [lost])
    await call("POST", f"ledger/unknowns/{lost.id}", {"usd": "1"})
    entries = (await call("GET", "audit?limit=500"))["data"]
    told = [(one["actor"], one["action"]) for one in entries if one["actor"] != "command line"]  # type: ignore[attr-defined]
    changing = {
        *("team.add", "team.labels", "key.add", "key.change", "key.block", "key.unblock", "key.rotate", "budget.set", "budget.override"),
        *("budget.end_override", "budget.delete", "limit.set", "limit.delete", "key.revoke", "member.add", "member.role", "member.team"),
        *("member.leave", "member.link", "member.end", "price.set", "price.delete", "team.delete", "ledger.resolve"),
    }
    assert set(told) == {(who, action) for action in changing} and len(told) == len(changing)
    operated = ("/admin/backends", "/admin/route", "/admin/reload")  # tests/test_operations.py
    calls = [name for name in TABLE if "GET" not in name and "/admin" in name and not name.split()[1].startswith(operated)]
    assert len(calls) == len(changing), "a call that changes something, or this test, is new: it must be written down"
