"""Sessions: signing in, whose a token is, when it ends, and that nobody learns which e-mail addresses there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from gateway import passwords, people
from gateway.access import COMMAND_LINE
from gateway.auth import Keyring
from gateway.db import tables
from gateway.errors import Forbidden, GatewayError, InvalidKey, InvalidRequest, NotFound, NotReady, RateLimited
from gateway.people import members
from gateway.people.members import NewMember
from gateway.sessions import HASHING_WAIT, IDLE_S, PER_OWNER, Sessions
from gateway.throttle import ACCOUNT_FAILURES, WINDOW_S
from tests.conftest import Database

SECRET = b"s" * 32
HERE = "10.0.0.1"
WORD = "correct horse battery"
HASH = passwords.hashed(WORD, passwords.Cost(2, 1, 1))
SECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.us = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.us

    def go(self, seconds: float) -> None:
        self.us += int(seconds * SECOND)


class Door:
    def __init__(self, database: Database) -> None:
        self.engine = database.engine
        self.clock = Clock()
        self.sessions = Sessions(database.engine, Keyring([SECRET], database.engine), 24.0 * 7, self.clock)

    async def anna(self, role: str = "", **teams: str) -> None:
        for team in teams:
            await people.add_team(self.engine, team, actor=COMMAND_LINE)
        await members.add_member(self.engine, NewMember(email="Anna@example.org", role=role, teams=teams), actor=COMMAND_LINE)
        await members.set_password(self.engine, "anna@example.org", HASH, actor=COMMAND_LINE)

    async def enter(self, email: str = "anna@example.org", password: str = WORD) -> str:
        return await self.sessions.with_password(email, password, HERE)


@pytest.fixture
async def door(database: Database) -> AsyncIterator[Door]:
    yield Door(database)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "COST", passwords.Cost(2, 1, 1))


async def test_a_member_signs_in_and_is_who_the_teams_say(door: Door) -> None:
    await door.anna(search="team_admin", ads="member")
    who = await door.sessions.actor(await door.enter(" ANNA@example.org "))
    assert who is not None
    assert (who.name, who.role, who.member_id, who.key_id) == ("anna@example.org", "team_admin", 1, None)
    assert dict(who.teams) == {1: "team_admin", 2: "member"}
    await people.delete_team(door.engine, "search", actor=COMMAND_LINE)
    who = await door.sessions.actor(await door.enter())
    assert who is not None and (who.role, dict(who.teams)) == ("member", {2: "member"})


@pytest.mark.parametrize("role", ["admin", "finance"])
async def test_a_role_of_everything_needs_no_team(door: Door, role: str) -> None:
    await door.anna(role)
    who = await door.sessions.actor(await door.enter())
    assert who is not None and (who.role, dict(who.teams), who.scope) == (role, {}, None)


async def test_the_answer_says_not_whether_the_address_is_known(door: Door) -> None:
    await door.anna("admin")
    await members.add_member(door.engine, NewMember(email="unset@example.org", role="finance"), actor=COMMAND_LINE)
    told = set()
    for email, password in (
        ("anna@example.org", "wrong"),
        ("nobody@example.org", WORD),
        ("unset@example.org", WORD),
        ("unset@example.org", ""),
        ("a\0b", WORD),
        ("anna@example.org", WORD + "x" * 10_000),
    ):
        with pytest.raises(InvalidKey) as caught:
            await door.enter(email, password)
        told.add((caught.value.message, caught.value.code))
    assert len(told) == 1


async def test_guessing_is_slowed_down_for_the_right_password_too_and_for_unknown_accounts(door: Door) -> None:
    await door.anna("admin")
    for email in ("anna@example.org", "nobody@example.org"):
        for _ in range(ACCOUNT_FAILURES):
            with pytest.raises(InvalidKey):
                await door.enter(email, "wrong")
        with pytest.raises(RateLimited) as caught:
            await door.enter(email, WORD)
        assert (caught.value.code, caught.value.retry_after_s) == ("too_many_sign_ins", WINDOW_S)
    door.clock.go(WINDOW_S)
    assert await door.sessions.actor(await door.enter()) is not None


async def test_many_tries_at_once_are_no_way_around(door: Door) -> None:
    await door.anna("admin")
    told = await asyncio.gather(*(door.enter(password=f"wrong {number}") for number in range(2 * ACCOUNT_FAILURES)), return_exceptions=True)
    assert sum(isinstance(one, InvalidKey) for one in told) == ACCOUNT_FAILURES
    assert sum(isinstance(one, RateLimited) for one in told) == ACCOUNT_FAILURES


async def test_a_session_ends_by_idling_and_by_age(door: Door) -> None:
    await door.anna("admin")
    token = await door.enter()
    for _ in range(7 * 24 * 3600 // (IDLE_S - 60)):
        door.clock.go(IDLE_S - 60)
        assert await door.sessions.actor(token) is not None
    door.clock.go(IDLE_S - 60)  # not idle for long enough
    assert await door.sessions.actor(token) is None
    idle = await door.enter()
    door.clock.go(IDLE_S)
    assert await door.sessions.actor(idle) is None


async def test_signing_out_here_and_everywhere(door: Door) -> None:
    await door.anna("admin")
    first, second, third = [await door.enter() for _ in range(3)]
    await door.sessions.end(first)
    assert [await door.sessions.actor(one) is not None for one in (first, second, third)] == [False, True, True]
    who = await door.sessions.actor(second)
    assert who is not None and await door.sessions.end_all(who) == 2
    assert await door.sessions.actor(third) is None
    await door.sessions.end("no such token")


async def test_another_password_ends_every_session_but_the_new_one(door: Door) -> None:
    await door.anna("admin")
    old = await door.enter()
    who = await door.sessions.actor(old)
    assert who is not None
    with pytest.raises(InvalidKey):
        await door.sessions.change_password(who, "wrong", "another horse battery", HERE)
    with pytest.raises(InvalidRequest):
        await door.sessions.change_password(who, WORD, "short", HERE)
    fresh = await door.sessions.change_password(who, WORD, "another horse battery", HERE)
    assert await door.sessions.actor(old) is None and await door.sessions.actor(fresh) == who
    with pytest.raises(InvalidKey):
        await door.enter()
    await door.enter(password="another horse battery")


async def test_a_link_sets_a_password_once_and_not_for_ever(door: Door) -> None:
    link, _ = await members.add_member(door.engine, NewMember(email="ben@example.org", role="finance"), actor=COMMAND_LINE)
    assert link is not None
    async with door.engine.connect() as connection:
        row = (await connection.execute(select(tables.members))).one()
    assert link.encode() not in row.link_digest and row.password is None
    door.clock.us = row.link_expires_at_us - 1
    with pytest.raises(InvalidRequest):
        await door.sessions.with_link(link, "short", HERE)
    with pytest.raises(NotFound):
        await door.sessions.with_link(link + "x", WORD, HERE)
    who = await door.sessions.actor(await door.sessions.with_link(link, WORD, HERE))
    assert who is not None and (who.name, who.role) == ("ben@example.org", "finance")
    with pytest.raises(NotFound):
        await door.sessions.with_link(link, "another horse battery", HERE)
    door.clock.go(1)
    late = await members.new_link(door.engine, "ben@example.org", actor=COMMAND_LINE)
    async with door.engine.connect() as connection:
        door.clock.us = (await connection.execute(select(tables.members.c.link_expires_at_us))).scalar_one()
    with pytest.raises(NotFound):
        await door.sessions.with_link(late, WORD, HERE)
    await door.enter("ben@example.org")


async def test_who_is_no_member_any_longer_is_signed_out_and_stays_out(door: Door) -> None:
    await door.anna("admin")
    token = await door.enter()
    await members.end_member(door.engine, "anna@example.org", actor=COMMAND_LINE)
    assert await door.sessions.actor(token) is None
    with pytest.raises(InvalidKey):
        await door.enter()


async def test_a_key_with_a_role_opens_a_session_that_ends_with_it(door: Door) -> None:
    await people.add_team(door.engine, "search", actor=COMMAND_LINE)
    text, key = await people.add_key(door.engine, SECRET, people.NewKey(team="search", scopes=("team_admin",)), actor=COMMAND_LINE)
    plain, _ = await people.add_key(door.engine, SECRET, people.NewKey(team="search"), actor=COMMAND_LINE)
    token = await door.sessions.with_key(f" {text}\n")
    who = await door.sessions.actor(token)
    assert who is not None and (who.role, dict(who.teams), who.key_id) == ("team_admin", {1: "team_admin"}, key.id)
    for wrong, kind in (
        (plain, Forbidden),
        ("banana", InvalidKey),
        ("", InvalidKey),
        (text[:-1] + "!", InvalidKey),
        ("\ud800", InvalidKey),
    ):
        with pytest.raises(kind):
            await door.sessions.with_key(wrong)
    with pytest.raises(InvalidRequest):
        await door.sessions.change_password(who, WORD, "another horse battery", HERE)
    await people.revoke_key(door.engine, key.public, actor=COMMAND_LINE)
    assert await door.sessions.actor(token) is None


async def test_a_key_that_expires_takes_its_session_along(door: Door) -> None:
    await people.add_team(door.engine, "search", actor=COMMAND_LINE)
    text, key = await people.add_key(door.engine, SECRET, people.NewKey(team="search", scopes=("admin",), expires="1h"), actor=COMMAND_LINE)
    assert key.expires_at_us is not None
    door.clock.us = key.expires_at_us - 10 * SECOND
    token = await door.sessions.with_key(text)
    assert await door.sessions.actor(token) is not None
    door.clock.go(10)
    assert await door.sessions.actor(token) is None


async def test_a_session_ends_with_the_secret_that_opened_it(door: Door) -> None:
    await people.add_team(door.engine, "search", actor=COMMAND_LINE)
    text, key = await people.add_key(door.engine, SECRET, people.NewKey(team="search", scopes=("team_admin",)), actor=COMMAND_LINE)
    leaked = await door.sessions.with_key(text)
    later, rotated = await people.rotate_key(door.engine, SECRET, key.public, None, actor=COMMAND_LINE)
    assert await door.sessions.actor(leaked) is None
    session = await door.sessions.with_key(later)
    _, again = await people.rotate_key(door.engine, SECRET, rotated.public, "1h", actor=COMMAND_LINE)
    who = await door.sessions.actor(session)
    assert who is not None and who.name == f"key {again.public}", "it is the key's, by its present name"
    await people.revoke_key(door.engine, rotated.public, actor=COMMAND_LINE)  # the secret from before
    assert await door.sessions.actor(session) is None


async def test_what_is_stored_opens_nothing_and_is_bounded(door: Door) -> None:
    await door.anna("admin")
    tokens = []
    for _ in range(PER_OWNER + 3):
        tokens.append(await door.enter())
        door.clock.go(1)
    async with door.engine.connect() as connection:
        digests = [bytes(one) for one in (await connection.execute(select(tables.sessions.c.digest))).scalars()]
    assert len(digests) == PER_OWNER
    assert not any(token.encode() in digest for token in tokens for digest in digests)
    assert await door.sessions.actor(tokens[0]) is None and await door.sessions.actor(tokens[-1]) is not None
    for token in ("", "x", "x" * 10_000, digests[0].hex()):
        assert await door.sessions.actor(token) is None


async def test_too_many_at_once_are_told_to_come_again(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    await door.anna("admin")
    monkeypatch.setattr("gateway.throttle.ACCOUNT_FAILURES", 10**6)
    monkeypatch.setattr("gateway.throttle.ADDRESS_FAILURES", 10**6)
    for _ in range(HASHING_WAIT):
        door.sessions._waiting += 1
    with pytest.raises(NotReady) as caught:
        await door.enter()
    assert isinstance(caught.value, GatewayError) and caught.value.code == "overloaded"
