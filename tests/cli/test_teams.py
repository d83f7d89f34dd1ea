"""`tollway teams`."""

from __future__ import annotations

from tests.cli.conftest import Tollway


def test_teams_are_made_listed_and_ended(tollway: Tollway) -> None:
    made = tollway("teams", "add", "search", "--org", "product")
    assert (made.status, made.out) == (0, "team search of product. Next: tollway keys add --team search\n")
    assert tollway("teams", "add", "ads").status == 0
    listed = tollway("teams", "list").lines
    assert [line.split()[:2] for line in listed] == [["team", "organisation"], ["ads", "default"], ["search", "product"]]
    assert tollway("teams", "label", "ads", "residency=eu, retention=none").out == "team ads: residency=eu,retention=none\n"
    assert "residency=eu,retention=none" in tollway("teams", "list").lines[1]
    assert tollway("teams", "label", "ads", "residency").err.startswith("tollway: labels: 'residency' are no labels: write ")
    assert tollway("teams", "label", "ads", "none").out == "team ads: no labels\n"
    assert tollway("teams", "delete", "ads").status == 0
    assert "ads" not in tollway("teams", "list").out


def test_an_error_is_one_line(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    again = tollway("teams", "add", "search")
    assert (again.status, again.out, again.err) == (1, "", "tollway: There is already a team 'search'.\n")
    assert tollway("teams", "delete", "nobody").err.startswith("tollway: There is no team 'nobody'")
