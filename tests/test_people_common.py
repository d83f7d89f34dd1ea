"""What changes of people share: each moves the version, a refused one nothing, names and numbers that cannot be meant are told."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from gateway import people, rates
from gateway.access import COMMAND_LINE
from gateway.db.tables import catalog_version
from gateway.errors import InvalidRequest, NotFound
from gateway.people import NewBudget, NewKey
from tests.conftest import Database

SECRET = b"s" * 32


async def version(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(catalog_version.c.version))).scalar_one())


async def test_every_change_moves_the_version(database: Database) -> None:
    engine = database.engine
    seen = [await version(database)]

    async def moved() -> bool:
        seen.append(await version(database))
        return seen[-1] > seen[-2]

    await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    assert await moved()
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    assert await moved()
    budget = await people.set_budget(engine, NewBudget(scope_kind="team", scope="alpha", limit_nanousd=1, period="day"), actor=COMMAND_LINE)
    assert await moved()
    await people.delete_budget(engine, budget.id, actor=COMMAND_LINE)
    assert await moved()
    await people.revoke_key(engine, key.public, actor=COMMAND_LINE)
    assert await moved()
    await people.delete_team(engine, "alpha", actor=COMMAND_LINE)
    assert await moved()


async def test_a_change_that_is_refused_moves_nothing(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    before = await version(database)
    with pytest.raises(InvalidRequest):
        await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    with pytest.raises(NotFound):
        await people.add_key(database.engine, SECRET, NewKey(team="beta"), actor=COMMAND_LINE)
    assert await version(database) == before


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "../etc", "a" * 65, "é", "a\n", "a;drop table teams", "a/b"])
async def test_names_that_would_need_quoting_somewhere_are_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot name a team"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    with pytest.raises(InvalidRequest, match="cannot name an organisation") as caught:
        await people.add_team(database.engine, "fine", name, actor=COMMAND_LINE)
    assert caught.value.param == "org"


@pytest.mark.parametrize("number", [0, -1, 1 << 63, 10**20])
async def test_a_number_that_no_row_can_have_finds_nothing(database: Database, number: int) -> None:
    for work in (
        people.delete_budget(database.engine, number, actor=COMMAND_LINE),
        people.end_override(database.engine, number, actor=COMMAND_LINE),
        people.override_budget(database.engine, number, 1, "2d", actor=COMMAND_LINE),
        rates.delete_limit(database.engine, number, actor=COMMAND_LINE),
    ):
        with pytest.raises(NotFound, match=f"There is no (budget|limit) {number}"):
            await work


async def test_text_that_a_database_cannot_hold_is_named_and_finds_nothing(database: Database) -> None:
    """Postgres refuses the character NUL in a text, which would be an error of ours."""
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    scope: dict[str, Any] = {"scope_kind": "team", "scope": "alpha"}
    refused = {
        "name": people.add_key(database.engine, SECRET, NewKey(team="alpha", name="a\0b"), actor=COMMAND_LINE),
        "tag": people.add_key(database.engine, SECRET, NewKey(team="alpha", tag="line\nbreak"), actor=COMMAND_LINE),
        "models[1]": people.add_key(database.engine, SECRET, NewKey(team="alpha", models=("a", "\0")), actor=COMMAND_LINE),
        "model": people.set_budget(database.engine, NewBudget(**scope, limit_nanousd=1, period="day", model="\0"), actor=COMMAND_LINE),
    }
    for field, work in refused.items():
        with pytest.raises(InvalidRequest, match="printable characters") as told:
            await work
        assert told.value.param == field
    with pytest.raises(InvalidRequest, match="printable characters"):
        await rates.set_limit(database.engine, rates.NewLimit(**scope, rpm=1, model="\0"), actor=COMMAND_LINE)
    for missing in (
        people.list_keys(database.engine, "\0"),
        people.delete_team(database.engine, "\0", actor=COMMAND_LINE),
        people.revoke_key(database.engine, "\0", actor=COMMAND_LINE),
        people.set_budget(database.engine, NewBudget(scope_kind="key", scope="\0", limit_nanousd=1, period="day"), actor=COMMAND_LINE),
        people.set_budget(
            database.engine, NewBudget(scope_kind="organisation", scope="\0", limit_nanousd=1, period="day"), actor=COMMAND_LINE
        ),
    ):
        with pytest.raises(NotFound):
            await missing
