"""`tollway budgets`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tollway


def test_budgets_are_set_changed_listed_and_lifted(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    made = tollway("budgets", "set", "--team", "search", "--usd", "100", "--per", "month", "--timezone", "Europe/Berlin")
    assert made.status == 0
    assert made.out.startswith("budget 1: team search, 100.000000000 USD per month (Europe/Berlin); spent so far 0.000000000")
    tollway("budgets", "set", "--team", "search", "--usd", "0.000000001", "--per", "month", "--timezone", "Europe/Berlin")
    tollway("budgets", "set", "--org", "default", "--usd", "5", "--per", "total", "--model", "assistant")
    head, *rows = [line.split() for line in tollway("budgets", "list").lines]
    told = [dict(zip(head, row, strict=True)) for row in rows]
    assert [(one["scope"], one["name"], one["model"], one["per"], one["limit_usd"]) for one in told] == [
        ("team", "search", "all", "month", "0.000000001"),
        ("organisation", "default", "assistant", "total", "5.000000000"),
    ]
    assert told[1]["resets"] == "never"
    assert (told[0]["override_usd"], told[0]["override_until"]) == ("-", "-")
    assert tollway("budgets", "delete", "1").status == 0
    assert len(tollway("budgets", "list").lines) == 2


def test_an_override_ends_by_itself_or_by_a_word(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    tollway("budgets", "set", "--team", "search", "--usd", "5", "--per", "month")
    raised = tollway("budgets", "override", "1", "--usd", "50", "--until", "2d")
    assert raised.status == 0 and "5.000000000 USD per month (UTC), until 20" in raised.out and "Z 50.000000000 USD; spent" in raised.out
    head, row = [line.split() for line in tollway("budgets", "list").lines]
    told = dict(zip(head, row, strict=True))
    assert (told["limit_usd"], told["override_usd"], told["alerts"]) == ("5.000000000", "50.000000000", "80,100")
    assert told["override_until"].endswith("Z") and told["override_until"] in raised.out
    assert "5.000000000 USD per month" in tollway("budgets", "override", "1", "--end").out
    for words, told in (
        (("1", "--usd", "50"), "say --usd and --until"),
        (("1", "--usd", "50", "--until", "2020-01-01"), "is past: an override ends in the future"),
        (("1", "--usd", "much", "--until", "2d"), "not a decimal number"),
        (("1", "--end", "--until", "2d"), "--end stands alone"),
        (("9", "--usd", "50", "--until", "2d"), "no budget 9"),
    ):
        refused = tollway("budgets", "override", *words)
        assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1


def test_thresholds_are_set(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    for words, shown in (((), "80,100"), (("--alerts", "50,90"), "50,90"), ((), "50,90"), (("--alerts", "none"), "none")):
        assert tollway("budgets", "set", "--team", "search", "--usd", "5", "--per", "month", *words).status == 0
        assert tollway("budgets", "list").lines[1].split()[-1] == shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--usd", "1", "--per", "day"), "one of --team, --key and --org"),
        (("--usd", "1", "--per", "day", "--team", "a", "--org", "default"), "one of --team, --key and --org"),
        (("--usd", "ten", "--per", "day", "--org", "default"), "not a decimal number"),
        (("--usd", "-1", "--per", "day", "--org", "default"), "must be 0 or more"),
        (("--usd", "0.0000000001", "--per", "day", "--org", "default"), "finer than a nano-dollar"),
        (("--usd", "1", "--per", "fortnight", "--org", "default"), "no period 'fortnight'"),
        (("--usd", "1", "--per", "day", "--org", "nobody"), "no organisation 'nobody'"),
        (("--usd", "1", "--per", "day", "--org", "default", "--alerts", "most"), "write percents such as 50,80,100"),
        (("--usd", "1", "--per", "day", "--org", "default", "--alerts", "120"), "percents between 1 and 100"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tollway: Tollway, words: tuple[str, ...], told: str) -> None:
    refused = tollway("budgets", "set", *words)
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1
