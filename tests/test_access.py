"""Who may do what: roles of keys, rows of teams, and that a call without a word on whom it is open to is open to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, Router, get

from gateway import access, errors
from gateway.access import Actor
from gateway.app import tell
from gateway.auth import SCOPES, Principal


def actor(role: str, teams: Mapping[int, str] = {}) -> Actor:
    return Actor(name=role, role=role, teams=teams)


@pytest.mark.parametrize(
    ("who", "scope", "sees", "manages"),
    [
        (actor("admin"), None, {1, 2, 3}, {1, 2, 3}),
        (actor("finance"), None, {1, 2, 3}, set()),
        (actor("team_admin", {1: "team_admin", 2: "member"}), {1, 2}, {1, 2}, {1}),
        (actor("member", {2: "member"}), {2}, {2}, set()),
        (actor("member"), set(), set(), set()),
    ],
)
def test_rows(who: Actor, scope: set[int] | None, sees: set[int], manages: set[int]) -> None:
    assert who.scope == scope
    assert {team for team in (1, 2, 3) if who.sees(team)} == sees
    assert {team for team in (1, 2, 3) if who.manages(team)} == manages


def test_the_widest_scope_of_a_key_is_its_role() -> None:
    for count in range(1, len(SCOPES) + 1):
        for scopes in combinations(SCOPES, count):
            who = Principal(org_id=1, team_id=7, key_id=5, key_public="AAAA", scopes=frozenset(scopes))
            if scopes == ("inference",):
                with pytest.raises(errors.Forbidden, match="admin scope"):
                    access.of_key(who)
                continue
            made = access.of_key(who)
            expected = "admin" if "admin" in scopes else "finance" if "finance" in scopes else "team_admin"
            assert (made.role, made.name, made.key_id, made.member_id) == (expected, "key AAAA", 5, None)
            assert made.teams == ({7: "team_admin"} if expected == "team_admin" else {})


async def test_a_handler_is_open_to_whom_it_names_and_one_that_names_nobody_to_nobody() -> None:
    caller: dict[str, Any] = {}

    async def find(_: access.Connection) -> Actor:
        return actor(caller["role"], {1: caller["role"]})

    def handler(path: str, **more: Any) -> Any:
        @get(path, **more)
        async def told(request: Request[Any, Any, Any]) -> dict[str, str]:
            return {"name": access.actor(request).name}

        return told

    sets = {"/admins": access.ADMINS, "/money": access.MONEY, "/edit": access.TEAM_EDIT, "/watch": access.WATCH, "/all": access.EVERYONE}
    handlers = [handler(path, access=roles) for path, roles in sets.items()]
    router = Router("/", guards=[access.guard(find)], route_handlers=[*handlers, handler("/undeclared")])
    app = Litestar([router], exception_handlers={errors.GatewayError: tell}, logging_config=None, openapi_config=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:  # type: ignore[arg-type]
        for role in access.ROLES:
            caller["role"] = role
            for path, roles in sets.items():
                answer = await client.get(path)
                assert answer.status_code == (200 if role in roles else 403), (role, path)
                if role in roles:
                    assert answer.json() == {"name": role}
                else:
                    assert answer.json()["error"]["code"] == "role_required"
            refused = await client.get("/undeclared")
            assert (refused.status_code, refused.json()["error"]["message"]) == (403, "This call is open to nobody.")


def test_a_refusal_names_the_roles() -> None:
    assert access.refusal(access.TEAM_EDIT) == "This call needs the role admin or team admin; an admin can give it."
