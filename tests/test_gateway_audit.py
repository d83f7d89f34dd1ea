"""The audit log: a row says who, what, before and after, and comes or goes with the change itself."""

from __future__ import annotations

import json
import time

import pytest
from sqlalchemy import select

from gateway import audit, people
from gateway.access import COMMAND_LINE, Actor
from gateway.db import tables
from gateway.errors import InvalidRequest
from tests.conftest import Database

ANNA = Actor(name="anna@example.org", role="team_admin", teams={1: "team_admin"}, member_id=3)


async def test_a_row_says_who_what_before_and_after(database: Database) -> None:
    async with database.engine.begin() as connection:
        await audit.write(
            connection, ANNA, action="key.block", kind="key", ident="3kfj", team_id=1, before={"blocked": False}, after={"blocked": True}
        )
        await audit.write(connection, ANNA, action="team.add", kind="team", ident="ads", after={"name": "ads"})
    async with database.engine.connect() as connection:
        first, second = (await connection.execute(select(tables.audit).order_by(tables.audit.c.id))).all()
    assert (first.actor, first.role, first.member_id, first.key_id) == ("anna@example.org", "team_admin", 3, None)
    assert (first.action, first.kind, first.ident, first.team_id) == ("key.block", "key", "3kfj", 1)
    assert (json.loads(first.before), json.loads(first.after)) == ({"blocked": False}, {"blocked": True})
    assert (second.team_id, second.before, json.loads(second.after)) == (None, None, {"name": "ads"})
    assert abs(first.at_us / 1e6 - time.time()) < 60


async def test_no_change_no_row(database: Database) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        async with database.engine.begin() as connection:
            await audit.write(connection, ANNA, action="team.add", kind="team", ident="ads", after={})
            raise RuntimeError("stopped")
    async with database.engine.connect() as connection:
        assert (await connection.execute(select(tables.audit))).all() == []


async def test_reading_newest_first_by_filters_and_cursor(database: Database) -> None:
    for team in ("search", "ads"):
        await people.add_team(database.engine, team, actor=COMMAND_LINE)
    async with database.engine.begin() as connection:
        for number in range(5):
            await audit.write(
                connection, ANNA, action="key.block", kind="key", ident=f"k{number}", team_id=1 + number % 2, after={"n": number}
            )
    found, cursor = await audit.read(database.engine, audit.Asked(limit=3))
    assert [one.ident for one in found] == ["k4", "k3", "k2"] and cursor == found[-1].id
    assert (found[0].team, found[0].actor, found[0].after, found[0].before) == ("search", ANNA.name, {"n": 4}, None)
    older, end = await audit.read(database.engine, audit.Asked(limit=4, before_id=cursor))
    assert [one.ident for one in older] == ["k1", "k0", "ads", "search"] and end is None
    for asked, idents in (
        (audit.Asked(actor="command line"), ["ads", "search"]),
        (audit.Asked(kind="team", ident="ads"), ["ads"]),
        (audit.Asked(team="ads"), ["k3", "k1", "ads"]),
        (audit.Asked(action="team.add", team="search"), ["search"]),
        (audit.Asked(since_us=found[0].at_us + 60_000_000), []),
        (audit.Asked(until_us=1), []),
    ):
        assert [one.ident for one in (await audit.read(database.engine, asked))[0]] == idents, asked
    seen, _ = await audit.read(database.engine, audit.Asked(), frozenset({2}))
    assert [one.ident for one in seen] == ["k3", "k1", "ads"]
    assert (await audit.read(database.engine, audit.Asked(team="search"), frozenset({2})))[0] == []
    for wrong in (
        audit.Asked(limit=0),
        audit.Asked(limit=501),
        audit.Asked(ident="a\0"),
        audit.Asked(before_id=1 << 63),
        audit.Asked(team="\0"),
    ):
        with pytest.raises(InvalidRequest):
            await audit.read(database.engine, wrong)
