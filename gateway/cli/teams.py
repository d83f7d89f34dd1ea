"""`tollway teams`: who there is."""

from __future__ import annotations

from cyclopts import App

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.cli.database import instant, run, table
from gateway.labels import mapping, text_of

app = App(name="teams", help="Teams: what a key belongs to and spend is accounted to.")


@app.command
def add(name: str, *, org: str = people.DEFAULT_ORG, labels: str = "") -> None:
    """Make a team.

    Parameters
    ----------
    name
        Letters, digits, dots, dashes and underscores.
    org
        Its organisation, made with its first team.
    labels
        What the backend of each of its requests must carry: residency=eu,retention=none.
    """
    team = run(lambda engine, _: people.add_team(engine, name, org, mapping(labels, "labels"), actor=COMMAND_LINE))
    print(f"team {team.name} of {team.org}. Next: tollway keys add --team {team.name}")


@app.command(name="list")
def list_() -> None:
    """All teams."""
    found = run(lambda engine, _: people.list_teams(engine))
    rows = [(team.name, team.org, text_of(team.labels.items()) or "-", instant(team.created_at_us)) for team in found]
    print(table(("team", "organisation", "labels", "created"), rows))


@app.command
def label(name: str, labels: str) -> None:
    """Set what the backend of each of a team's requests must carry; every worker asks for it within about two seconds.

    Parameters
    ----------
    name
        The team.
    labels
        residency=eu,retention=none; or `none`: no longer any.
    """
    now = run(lambda engine, _: people.label_team(engine, name, {} if labels == "none" else mapping(labels, "labels"), actor=COMMAND_LINE))
    print(f"team {name}: " + (text_of(now.items()) or "no labels"))


@app.command
def delete(name: str) -> None:
    """End a team: its keys stop working within about two seconds, its rows stay in the ledger and its name stays taken."""
    run(lambda engine, _: people.delete_team(engine, name, actor=COMMAND_LINE))
    print(f"team {name} is deleted")
