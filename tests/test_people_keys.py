"""API keys: what is stored of them, what is refused, how they end."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from gateway import people
from gateway.auth import digest_of, live_keys, principal_from
from gateway.db.tables import api_keys
from gateway.errors import InvalidRequest, NotFound
from gateway.labels import Labels
from gateway.people import NewKey
from tests.conftest import Database
from tests.test_people_common import version

SECRET = b"s" * 32
HOUR_US = 3_600_000_000


async def test_a_key_is_stored_as_its_digest_alone(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    new = NewKey(team="alpha", name="ci", models=("gpt-4o", "assistant"), expires="30d", tag="nightly", scopes=("admin", "inference"))
    text, key = await people.add_key(database.engine, SECRET, new)
    async with database.engine.connect() as connection:
        row = (await connection.execute(select(api_keys))).mappings().one()
    assert bytes(row["digest"]) == digest_of(text.encode(), SECRET)
    assert not any(text[16:] in str(value) for value in row.values())
    assert (key.public, key.team, key.name, key.models, key.scopes) == (text[3:15], "alpha", "ci", new.models, ("admin", "inference"))
    assert key.expires_at_us is not None and key.expires_at_us - key.created_at_us == 30 * 24 * HOUR_US
    assert await people.list_keys(database.engine) == [key] == await people.list_keys(database.engine, "alpha")


async def test_a_key_is_revoked_by_its_public_part_or_by_itself(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    one, first = await people.add_key(database.engine, SECRET, NewKey(team="alpha"))
    _, second = await people.add_key(database.engine, SECRET, NewKey(team="alpha"))
    ended = await people.revoke_key(database.engine, one)
    assert ended.public == first.public and ended.revoked_at_us is not None
    assert (await people.revoke_key(database.engine, first.public)).revoked_at_us == ended.revoked_at_us
    assert [key.revoked_at_us is None for key in await people.list_keys(database.engine)] == [False, True]
    with pytest.raises(NotFound, match="tollway keys list"):
        await people.revoke_key(database.engine, "AAAAAAAAAAAA")
    assert second.revoked_at_us is None


async def test_labels_of_a_team_and_of_its_key_both_hold_for_the_key(database: Database) -> None:
    engine = database.engine
    team = await people.add_team(engine, "alpha", labels={"residency": "eu"})
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha", labels={"retention": "none"}))
    assert (team.labels, key.labels) == ({"residency": "eu"}, {"retention": "none"})
    assert [one.labels for one in await people.list_teams(engine)] == [team.labels]

    async def held() -> Labels:
        async with engine.connect() as connection:
            return principal_from((await connection.execute(live_keys())).one())[1].labels

    assert await held() == (("residency", "eu"), ("retention", "none"))
    before = await version(database)
    assert await people.label_team(engine, "alpha", {"residency": "us"}) == {"residency": "us"}
    assert await version(database) == before + 1 and await held() == (("residency", "us"), ("retention", "none"))
    await people.label_team(engine, "alpha", {})
    assert await held() == (("retention", "none"),)
    with pytest.raises(InvalidRequest, match=r"^labels: ") as told:
        await people.label_team(engine, "alpha", {"residency": "e u"})
    assert told.value.param == "labels"
    with pytest.raises(NotFound, match="There is no team 'beta'"):
        await people.label_team(engine, "beta", {})


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
    await people.add_team(database.engine, "alpha")
    with pytest.raises(InvalidRequest) as told:
        await people.add_key(database.engine, SECRET, NewKey(team="alpha", **wrong))  # type: ignore[arg-type]
    assert told.value.param == param
    assert await people.list_keys(database.engine) == []
