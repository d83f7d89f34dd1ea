"""`tollway teams`: who there is."""

from __future__ import annotations

from cyclopts import App

from gateway import people
from gateway.cli.database import instant, run, table

app = App(name="teams", help="Teams: what a key belongs to and spend is accounted to.")


@app.command
def add(name: str, *, org: str = people.DEFAULT_ORG) -> None:
    """Make a team.

    Parameters
    ----------
    name
        Letters, digits, dots, dashes and underscores.
    org
        Its organisation, made with its first team.
    """
    team = run(lambda engine, _: people.add_team(engine, name, org))
    print(f"team {team.name} of {team.org}. Next: tollway keys add --team {team.name}")


@app.command(name="list")
def list_() -> None:
    """All teams."""
    found = run(lambda engine, _: people.list_teams(engine))
    print(table(("team", "organisation", "created"), [(team.name, team.org, instant(team.created_at_us)) for team in found]))


@app.command
def delete(name: str) -> None:
    """End a team: its keys stop working within about two seconds, its rows stay in the ledger and its name stays taken."""
    run(lambda engine, _: people.delete_team(engine, name))
    print(f"team {name} is deleted")
