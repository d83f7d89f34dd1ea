"""Teams: what is made, what is refused and with which words."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.errors import GatewayError, InvalidRequest, NotFound
from tests.conftest import Database


async def test_teams_belong_to_organisations(database: Database) -> None:
    first = await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    second = await people.add_team(database.engine, "ads", "growth", actor=COMMAND_LINE)
    third = await people.add_team(database.engine, "mail", "growth", actor=COMMAND_LINE)
    assert [(team.name, team.org) for team in await people.list_teams(database.engine)] == [
        ("ads", "growth"),
        ("mail", "growth"),
        ("search", "default"),
    ]
    assert len({first.id, second.id, third.id}) == 3
    assert abs(first.created_at_us / 1e6 - time.time()) < 60


async def test_a_team_is_made_once_also_by_two_at_the_same_time(database: Database) -> None:
    both = await asyncio.gather(*(people.add_team(database.engine, "alpha", actor=COMMAND_LINE) for _ in range(2)), return_exceptions=True)
    told = [one for one in both if isinstance(one, GatewayError)]
    assert len(told) == 1 and told[0].status == 409
    assert len(await people.list_teams(database.engine)) == 1


async def test_the_name_of_a_deleted_team_stays_taken(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    await people.delete_team(database.engine, "alpha", actor=COMMAND_LINE)
    assert await people.list_teams(database.engine) == []
    with pytest.raises(InvalidRequest, match="deleted"):
        await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    with pytest.raises(NotFound, match="tollway teams list"):
        await people.delete_team(database.engine, "alpha", actor=COMMAND_LINE)
