"""A team's month as a statement: lines by route and model, what was corrected, and a total that is the report's. CSV, or HTML to print.

Reads roll-ups through the report; asks no ledger row. The HTML stands alone: its own style, nothing to be fetched.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.columns import CLASSES
from gateway.db.engine import clock_us, reading
from gateway.db.tables import organisations, teams
from gateway.errors import InvalidRequest
from gateway.money import cells as tables
from gateway.money import reports
from gateway.money.pricing import usd
from gateway.money.reports import Line, Report
from gateway.money.windows import to_datetime, zone

BY = ("route", "model")
LINES_MAX = 10_000
COLUMNS = (
    *("kind", "team", "month", "timezone", *BY, "requests", *CLASSES),
    *("charged_usd", "adjusted_usd", "total_usd", "saved_usd", "unpriced", "estimated"),
)
_TEMPLATE = Path(__file__).with_name("statement.html")


class Statement(Struct, frozen=True, kw_only=True):
    """report: of this team and month, by route and model. made_at_us: by the database's clock. over: the month has ended."""

    team: str
    org: str
    month: str
    timezone: str
    made_at_us: int
    over: bool
    report: Report


async def statement(engine: AsyncEngine, team: str, month: str, timezone: str = "UTC", scope: frozenset[int] | None = None) -> Statement:
    """month: 2026-11. scope: ids of the teams that are seen, None = all.

    InvalidRequest names what was asked wrongly; NotFound: there never was such a team."""
    since, until = _days(month)
    asked = reports.Asked(by=BY, since=since, until=until, timezone=timezone, team=team, latencies=False)
    report = await reports.spend(engine, asked, LINES_MAX, scope)
    of_team = select(organisations.c.name).join(teams, teams.c.org_id == organisations.c.id).where(teams.c.name == team)
    async with reading(engine).connect() as connection:
        org = (await connection.execute(of_team)).scalar_one()
        now_us = (await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one()
    over = report.until_us is not None and report.until_us <= now_us
    return Statement(team=team, org=org, month=month, timezone=timezone, made_at_us=now_us, over=over, report=report)


def _days(month: str) -> tuple[str, str]:
    """The first day of a month, and of the next."""
    if re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month) is None or not "1971-01" <= month < "9998-12":
        raise InvalidRequest(f"month: '{month[:80]}' is no month: write 2026-11.", param="month")
    first = date.fromisoformat(f"{month}-01")
    return first.isoformat(), (first + timedelta(days=31)).replace(day=1).isoformat()


def _money(line: Line) -> tuple[str, str, str, str]:
    """charged, adjusted, total, saved. Where no request has a known cost the charge is unknown."""
    unknown = line.unpriced > 0 and line.unpriced >= line.requests and line.cost == 0
    charged, total = (usd(None if unknown else amount) for amount in (line.cost - line.adjusted, line.cost))
    return charged, usd(line.adjusted), total, usd(line.saved)


def as_csv(made: Statement) -> str:
    """Lines of kind `line`, then one of kind `total`."""

    def row(kind: str, line: Line, group: tuple[str, ...]) -> tuple[Any, ...]:
        names = map(tables.safe, (made.team, made.month, made.timezone, *group))
        return (kind, *names, line.requests, *line.tokens, *_money(line), line.unpriced, line.estimated)

    rows = [row("line", line, line.group) for line in made.report.lines]
    return tables.as_csv(COLUMNS, [*rows, row("total", made.report.total, ("", ""))])


def document(made: Statement) -> dict[str, Any]:
    """For JSON; money also as integer nano-USD."""
    return {
        "team": made.team,
        "org": made.org,
        "month": made.month,
        "timezone": made.timezone,
        "made_at_us": made.made_at_us,
        "over": made.over,
        **{name: value for name, value in reports.document(made.report).items() if name in ("since_us", "until_us", "lines", "total")},
    }


def as_html(made: Statement) -> str:
    """A page to print. Every name in it is escaped."""
    from jinja2 import Environment, StrictUndefined  # a worker needs it for nothing else

    total = made.report.total
    used = [place for place, count in enumerate(total.tokens) if count]

    def shown(line: Line) -> dict[str, Any]:
        return {
            "group": line.group,
            "requests": line.requests,
            "tokens": [line.tokens[place] for place in used],
            "money": _money(line),
            "unpriced": line.unpriced,
            "estimated": line.estimated,
        }

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["grouped"] = lambda number: f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    at = to_datetime(made.made_at_us).astimezone(zone(made.timezone))
    return template.render(
        made=made,
        at=at.strftime("%Y-%m-%d %H:%M %Z"),
        classes=[CLASSES[place].removesuffix("_tokens").replace("_", " ") for place in used],
        lines=[shown(line) for line in made.report.lines],
        total=shown(total),
    )
