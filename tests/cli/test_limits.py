"""`tollway limits`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tollway


def test_limits_are_set_changed_listed_and_lifted(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    made = tollway("limits", "set", "--team", "search", "--rpm", "60", "--tpm", "1000")
    assert (made.status, made.out) == (0, "limit 1: team search, 60 requests/min, 1000 tokens/min\n")
    tollway("limits", "set", "--team", "search", "--parallel", "2")
    tollway("limits", "set", "--org", "default", "--rpm", "0", "--model", "assistant")
    head, *rows = [line.split() for line in tollway("limits", "list").lines]
    assert head == ["limit", "scope", "name", "model", "rpm", "tpm", "parallel"]
    assert rows == [["1", "team", "search", "all", "-", "-", "2"], ["2", "organisation", "default", "assistant", "0", "-", "-"]]
    assert tollway("limits", "delete", "1").status == 0
    assert len(tollway("limits", "list").lines) == 2
    assert "no limit 1" in tollway("limits", "delete", "1").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rpm", "1"), "a limit is for one of --team, --key and --org"),
        (("--org", "default"), "at least one of rpm, tpm and parallel"),
        (("--org", "default", "--rpm", "-1"), "rpm: a limit is 0 to"),
        (("--org", "nobody", "--rpm", "1"), "no organisation 'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tollway: Tollway, words: tuple[str, ...], told: str) -> None:
    refused = tollway("limits", "set", *words)
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1
