"""A statement says what the report says, to the nano-dollar, and can be opened without harm."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.errors import InvalidRequest, NotFound
from gateway.money import reports, statement
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

NOVEMBER = to_us(datetime(2026, 11, 1, tzinfo=UTC))
DAY_US = 86_400_000_000


async def filled(database: Database) -> None:
    for name in ("search", "ads", "mail"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    await write(database.engine, mixed(300, NOVEMBER - 5 * DAY_US, NOVEMBER + 35 * DAY_US))
    unknown = record(NOVEMBER + DAY_US, [("b", "unknown", 5_000)], outcome="unknown")
    await write(database.engine, [unknown])
    await write(database.engine, [replace(unknown, outcome="completed", cost=1_200)])


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Kolkata"])
async def test_its_total_is_the_reports_to_the_nano_dollar(database: Database, timezone: str) -> None:
    await filled(database)
    whole = await reports.spend(database.engine, reports.Asked(by=("team", "month"), timezone=timezone))
    for team in ("search", "ads"):
        made = await statement.statement(database.engine, team, "2026-11", timezone)
        line = next(one for one in whole.lines if one.group == (team, "2026-11"))
        assert (made.report.total.cost, made.report.total.requests) == (line.cost, line.requests)
        rows = list(csv.DictReader(io.StringIO(statement.as_csv(made))))
        total = rows.pop()
        assert total["kind"] == "total" and Decimal(total["total_usd"]) * 10**9 == line.cost
        priced = [row for row in rows if row["total_usd"] != "unknown"]
        assert sum(Decimal(row["total_usd"]) for row in priced) * 10**9 == line.cost
        assert all(Decimal(row["charged_usd"]) + Decimal(row["adjusted_usd"]) == Decimal(row["total_usd"]) for row in priced)
        for name in ("requests", "input_tokens", "output_tokens", "unpriced", "estimated"):
            assert sum(int(row[name]) for row in rows) == int(total[name])
        assert statement.document(made)["total"]["cost_nanousd"] == line.cost
    adjusted = (await statement.statement(database.engine, "search", "2026-11")).report.total.adjusted
    assert adjusted == -3_800


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "action", "background")]

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())


async def test_the_page_escapes_names_and_fetches_nothing(database: Database) -> None:
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    evil = "<script>alert(1)</script>"
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 1_234_567_890)], route=evil, model='"><img src=x>')])
    page = statement.as_html(await statement.statement(database.engine, "search", "2026-11"))
    read = Tags()
    read.feed(page)
    assert read.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "strong", "table", "thead", "tbody", "tfoot"} | {
        *("tr", "th", "td", "br", "div")
    }
    assert read.fetched == [] and "url(" not in page and "@import" not in page and "://" not in page
    assert evil in read.text and "1.234567890" in read.text and "@page" in page
    assert "Total 1.234567890 USD" in read.text


async def test_a_cell_of_a_spreadsheet_is_no_formula(database: Database) -> None:
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    await write(database.engine, [record(NOVEMBER, [("b", "completed", 1)], route="=HYPERLINK(1)")])
    rows = list(csv.DictReader(io.StringIO(statement.as_csv(await statement.statement(database.engine, "search", "2026-11")))))
    assert [row["route"] for row in rows] == ["'=HYPERLINK(1)", ""]


async def test_what_is_missing_is_said(database: Database) -> None:
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    page = statement.as_html(await statement.statement(database.engine, "search", "2026-11"))
    assert "Nothing was asked in this month." in page and "Total 0.000000000 USD" in page
    await write(database.engine, [record(NOVEMBER, [("new", "completed", None)])])
    made = await statement.statement(database.engine, "search", "2026-11")
    assert "price is not known" in statement.as_html(made)
    assert next(csv.DictReader(io.StringIO(statement.as_csv(made))))["total_usd"] == "unknown"
    assert (await statement.statement(database.engine, "search", "2001-02")).over
    assert not (await statement.statement(database.engine, "search", "9000-02")).over


@pytest.mark.parametrize("month", ["2026-13", "2026-00", "2026", "november", "2026-11-01", "0000-01", "9999-12", "9998-12"])
async def test_what_is_no_month_is_refused(database: Database, month: str) -> None:
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    with pytest.raises(InvalidRequest) as told:
        await statement.statement(database.engine, "search", month)
    assert told.value.param == "month"


async def test_a_team_that_never_was_has_none(database: Database) -> None:
    with pytest.raises(NotFound):
        await statement.statement(database.engine, "nobody", "2026-11")
