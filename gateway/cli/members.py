"""`tollway members`: people who sign in to the console."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Annotated

from cyclopts import App, Parameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import passwords
from gateway.access import COMMAND_LINE
from gateway.cli.database import fail, run, table
from gateway.errors import InvalidRequest
from gateway.people import members
from gateway.people.members import LINK_S, link_path
from gateway.settings import Settings

app = App(name="members", help="People who sign in to the console.")


@app.command
def add(
    email: str,
    *,
    role: str = "",
    admin: Annotated[bool, Parameter(negative=())] = False,
    teams: str = "",
    name: str = "",
    password_stdin: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make a member and print a link that sets a password, once; somebody who is there already joins the teams named.

    Parameters
    ----------
    email
        What they sign in with.
    role
        admin or finance, of everything. Without it: what the teams say.
    admin
        The same as --role admin.
    teams
        search, or search=team_admin,ads=member. Without a word behind it: member.
    name
        How they are called.
    password_stdin
        Read a password from standard input instead of printing a link.
    """
    if admin and role:
        fail("say --admin or --role, not both: --admin is the same as --role admin")
    password = _read_password() if password_stdin else None
    new = members.NewMember(email=email, name=name, role="admin" if admin else role, teams=_teams(teams))

    async def work(engine: AsyncEngine, _: Settings) -> tuple[str | None, members.Member]:
        link, member = await members.add_member(engine, new, actor=COMMAND_LINE)
        if password is not None:
            await members.set_password(engine, member.email, await asyncio.to_thread(passwords.hashed, password), actor=COMMAND_LINE)
            link = None
        return link, member

    link, member = run(work)
    places = [member.role] if member.role else [f"{team}={place}" for team, place in member.teams.items()]
    print(f"{member.email}: {', '.join(places)}")
    if link is not None:
        _tell(link)


@app.command(name="list")
def list_(*, team: str = "") -> None:
    """All members.

    Parameters
    ----------
    team
        Only this team's.
    """
    found = run(lambda engine, _: members.list_members(engine, team=team or None))
    rows = [
        (
            one.email,
            one.name or "-",
            one.role or "-",
            ",".join(f"{name}={place}" for name, place in one.teams.items()) or "-",
            "set" if one.has_password else "not set",
        )
        for one in found
    ]
    print(table(("email", "name", "role", "teams", "password"), rows))


@app.command
def link(email: str) -> None:
    """A new link that sets a password, once; the password they have works until then."""
    _tell(run(lambda engine, _: members.new_link(engine, email, actor=COMMAND_LINE)))


@app.command
def role(email: str, role: str) -> None:
    """Make somebody admin or finance of everything, or none: what the teams say."""
    member = run(lambda engine, _: members.set_role(engine, email, "" if role == "none" else role, actor=COMMAND_LINE))
    print(f"{member.email}: {member.role or 'what the teams say'}")


@app.command
def leave(email: str, team: str) -> None:
    """Take somebody out of a team."""
    run(lambda engine, _: members.set_team_role(engine, email, team, None, actor=COMMAND_LINE))
    print(f"{email} is no longer in the team {team}")


@app.command
def end(email: str) -> None:
    """Sign somebody out everywhere and let them in no longer."""
    run(lambda engine, _: members.end_member(engine, email, actor=COMMAND_LINE))
    print(f"{email} is no member any longer")


def _tell(link: str) -> None:
    print(f"{link_path(link)} at the gateway's address sets the password, once, within {LINK_S // 3600} hours.")


def _teams(text: str) -> dict[str, str]:
    pairs = [word.strip().partition("=") for word in text.split(",") if word.strip()]
    return {team: place or "member" for team, _, place in pairs}


def _read_password() -> str:
    """One line, typed unseen at a terminal. Checked before anything is changed."""
    password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    try:
        passwords.check(password)
    except InvalidRequest as error:
        fail(error.message)
    return password
