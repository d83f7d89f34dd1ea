"""Teams as people look at them: what each spent since the month began, its keys and their states, and what a member of it sees."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import insert

from gateway import people, rates
from gateway.access import COMMAND_LINE, Actor
from gateway.db.rollup_tables import rollups
from gateway.errors import NotFound
from gateway.money.settling import settle
from gateway.people import members
from gateway.views import team as views
from tests.conftest import Database

SECRET = b"s" * 32
HOUR_US = 3_600_000_000
QUARTER_US = 900_000_000
ADMIN = Actor(name="a", role="admin")


async def booked(database: Database, team_id: int, key_id: int, at_us: int, cost: int) -> None:
    """One request in the roll-ups, as the writer books it."""
    counts: dict[str, Any] = {"org_id": 1, "team_id": team_id, "outcome": "completed", "requests": 1, "cost": cost}
    words = {"route": "r", "backend": "b", "vendor": "v", "model": "m", "tag": ""}
    async with database.engine.begin() as connection:
        await connection.execute(insert(rollups).values(bucket_us=at_us - at_us % QUARTER_US, key_id=key_id, **counts, **words))


async def test_what_teams_spent_since_an_instant(database: Database) -> None:
    for name in ("search", "ads", "idle"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    await people.add_key(database.engine, SECRET, people.NewKey(team="search"), actor=COMMAND_LINE)
    await members.add_member(database.engine, members.NewMember(email="a@x.org", teams={"search": "member"}), actor=COMMAND_LINE)
    await booked(database, 1, 1, 100 * HOUR_US, 5)
    await booked(database, 1, 1, 126 * HOUR_US + 3 * QUARTER_US, 7)
    await booked(database, 2, 9, 130 * HOUR_US, 11)
    await settle(database.engine)
    for since_us, costs in (
        (0, [11, None, 12]),
        (125 * HOUR_US, [11, None, 7]),
        (126 * HOUR_US + 2 * QUARTER_US, [11, None, 7]),
        (127 * HOUR_US + 2 * QUARTER_US, [11, None, None]),
    ):
        rows = await views.teams(database.engine, None, since_us)
        assert [(row.team.name, None if row.spent is None else row.spent.cost_nanousd) for row in rows] == list(
            zip(("ads", "idle", "search"), costs, strict=True)
        )
    assert [(row.keys, row.members) for row in rows] == [(0, 0), (0, 0), (1, 1)]
    quarters = [130 * HOUR_US, None, 126 * HOUR_US + 3 * QUARTER_US]
    assert [row.last_us for row in rows] == quarters, "of all time, whatever is counted"
    assert [row.team.name for row in await views.teams(database.engine, frozenset({2}), 0)] == ["ads"]


async def test_one_team_and_who_sees_what_of_it(database: Database) -> None:
    engine = database.engine
    for name in ("search", "ads"):
        await people.add_team(engine, name, actor=COMMAND_LINE)
    _, anna = await members.add_member(engine, members.NewMember(email="anna@x.org", teams={"search": "member"}), actor=COMMAND_LINE)
    _, first = await people.add_key(engine, SECRET, people.NewKey(team="search", name="first"), actor=COMMAND_LINE)
    _, mine = await people.add_key(engine, SECRET, people.NewKey(team="search", name="mine", member="anna@x.org"), actor=COMMAND_LINE)
    await people.add_key(engine, SECRET, people.NewKey(team="ads"), actor=COMMAND_LINE)
    for kind, scope in (("team", "search"), ("key", first.public), ("key", mine.public), ("team", "ads")):
        await people.set_budget(engine, people.NewBudget(scope_kind=kind, scope=scope, limit_nanousd=5, period="day"), actor=COMMAND_LINE)
        await rates.set_limit(engine, rates.NewLimit(scope_kind=kind, scope=scope, rpm=5), actor=COMMAND_LINE)
    await booked(database, 1, first.id, 100 * HOUR_US, 5)
    now_us = first.created_at_us
    view = await views.team(engine, ADMIN, "search", 0, now_us)
    assert [(row.key.name, row.use and row.use.cost_nanousd, row.limit and row.limit.rpm) for row in view.keys] == [
        ("mine", None, 5),
        ("first", 5, 5),
    ]
    assert (view.edits, view.own, len(view.budgets), len((await views.limits(engine, ADMIN, "search")).limits)) == (True, False, 3, 3)
    member = Actor(name="anna@x.org", role="member", teams={1: "member"}, member_id=anna.id)
    seen = await views.team(engine, member, "search", 0, now_us)
    assert [row.key.name for row in seen.keys] == ["mine"]
    assert (seen.edits, seen.own) == (False, True)
    limits = await views.limits(engine, member, "search")
    assert [one.scope for one in seen.budgets] == [one.scope for one in limits.limits] == ["search", mine.public]
    assert (list(limits.keys), limits.edits, limits.whole) == ([mine.public], False, False)
    for who, name in ((member, "ads"), (ADMIN, "nowhere"), (ADMIN, "\0")):
        with pytest.raises(NotFound):
            await views.team(engine, who, name, 0, now_us)
    with pytest.raises(NotFound):
        await views.key(engine, member, "search", first.public, (0, now_us))
    _, rotated = await people.rotate_key(engine, SECRET, mine.public, actor=COMMAND_LINE)
    found = (await views.key(engine, member, "search", mine.public, (0, now_us)))[1]
    assert (found.key.public, found.state) == (rotated.public, "rotating")
    assert [one.email for one in (await views.team_members(engine, ADMIN, "search"))[1]] == ["anna@x.org"]


def test_what_stands_in_the_way_of_a_key_longest_is_its_state() -> None:
    key = people.Key(
        id=1,
        public="p",
        team="t",
        name="",
        scopes=(),
        models=None,
        tag="",
        labels={},
        member=None,
        former=(),
        created_at_us=1,
        expires_at_us=None,
        blocked_at_us=None,
        revoked_at_us=None,
    )
    assert views.state_of(key, 100) == "active"
    expired = replace(key, expires_at_us=100)
    assert (views.state_of(expired, 99), views.state_of(expired, 100)) == ("active", "expired")
    blocked = replace(expired, blocked_at_us=50)
    assert views.state_of(blocked, 100) == "blocked"
    assert views.state_of(replace(blocked, revoked_at_us=60), 100) == "revoked"
