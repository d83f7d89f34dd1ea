"""`tollway members`: a link or a password, roles, and the end."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.cli.conftest import Tollway


def test_members_are_made_listed_changed_and_ended(tollway: Tollway, monkeypatch: pytest.MonkeyPatch) -> None:
    tollway("teams", "add", "search")
    made = tollway("members", "add", "Anna@x.org", "--admin")
    assert made.status == 0 and made.lines[0] == "anna@x.org: admin"
    link = re.match(r"(/console/welcome\?link=\S{40,}) at the gateway's address sets the password, once, within 48 hours", made.lines[1])
    assert link is not None
    assert tollway("members", "link", "anna@x.org").out.split()[0] != link[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse battery\n"))
    ben = tollway("members", "add", "ben@x.org", "--teams", "search=team_admin", "--name", "Ben", "--password-stdin")
    assert (ben.status, ben.out) == (0, "ben@x.org: search=team_admin\n")
    lines = [line.split() for line in tollway("members", "list").lines]
    assert lines[0] == ["email", "name", "role", "teams", "password"]
    assert lines[1] == ["anna@x.org", "-", "admin", "-", "not", "set"]
    assert lines[2] == ["ben@x.org", "Ben", "-", "search=team_admin", "set"]
    assert tollway("members", "role", "ben@x.org", "finance").out == "ben@x.org: finance\n"
    assert tollway("members", "role", "ben@x.org", "none").out == "ben@x.org: what the teams say\n"
    assert tollway("members", "leave", "ben@x.org", "search").status == 0
    assert len(tollway("members", "list", "--team", "search").lines) == 1
    assert tollway("members", "end", "ben@x.org").status == 0
    assert tollway("members", "end", "ben@x.org").err.startswith("tollway: There is no member 'ben@x.org'")


def test_a_password_that_is_too_short_makes_nobody(tollway: Tollway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    refused = tollway("members", "add", "anna@x.org", "--admin", "--password-stdin")
    assert (refused.status, refused.out) == (1, "") and "12 to 256 characters" in refused.err
    both = tollway("members", "add", "anna@x.org", "--admin", "--role", "finance")
    assert (both.status, both.out) == (
        1,
        "",
    ) and both.err == "tollway: say --admin or --role, not both: --admin is the same as --role admin\n"
    assert len(tollway("members", "list").lines) == 1
