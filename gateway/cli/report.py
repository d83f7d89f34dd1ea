"""`tollway report`: what was spent, by whom, on what."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from gateway.cli.database import run, table
from gateway.money import reports


def report(
    *,
    by: str = "team",
    since: str = "",
    until: str = "",
    timezone: str = "UTC",
    shape: Annotated[Literal["table", "csv", "json"], Parameter(name="--format")] = "table",
) -> None:
    """What was spent, from the roll-ups. Money is in USD with nine decimals; what has no known price is `unknown`.

    Parameters
    ----------
    by
        Any of team, org, key, route, backend, vendor, model, outcome, tag, hour, day, week, month, separated by commas.
    since
        A date of the time zone, 2026-11-01, or an instant on a quarter of an hour, 2026-11-01T12:00:00Z. Without it: from the beginning.
    until
        The first instant that is not in the report. Without it: to now.
    timezone
        Where days, weeks and months begin at midnight, for example Europe/Berlin.
    shape
        table, csv (the lines) or json (the lines and their total).
    """
    asked = reports.Asked(
        by=tuple(word.strip() for word in by.split(",") if word.strip()), since=since or None, until=until or None, timezone=timezone
    )
    found = run(lambda engine, _: reports.spend(engine, asked))
    if shape == "json":
        print(msgspec.json.format(msgspec.json.encode(reports.document(found)), indent=2).decode())
    elif shape == "csv":
        print(reports.as_csv(found), end="")
    else:
        lines = found.lines if not found.by else (*found.lines, found.total)
        print(table(*_without_empty(reports.columns(found), [reports.cells(line) for line in lines], len(found.by))))


def _without_empty(
    head: tuple[str, ...], rows: list[tuple[str | int | None, ...]], groups: int
) -> tuple[tuple[str, ...], list[tuple[str | int, ...]]]:
    """A table for people leaves out the columns where nothing is."""
    nothing = (0, "0.000000000", "0.0000", None)
    kept = [
        place
        for place, name in enumerate(head)
        if place < groups or name in ("requests", "cost_usd") or any(row[place] not in nothing for row in rows)
    ]
    return tuple(head[place] for place in kept), [tuple("-" if row[place] is None else row[place] for place in kept) for row in rows]  # type: ignore[misc]
