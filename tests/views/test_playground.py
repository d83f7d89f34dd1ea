"""The playground's call: whose key it may be, what goes out, and the same call for a shell and for Python."""

from __future__ import annotations

import ast
import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert

from gateway import people
from gateway.access import ADMIN, COMMAND_LINE, MEMBER, TEAM_ADMIN, Actor
from gateway.db.tables import api_keys, former_secrets
from gateway.errors import InvalidRequest, NotFound
from gateway.views.playground import as_curl, as_python, body_of, call_of, checked, headers_of, keys, principal
from tests.conftest import Database


def play(**more: str) -> Any:
    return checked({"route": "r", "key": "k", "message": "hello"} | more)


async def prepare(database: Database) -> None:
    for name in ("growth", "search"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    plain = {"scopes": "inference", "created_at_us": 1, "name": "n"}
    rows: list[dict[str, Any]] = [
        {"public": "team-growth", "team_id": 1} | plain,
        {"public": "own-growth", "team_id": 1, "member_id": 9} | plain,
        {"public": "team-search", "team_id": 2} | plain,
        {"public": "blocked", "team_id": 1, "blocked_at_us": 5} | plain,
        {"public": "revoked", "team_id": 1, "revoked_at_us": 5} | plain,
        {"public": "expired", "team_id": 1, "expires_at_us": 5} | plain,
        {"public": "admin-only", "team_id": 1} | plain | {"scopes": "admin"},
    ]
    async with database.engine.begin() as connection:
        for n, row in enumerate(rows):
            await connection.execute(insert(api_keys).values(row | {"digest": bytes([n])}))
        rotated = {"digest": b"former", "public": "former", "key_id": 1, "until_us": 1 << 62}
        await connection.execute(insert(former_secrets).values(rotated))


async def test_only_live_keys_within_reach_may_be_used(database: Database) -> None:
    await prepare(database)
    cases = [
        (Actor(name="a", role=ADMIN), {"team-growth", "own-growth", "team-search"}),
        (Actor(name="t", role=TEAM_ADMIN, teams={1: TEAM_ADMIN}), {"team-growth", "own-growth"}),
        (Actor(name="m", role=MEMBER, teams={1: MEMBER, 2: MEMBER}, member_id=9), {"own-growth"}),
        (Actor(name="m", role=MEMBER, teams={1: MEMBER}, member_id=8), set()),
        (Actor(name="m", role=MEMBER, teams={}), set()),
    ]
    for actor, usable in cases:
        assert sorted(one.public for one in await keys(database.engine, actor)) == sorted(usable)
        for public in ("team-growth", "own-growth", "team-search", "blocked", "revoked", "expired", "nothing"):
            if public in usable:
                assert (await principal(database.engine, actor, public)).key_public == public
            else:
                with pytest.raises(NotFound):
                    await principal(database.engine, actor, public)


def test_what_goes_out_is_what_the_form_says() -> None:
    assert json.loads(body_of(play(), stream=False)) == {"model": "r", "messages": [{"role": "user", "content": "hello"}]}
    told = call_of(play(system="s", temperature="0.3", max_tokens="256", ttft_ms="900"), stream=True)
    assert told == {
        "model": "r",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}],
        "temperature": 0.3,
        "max_tokens": 256,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert headers_of(play(ttft_ms="900")) == {b"x-tollway-ttft-ms": b"900"} and headers_of(play()) == {}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"message": ""}, "message"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": "-1"}, "max_tokens"),
        ({"max_tokens": "²"}, "max_tokens"),
    ],
)
def test_a_number_that_is_none_is_named(given: dict[str, str], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        body_of(play(**given), stream=True)
        headers_of(play(**given))
    assert caught.value.param == param
    with pytest.raises(InvalidRequest):
        checked({"route": "r", "key": "k", "colour": "red"})


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_same_call_elsewhere_says_the_same_whatever_is_asked(system: str, message: str) -> None:
    asked = play(system=system, message=message or "x", ttft_ms="900")
    words = shlex.split(as_curl(asked, "https://gateway/v1"))
    assert json.loads(words[words.index("-d") + 1]) == call_of(asked, stream=False)
    assert "x-tollway-ttft-ms: 900" in words and words[:2] == ["curl", "https://gateway/v1/chat/completions"]
    tree = ast.parse(as_python(asked, "https://gateway/v1"))
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.keywords) > 2)
    told = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert told == call_of(asked, stream=False) | {"extra_headers": {"x-tollway-ttft-ms": "900"}}
