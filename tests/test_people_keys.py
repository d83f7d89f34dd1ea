"""API keys: what is stored of them, what is refused, how they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, update

from gateway import people
from gateway.access import COMMAND_LINE, Actor
from gateway.auth import digest_of, live_keys, principal_from
from gateway.db.tables import api_keys, former_secrets
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotFound
from gateway.labels import Labels
from gateway.people import KeyChange, NewKey, members
from gateway.people.keys import FORMER_MAX
from tests.conftest import Database
from tests.test_people_common import version

SECRET = b"s" * 32
HOUR_US = 3_600_000_000


async def test_a_key_is_stored_as_its_digest_alone(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    new = NewKey(team="alpha", name="ci", models=("gpt-4o", "assistant"), expires="30d", tag="nightly", scopes=("admin", "inference"))
    text, key = await people.add_key(database.engine, SECRET, new, actor=COMMAND_LINE)
    async with database.engine.connect() as connection:
        row = (await connection.execute(select(api_keys))).mappings().one()
    assert bytes(row["digest"]) == digest_of(text.encode(), SECRET)
    assert not any(text[16:] in str(value) for value in row.values())
    assert (key.public, key.team, key.name, key.models, key.scopes) == (text[3:15], "alpha", "ci", new.models, ("admin", "inference"))
    assert key.expires_at_us is not None and key.expires_at_us - key.created_at_us == 30 * 24 * HOUR_US
    assert await people.list_keys(database.engine) == [key] == await people.list_keys(database.engine, "alpha")


async def test_a_key_is_revoked_by_its_public_part_or_by_itself(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    one, first = await people.add_key(database.engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    _, second = await people.add_key(database.engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    ended = await people.revoke_key(database.engine, one, actor=COMMAND_LINE)
    assert ended.public == first.public and ended.revoked_at_us is not None
    assert (await people.revoke_key(database.engine, first.public, actor=COMMAND_LINE)).revoked_at_us == ended.revoked_at_us
    assert [key.revoked_at_us is None for key in await people.list_keys(database.engine)] == [False, True]
    with pytest.raises(NotFound, match="tollway keys list"):
        await people.revoke_key(database.engine, "AAAAAAAAAAAA", actor=COMMAND_LINE)
    assert second.revoked_at_us is None


async def test_labels_of_a_team_and_of_its_key_both_hold_for_the_key(database: Database) -> None:
    engine = database.engine
    team = await people.add_team(engine, "alpha", labels={"residency": "eu"}, actor=COMMAND_LINE)
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha", labels={"retention": "none"}), actor=COMMAND_LINE)
    assert (team.labels, key.labels) == ({"residency": "eu"}, {"retention": "none"})
    assert [one.labels for one in await people.list_teams(engine)] == [team.labels]

    async def held() -> Labels:
        async with engine.connect() as connection:
            return principal_from((await connection.execute(live_keys())).one())[1].labels

    assert await held() == (("residency", "eu"), ("retention", "none"))
    before = await version(database)
    assert await people.label_team(engine, "alpha", {"residency": "us"}, actor=COMMAND_LINE) == {"residency": "us"}
    assert await version(database) == before + 1 and await held() == (("residency", "us"), ("retention", "none"))
    await people.label_team(engine, "alpha", {}, actor=COMMAND_LINE)
    assert await held() == (("retention", "none"),)
    with pytest.raises(InvalidRequest, match=r"^labels: ") as told:
        await people.label_team(engine, "alpha", {"residency": "e u"}, actor=COMMAND_LINE)
    assert told.value.param == "labels"
    with pytest.raises(NotFound, match="There is no team 'beta'"):
        await people.label_team(engine, "beta", {}, actor=COMMAND_LINE)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"labels": {"": "eu"}}, "labels"),
        ({"labels": {"residency": "eu,x=y"}}, "labels"),
        ({"scopes": ("root",)}, "scopes"),
        ({"scopes": ()}, "scopes"),
        ({"models": ()}, "models"),
        ({"models": ("a", "")}, "models"),
        ({"models": ("a",) * 1001}, "models"),
        ({"name": "x" * 201}, "name"),
        ({"expires": "soon"}, "expires"),
        ({"expires": "2020-01-01"}, "expires"),
        ({"expires": "0d"}, "expires"),
        ({"expires": "99999999d"}, "expires"),
        ({"expires": ""}, "expires"),
    ],
)
async def test_a_key_that_cannot_be_meant_is_refused(database: Database, wrong: dict[str, object], param: str) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    with pytest.raises(InvalidRequest) as told:
        await people.add_key(database.engine, SECRET, NewKey(team="alpha", **wrong), actor=COMMAND_LINE)  # type: ignore[arg-type]
    assert told.value.param == param
    assert await people.list_keys(database.engine) == []


async def works(database: Database, *texts: str) -> list[bool]:
    """Which keys a worker that loads its snapshot now would take."""
    async with database.engine.connect() as connection:
        live = dict(principal_from(row) for row in await connection.execute(live_keys()))
    now_us = time.time_ns() // 1000
    found = [live.get(digest_of(text.encode(), SECRET)) for text in texts]
    return [one is not None and (one.expires_at_us is None or one.expires_at_us > now_us) for one in found]


async def test_a_rotated_key_is_the_same_key_with_two_secrets_until_the_day(database: Database) -> None:
    engine = database.engine
    await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    first, made = await people.add_key(engine, SECRET, NewKey(team="alpha", name="ci", tag="nightly"), actor=COMMAND_LINE)
    budget = await people.set_budget(
        engine, people.NewBudget(scope_kind="key", scope=made.public, limit_nanousd=5, period="day"), actor=COMMAND_LINE
    )
    before = await version(database)
    second, rotated = await people.rotate_key(engine, SECRET, made.public, "2h", actor=COMMAND_LINE)
    assert await version(database) == before + 1
    assert (rotated.id, rotated.name, rotated.tag) == (made.id, "ci", "nightly")
    assert rotated.public == second[3:15] != made.public
    assert [one.public for one in rotated.former] == [made.public]
    assert abs(rotated.former[0].until_us - time.time_ns() // 1000 - 2 * HOUR_US) < 60_000_000
    assert await works(database, first, second) == [True, True]
    async with engine.connect() as connection:
        held = [principal_from(row)[1] for row in await connection.execute(live_keys())]
    assert {(one.key_id, one.key_public) for one in held} == {(made.id, made.public), (made.id, rotated.public)}
    (shown,) = await people.list_budgets(engine)
    assert (shown.id, shown.scope) == (budget.id, rotated.public)
    third, _ = await people.rotate_key(engine, SECRET, made.public, None, actor=COMMAND_LINE)
    assert await works(database, first, second, third) == [True, False, True]
    ended = await people.revoke_key(engine, made.public, actor=COMMAND_LINE)
    assert (ended.revoked_at_us, ended.former) == (None, ())
    assert await works(database, first, third) == [False, True]


async def test_an_overlap_ends_by_itself_and_there_are_few(database: Database) -> None:
    engine = database.engine
    await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    first, made = await people.add_key(engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    public = made.public
    for _ in range(FORMER_MAX):
        public = (await people.rotate_key(engine, SECRET, public, "1h", actor=COMMAND_LINE))[1].public
    with pytest.raises(InvalidRequest, match="revoke one"):
        await people.rotate_key(engine, SECRET, public, "1h", actor=COMMAND_LINE)
    async with engine.begin() as connection:
        await connection.execute(update(former_secrets).values(until_us=former_secrets.c.until_us - 2 * HOUR_US))
    assert await works(database, first) == [False]
    assert (await people.list_keys(engine))[0].former == ()
    assert len((await people.rotate_key(engine, SECRET, public, "1h", actor=COMMAND_LINE))[1].former) == 1
    for wrong in ("yesterday", "2020-01-01", "0h"):
        with pytest.raises(InvalidRequest) as caught:
            await people.rotate_key(engine, SECRET, public, wrong, actor=COMMAND_LINE)
        assert caught.value.param == "overlap"


async def test_a_blocked_key_is_refused_with_its_former_secrets_until_it_is_unblocked(database: Database) -> None:
    engine = database.engine
    await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    first, made = await people.add_key(engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    second, _ = await people.rotate_key(engine, SECRET, made.public, actor=COMMAND_LINE)
    blocked = await people.block_key(engine, made.public, actor=COMMAND_LINE)
    assert blocked.blocked_at_us is not None and await works(database, first, second) == [False, False]
    assert (await people.block_key(engine, made.public, actor=COMMAND_LINE)).blocked_at_us == blocked.blocked_at_us
    assert (await people.unblock_key(engine, made.public, actor=COMMAND_LINE)).blocked_at_us is None
    assert await works(database, first, second) == [True, True]
    await people.revoke_key(engine, second[:15], actor=COMMAND_LINE)
    for call in (people.block_key, people.unblock_key):
        with pytest.raises(NotFound):
            await call(engine, second, actor=COMMAND_LINE)


async def test_a_key_is_changed_field_by_field(database: Database) -> None:
    engine = database.engine
    await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    await members.add_member(engine, members.NewMember(email="anna@x.org", teams={"alpha": "member"}), actor=COMMAND_LINE)
    _, made = await people.add_key(engine, SECRET, NewKey(team="alpha", name="ci", models=("a",), expires="1h"), actor=COMMAND_LINE)
    changed = await people.change_key(engine, made.public, KeyChange(expires="2d", member="Anna@x.org"), actor=COMMAND_LINE)
    assert changed.expires_at_us is not None and made.expires_at_us is not None and changed.expires_at_us > made.expires_at_us
    assert (changed.name, changed.models, changed.member) == ("ci", ("a",), "anna@x.org")
    again = await people.change_key(
        engine,
        made.public,
        KeyChange(name="nightly", models=None, expires=None, tag="t", labels={"residency": "eu"}, member=None),
        actor=COMMAND_LINE,
    )
    assert (again.name, again.models, again.expires_at_us, again.tag) == ("nightly", None, None, "t")
    assert (again.labels, again.member) == ({"residency": "eu"}, None)
    for wrong, param in (
        ({}, None),
        ({"models": ()}, "models"),
        ({"expires": "2020-01-01"}, "expires"),
        ({"member": "nobody@x.org"}, "member"),
        ({"name": "a\0"}, "name"),
        ({"tag": "x" * 65}, "tag"),
        ({"labels": {"a b": "c"}}, "labels"),
    ):
        with pytest.raises(GatewayError) as caught:
            await people.change_key(engine, made.public, KeyChange(**wrong), actor=COMMAND_LINE)  # type: ignore[arg-type]
        assert caught.value.param == param


async def test_a_team_admin_has_the_keys_of_its_team_alone(database: Database) -> None:
    engine = database.engine
    for team in ("alpha", "beta"):
        await people.add_team(engine, team, actor=COMMAND_LINE)
    carla = Actor(name="carla", role="team_admin", teams={1: "team_admin"})
    _, mine = await people.add_key(engine, SECRET, NewKey(team="alpha", scopes=("inference", "team_admin")), actor=carla)
    _, wide = await people.add_key(engine, SECRET, NewKey(team="alpha", scopes=("admin",)), actor=COMMAND_LINE)
    _, other = await people.add_key(engine, SECRET, NewKey(team="beta"), actor=COMMAND_LINE)
    assert [one.public for one in await people.list_keys(engine, None, carla.scope)] == [mine.public, wide.public]
    assert await people.list_keys(engine, None, carla.scope, member_id=1) == []
    with pytest.raises(NotFound):
        await people.list_keys(engine, "beta", carla.scope)
    with pytest.raises(NotFound):
        await people.add_key(engine, SECRET, NewKey(team="beta"), actor=carla)
    for scope in ("admin", "finance"):
        with pytest.raises(Forbidden):
            await people.add_key(engine, SECRET, NewKey(team="alpha", scopes=(scope,)), actor=carla)
    calls: list[Callable[[str], Any]] = [
        lambda public: people.rotate_key(engine, SECRET, public, actor=carla),
        lambda public: people.block_key(engine, public, actor=carla),
        lambda public: people.unblock_key(engine, public, actor=carla),
        lambda public: people.change_key(engine, public, KeyChange(name="x"), actor=carla),
        lambda public: people.revoke_key(engine, public, actor=carla),
    ]
    for call in calls:
        told = []
        for public in (other.public, "A" * 12):
            with pytest.raises(NotFound) as caught:
                await call(public)
            told.append(caught.value.message.replace(public, "KEY"))
        assert told[0] == told[1]
        with pytest.raises(Forbidden):
            await call(wide.public)
    assert [one.blocked_at_us for one in await people.list_keys(engine)] == [None, None, None]
    for call in calls:
        public = (await people.list_keys(engine, None, carla.scope))[0].public
        await call(public)
