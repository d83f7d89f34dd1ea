"""Members: who may make whom, what of them a team admin sees, and that every change is written down without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import select

from gateway import audit, people
from gateway.access import COMMAND_LINE, Actor
from gateway.db import tables
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.money import reports
from gateway.people import members
from gateway.people.members import NewMember
from tests.conftest import Database

CARLA = Actor(name="carla@example.org", role="team_admin", teams={1: "team_admin"}, member_id=9)


@pytest.fixture
async def base(database: Database) -> Database:
    for team in ("search", "ads"):
        await people.add_team(database.engine, team, actor=COMMAND_LINE)
    return database


async def log(database: Database) -> list[tuple[str, str, str, int | None]]:
    async with database.engine.connect() as connection:
        rows = (await connection.execute(select(tables.audit).where(tables.audit.c.kind == "member").order_by(tables.audit.c.id))).all()
    assert all("scrypt" not in str(row) for row in rows)
    return [(row.actor, row.action, row.ident, row.team_id) for row in rows]


async def test_a_member_is_made_once_and_then_joins(base: Database) -> None:
    link, first = await members.add_member(
        base.engine, NewMember(email=" Anna@X.org", name="Anna", teams={"search": "member"}), actor=COMMAND_LINE
    )
    assert link and (first.email, first.name, first.role, first.teams) == ("anna@x.org", "Anna", "", {"search": "member"})
    assert not first.has_password
    again, second = await members.add_member(base.engine, NewMember(email="anna@x.org", teams={"ads": "team_admin"}), actor=COMMAND_LINE)
    assert again is None and second.id == first.id and second.name == "Anna"
    assert second.teams == {"ads": "team_admin", "search": "member"}
    assert await members.list_members(base.engine) == [second]
    await members.set_password(base.engine, "anna@x.org", "scrypt$2$1$1$AA==$AA==", actor=COMMAND_LINE)
    assert (await members.list_members(base.engine))[0].has_password


async def test_a_team_admin_makes_members_of_its_team_alone_and_sees_no_other(base: Database) -> None:
    await members.add_member(base.engine, NewMember(email="ben@x.org", teams={"ads": "member", "search": "member"}), actor=COMMAND_LINE)
    await members.add_member(base.engine, NewMember(email="dora@x.org", teams={"ads": "member"}), actor=COMMAND_LINE)
    link, made = await members.add_member(base.engine, NewMember(email="eve@x.org", teams={"search": "team_admin"}), CARLA)
    assert link and made.teams == {"search": "team_admin"}
    told = {}
    for name in ("ads", "nowhere"):
        with pytest.raises(NotFound) as caught:
            await members.add_member(base.engine, NewMember(email="frank@x.org", teams={name: "member"}), CARLA)
        told[name] = caught.value.message.replace(name, "NAME")
    assert told["ads"] == told["nowhere"]
    with pytest.raises(Forbidden):
        await members.add_member(base.engine, NewMember(email="frank@x.org", role="admin"), CARLA)
    with pytest.raises(Forbidden):
        await members.add_member(base.engine, NewMember(email="ben@x.org", role="admin", teams={"search": "member"}), CARLA)
    seen = await members.list_members(base.engine, CARLA.scope)
    assert [(one.email, one.teams) for one in seen] == [("ben@x.org", {"search": "member"}), ("eve@x.org", {"search": "team_admin"})]
    for name in ("ads", "nowhere"):
        with pytest.raises(NotFound) as caught:
            await members.list_members(base.engine, CARLA.scope, name)
        told[name] = caught.value.message.replace(name, "NAME")
    assert told["ads"] == told["nowhere"]
    with pytest.raises(NotFound):
        await members.set_team_role(base.engine, "dora@x.org", "search", "member", CARLA)
    with pytest.raises(NotFound):
        await members.set_team_role(base.engine, "ben@x.org", "ads", None, CARLA)
    assert (await members.set_team_role(base.engine, "ben@x.org", "search", "team_admin", CARLA)).teams == {"search": "team_admin"}
    await members.set_team_role(base.engine, "ben@x.org", "search", None, CARLA)
    assert (await members.list_members(base.engine, team="ads"))[0].teams == {"ads": "member"}


async def test_who_only_reads_a_team_changes_nothing_of_it(base: Database) -> None:
    reader = Actor(name="r", role="team_admin", teams={1: "member", 2: "team_admin"})
    with pytest.raises(Forbidden):
        await members.add_member(base.engine, NewMember(email="frank@x.org", teams={"search": "member"}), reader)


async def test_one_who_left_has_nothing_and_may_come_back_with_nothing(base: Database) -> None:
    await members.add_member(base.engine, NewMember(email="anna@x.org", role="admin", teams={"search": "member"}), actor=COMMAND_LINE)
    await members.set_password(base.engine, "anna@x.org", "scrypt$2$1$1$AA==$AA==", actor=COMMAND_LINE)
    await members.end_member(base.engine, "anna@x.org", actor=COMMAND_LINE)
    assert await members.list_members(base.engine) == []
    for call in (members.end_member, members.new_link):
        with pytest.raises(NotFound):
            await call(base.engine, "anna@x.org", COMMAND_LINE)
    link, back = await members.add_member(base.engine, NewMember(email="anna@x.org", teams={"ads": "member"}), actor=COMMAND_LINE)
    assert link and (back.role, back.teams, back.has_password) == ("", {"ads": "member"}, False)


async def test_every_change_is_written_down(base: Database) -> None:
    await members.add_member(base.engine, NewMember(email="anna@x.org", teams={"search": "member"}), CARLA)
    await members.set_role(base.engine, "anna@x.org", "finance", actor=COMMAND_LINE)
    await members.set_team_role(base.engine, "anna@x.org", "search", "team_admin", CARLA)
    link = await members.new_link(base.engine, "anna@x.org", actor=COMMAND_LINE)
    await members.set_password(base.engine, "anna@x.org", "scrypt$2$1$1$AA==$AA==", actor=COMMAND_LINE)
    await members.end_member(base.engine, "anna@x.org", actor=COMMAND_LINE)
    cli = "command line"
    assert await log(base) == [
        ("carla@example.org", "member.add", "anna@x.org", 1),
        (cli, "member.role", "anna@x.org", None),
        ("carla@example.org", "member.team", "anna@x.org", 1),
        (cli, "member.link", "anna@x.org", None),
        (cli, "member.password", "anna@x.org", None),
        (cli, "member.end", "anna@x.org", None),
    ]
    async with base.engine.connect() as connection:
        rows = (await connection.execute(select(tables.audit).order_by(tables.audit.c.id))).all()
    assert not any(link in str(row) for row in rows)
    role = next(row for row in rows if row.action == "member.role")
    assert (json.loads(role.before), json.loads(role.after)) == ({"role": ""}, {"role": "finance"})


async def test_each_team_is_told_of_a_new_member_and_of_no_other_team(base: Database) -> None:
    teams = {"search": "member", "ads": "team_admin"}
    await members.add_member(base.engine, NewMember(email="anna@x.org", name="Anna", teams=teams), actor=COMMAND_LINE)
    await members.add_member(base.engine, NewMember(email="ben@x.org", role="finance", teams={"ads": "member"}), actor=COMMAND_LINE)
    numbers = {one.name: one.id for one in await people.list_teams(base.engine)}
    for team, told in (
        ("search", [("anna@x.org", {"name": "Anna", "teams": {"search": "member"}})]),
        (
            "ads",
            [("ben@x.org", {"name": "", "teams": {"ads": "member"}}), ("anna@x.org", {"name": "Anna", "teams": {"ads": "team_admin"}})],
        ),
    ):
        seen, _ = await audit.read(base.engine, audit.Asked(action="member.add"), frozenset({numbers[team]}))
        assert [(one.ident, one.after) for one in seen] == told
    all_of, _ = await audit.read(base.engine, audit.Asked(action="member.add"))
    assert [(one.team, one.after) for one in all_of if one.team is None] == [(None, {"name": "", "role": "finance"})] and len(all_of) == 4


async def test_one_who_cannot_be_meant_is_refused(base: Database) -> None:
    for wrong, param in (
        ({"email": "anna"}, "email"),
        ({"email": "a b@x.org"}, "email"),
        ({"email": "<script>@x.org"}, "email"),
        ({"email": "a@x.org\0"}, "email"),
        ({"email": "a" * 300 + "@x.org"}, "email"),
        ({"role": "root"}, "role"),
        ({"role": "team_admin"}, "role"),
        ({"teams": {"search": "admin"}}, "teams"),
        ({"teams": {}}, "teams"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\nb"}, "name"),
    ):
        asked: dict[str, Any] = {"email": "anna@x.org", "teams": {"search": "member"}} | wrong
        with pytest.raises(InvalidRequest) as caught:
            await members.add_member(base.engine, NewMember(**asked), actor=COMMAND_LINE)
        assert caught.value.param == param, wrong


async def test_a_team_that_no_database_can_name_is_not_there(base: Database) -> None:
    with pytest.raises(NotFound):
        await members.list_members(base.engine, team="\x00")
    with pytest.raises(NotFound):
        await reports.spend(base.engine, reports.Asked(team="\x00"), 10)


async def test_who_is_given_everything_begins_with_a_password_of_their_own(base: Database) -> None:
    """Whoever invited them to a team has had the link, and may know the password."""
    for email, raised in (("boss@example.org", "add"), ("cfo@example.org", "role")):
        link, made = await members.add_member(base.engine, NewMember(email=email, teams={"search": "member"}), CARLA)
        assert link is not None
        await members.set_password(base.engine, made.email, "a hash that Carla knows", actor=COMMAND_LINE)
        if raised == "add":
            fresh, member = await members.add_member(base.engine, NewMember(email=email, role="admin"), actor=COMMAND_LINE)
            assert fresh is not None and fresh != link
        else:
            member = await members.set_role(base.engine, email, "finance", actor=COMMAND_LINE)
        assert not member.has_password and member.role in ("admin", "finance")
        again = await members.set_role(base.engine, email, "admin", actor=COMMAND_LINE)
        assert again.role == "admin"
    kept, _ = await members.add_member(base.engine, NewMember(email="boss@example.org", role="finance"), actor=COMMAND_LINE)
    assert kept is None, "one who has a role of everything already keeps the password"
