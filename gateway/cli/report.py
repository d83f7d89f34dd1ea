"""`tollway report`: what was spent, by whom, on what; a team's month as a statement; what the present period will have cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter

from gateway.cli.database import fail, run, table
from gateway.money import forecast, reports
from gateway.money import statement as statements
from gateway.money.pricing import usd

Shape = Annotated[Literal["table", "csv", "json"], Parameter(name="--format")]
Cells = list[tuple[str | int | None, ...]]

app = App(name="report", help="What was spent, by whom, on what; statements and forecasts.")


@dataclass(frozen=True)
class When:
    """Of when a report is.

    Parameters
    ----------
    since
        A date of the time zone, 2026-11-01, or an instant on a quarter of an hour, 2026-11-01T12:00:00Z. Without it: from the beginning.
    until
        The first instant that is not in the report. Without it: to now.
    timezone
        Where days, weeks and months begin at midnight, for example Europe/Berlin.
    """

    since: str = ""
    until: str = ""
    timezone: str = "UTC"


_EVER = When()


@app.default
def report(
    *,
    by: str = "team",
    when: Annotated[When, Parameter(name="*")] = _EVER,
    team: str = "",
    ahead: Annotated[Literal["", "day", "week", "month"], Parameter(name="--forecast")] = "",
    shape: Shape = "table",
) -> None:
    """What was spent, from the roll-ups. Money is in USD with nine decimals; what has no known price is `unknown`.

    Parameters
    ----------
    by
        Any of team, org, key, route, backend, vendor, model, outcome, tag, hour, day, week, month, separated by commas.
    team
        Only of this team.
    ahead
        Instead: what the present day, week or month will have cost at its end, with an interval that holds it four times of five.
    shape
        table, csv (the lines) or json (the lines and their total).
    """
    words = tuple(word.strip() for word in by.split(",") if word.strip())
    if ahead:
        if when.since or when.until:
            fail("--forecast is of the present period: leave out --since and --until")
        _forecast(forecast.Asked(by=words, per=ahead, timezone=when.timezone, team=team or None), shape)
        return
    asked = reports.Asked(by=words, since=when.since or None, until=when.until or None, timezone=when.timezone, team=team or None)
    found = run(lambda engine, _: reports.spend(engine, asked))
    if shape == "json":
        _json(reports.document(found))
    elif shape == "csv":
        print(reports.as_csv(found), end="")
    else:
        lines = found.lines if not found.by else (*found.lines, found.total)
        print(table(*_without_empty(reports.columns(found), [reports.cells(line) for line in lines], len(found.by))))


@app.command
def statement(
    *,
    team: str,
    month: str,
    timezone: str = "UTC",
    shape: Annotated[Literal["csv", "html", "json"], Parameter(name="--format")] = "csv",
) -> None:
    """A team's month by route and model, to charge it: the same total as the report.

    Parameters
    ----------
    team
        Its name.
    month
        For example 2026-11.
    timezone
        Where the month begins at midnight.
    shape
        csv, html (a page to print) or json.
    """
    made = run(lambda engine, _: statements.statement(engine, team, month, timezone))
    if shape == "json":
        _json(statements.document(made))
    else:
        print(statements.as_html(made) if shape == "html" else statements.as_csv(made), end="")


@app.command
def budgets(*, shape: Annotated[Literal["table", "json"], Parameter(name="--format")] = "table") -> None:
    """What each budget's period will have cost at its end, and whether that passes its limit: no, perhaps or yes."""
    found = run(lambda engine, _: forecast.of_budgets(engine))
    if shape == "json":
        _json([forecast.of_budget_document(one) for one in found])
        return
    head = ("id", "scope", "name", "model", "per", "limit_usd", *forecast.COLUMNS, "passes")
    rows: Cells = [
        (b.id, b.scope_kind, b.scope, b.model, b.period, usd(one.limit), *forecast.cells(one.line), one.passes or None)
        for one in found
        for b in [one.budget]
    ]
    print(table(head, _dashes(rows)))


def _forecast(asked: forecast.Asked, shape: str) -> None:
    found = run(lambda engine, _: forecast.forecast(engine, asked))
    if shape == "json":
        _json(forecast.document(found))
    elif shape == "csv":
        print(forecast.as_csv(found), end="")
    else:
        lines = found.lines if not found.by else (*found.lines, found.total)
        print(table((*found.by, *forecast.COLUMNS), _dashes([forecast.cells(line) for line in lines])))
        print("method: weekday and mean tell an interval; rate: too short a history for one; growth is not continued")


def _json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _dashes(rows: Cells) -> list[tuple[str | int, ...]]:
    return [tuple("-" if cell is None else cell for cell in row) for row in rows]


def _without_empty(head: tuple[str, ...], rows: Cells, groups: int) -> tuple[tuple[str, ...], list[tuple[str | int, ...]]]:
    """A table for people leaves out the columns where nothing is."""
    nothing = (0, "0.000000000", "0.0000", None)
    kept = [
        place
        for place, name in enumerate(head)
        if place < groups or name in ("requests", "cost_usd") or any(row[place] not in nothing for row in rows)
    ]
    return tuple(head[place] for place in kept), _dashes([tuple(row[place] for place in kept) for row in rows])
