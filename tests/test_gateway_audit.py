"""The audit log: a row says who, what, before and after, and comes or goes with the change itself."""

from __future__ import annotations

import json
import time

import pytest
from sqlalchemy import select

from gateway import audit
from gateway.access import Actor
from gateway.db import tables
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
