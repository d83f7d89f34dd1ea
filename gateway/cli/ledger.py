"""`tollway ledger`: check every invariant, list and resolve unknown ends, rebuild roll-ups, rate anew, export and prune."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from cyclopts import App, Parameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import prices, resolving
from gateway.access import COMMAND_LINE
from gateway.catalog_build import build
from gateway.cli.database import fail, instant, run, table
from gateway.db.session import open_session
from gateway.errors import GatewayError
from gateway.instants import MICROSECONDS, date_us
from gateway.money import audit, corrections, rebuild, reprice, retention
from gateway.money.book import Book
from gateway.money.pricing import nanousd, usd
from gateway.money.quarantine import Quarantine, SetAside, retry
from gateway.settings import Settings

PRUNE_MIN_US = 30 * MICROSECONDS["d"]  # younger rows may still stand in a journal, which would bring them back
EVER_US = 1 << 62

app = App(name="ledger", help="The ledger: check it, export it, settle what is unknown, prune it.")


@app.command
def verify() -> None:
    """Compute every invariant anew. Exit status 1 with the rows that break one."""
    found, aside = run(_verify)
    if aside:
        print(f"{aside} rows are set aside, which the database does not take: `tollway ledger quarantine`")
    counted = f"{found.rows} rows, {found.windows} budget windows, {found.buckets} quarters of an hour"
    if not found.count:
        print(f"{counted}: every invariant holds")
        return
    print(table(("rule", "where", "told"), [(one.rule, one.where, one.told) for one in found.broken]))
    fail(f"{counted}: {found.count} broken" + (f", the first {len(found.broken)} are listed" if found.count > len(found.broken) else ""))


async def _verify(engine: AsyncEngine, settings: Settings) -> tuple[audit.Audit, int]:
    return await audit.audit(engine), _quarantine(settings).count()


def _quarantine(settings: Settings) -> Quarantine:
    return Quarantine(settings.state / "journal")


@app.command
def quarantine(*, again: Annotated[bool, Parameter(name="--retry", negative="")] = False) -> None:
    """Rows that the database refused for their content. Their budgets are charged; the rows stand in a file of the state folder.

    Parameters
    ----------
    again
        Try to write them once more, after the cause is gone.
    """
    if again:
        stored, refused = run(_retry)
        print(f"{stored} rows are in the ledger now, {refused} are still refused")
        return
    rows = run(lambda _, settings: _read(settings))
    shown = [
        (row.record.id, instant(row.record.started_at_us), row.record.route, row.record.backend, usd(row.record.cost), row.why[:80])
        for row in rows
    ]
    print(table(("request", "started", "route", "backend", "cost_usd", "why"), shown))


async def _read(settings: Settings) -> list[SetAside]:
    return _quarantine(settings).read()


async def _retry(engine: AsyncEngine, settings: Settings) -> tuple[int, int]:
    session = open_session(engine)
    try:
        return await retry(session, _quarantine(settings))
    finally:
        await session.close()


@app.command
def unknowns() -> None:
    """Requests whose end is not known, booked at their worst case."""
    rows = [
        (one.id, instant(one.started_at_us), one.team, one.route, one.backend, usd(one.worst))
        for one in run(lambda engine, _: corrections.unknowns(engine))
    ]
    print(table(("request", "started", "team", "route", "backend", "booked_usd"), rows))


@app.command
def resolve(request: str, *, cost: Annotated[str, Parameter(name="--usd")]) -> None:
    """Book what an unknown request really cost, as an adjustment.

    Parameters
    ----------
    request
        Its id, as `tollway ledger unknowns` shows it.
    cost
        A decimal number of US dollars: what the vendor billed.
    """
    wanted = _uuid(request)
    try:
        amount = nanousd(cost, "--usd")
    except ValueError as error:
        fail(str(error))
    delta = run(lambda engine, _: resolving.resolve(engine, wanted, amount, actor=COMMAND_LINE))
    print(f"request {wanted} cost {usd(amount)} USD: adjusted by {usd(delta)}")


@app.command(name="rebuild")
def rebuild_(*, since: str = "", until: str = "") -> None:
    """Make the roll-ups anew from the rows, while gateways run.

    Parameters
    ----------
    since
        A date or an instant, UTC. Without it: from the beginning, or from where rows were pruned.
    until
        The first instant that is left alone. Without it: to now.
    """
    bounds = _bounds(since, until)
    filled = run(lambda engine, _: rebuild.rebuild(engine, *bounds))
    print(f"roll-ups of {filled} quarters of an hour are made anew")


@app.command(name="reprice")
def reprice_(*, since: str, until: str = "", backend: str = "", book: Path | None = None, dry_run: bool = False) -> None:
    """Rate the requests of a period at the prices that the book gives for their time now, and book the differences beside the rows.

    A price that became known late, or was wrong, is set with `tollway prices set … --from`; then this corrects what was billed since.
    The same again books nothing. Requests billed at a price of the settings stay, unless --backend names theirs.

    Parameters
    ----------
    since
        A date or an instant, UTC.
    until
        The first instant that is left alone. Without it: to now.
    backend
        Only what this backend answered; where the settings give it a price, at that one.
    book
        Prices to try out, a TOML file of [[prices]]: vendor, model, input, output, … Nothing is written.
    dry_run
        Show the difference and write nothing.
    """
    first, last = _bounds(since, until)
    tried = None if book is None else _book_of(book)

    async def work(engine: AsyncEngine, chosen: Settings) -> reprice.Found:
        known = build(chosen, {}).backends.get(backend)
        rater = reprice.Rater(
            book=tried or await prices.read_book(engine),
            backend=backend or None,
            settled=None if known is None or tried is not None else known.price,
            whatever=tried is not None,
        )
        until_us = await retention.now_us(engine) if last is None else last
        return await reprice.reprice(engine, rater, first or 0, until_us, book=not dry_run and tried is None)

    _told(run(work), "nothing was written" if dry_run or tried is not None else "the differences are booked")


def _book_of(path: Path) -> Book:
    try:
        return prices.book_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--book {path}: {error}")
    except GatewayError as error:
        fail(f"--book {path}: {error.message}")


def _told(found: reprice.Found, done: str) -> None:
    head = ("team", "model", "requests", "before_usd", "after_usd", "difference_usd", "unpriced_before", "unpriced_after")
    whole = reprice.Line(team="all", model="")
    for one in found.lines:
        for name in ("requests", "before", "after", "unpriced_before", "unpriced_after"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
    rows = [
        (
            one.team,
            one.model,
            one.requests,
            *map(usd, (one.before, one.after, one.after - one.before)),
            one.unpriced_before,
            one.unpriced_after,
        )
        for one in (*found.lines, whole)
    ]
    print(table(head, rows))
    left = f", {found.unknown} of unknown end left as they are" if found.unknown else ""
    print(f"{found.rows} rows, {found.changed} of them cost something else{left}; {done}")


@app.command
def export(*, since: str = "", until: str = "", shape: Annotated[Literal["csv", "jsonl"], Parameter(name="--format")] = "csv") -> None:
    """All rows to standard output, oldest first.

    Parameters
    ----------
    since
        A date or an instant, UTC. Without it: from the beginning.
    until
        The first instant that is not exported. Without it: to now.
    shape
        csv or jsonl (a JSON object a line).
    """
    first, last = _bounds(since, until)

    async def work(engine: AsyncEngine, _: Settings) -> None:
        async for text in retention.export(engine, shape, first or 0, EVER_US if last is None else last):
            sys.stdout.write(text)

    run(work)


@app.command
def prune(*, older_than: str) -> None:
    """Delete old rows for good, in small transactions. Reports and budgets stay as they are.

    Parameters
    ----------
    older_than
        At least 30d; also weeks, 60w.
    """
    said = re.fullmatch(r"([0-9]{1,4})([dw])", older_than)
    if said is None:
        fail(f"--older-than '{older_than[:40]}': write 400d or 60w")
    age_us = int(said[1]) * MICROSECONDS[said[2]]
    if age_us < PRUNE_MIN_US:
        fail("--older-than: at least 30d; younger rows may still stand in a journal, which would bring them back")

    async def work(engine: AsyncEngine, _: Settings) -> int:
        return await retention.prune(engine, await retention.now_us(engine) - age_us)

    print(f"{run(work)} rows are deleted")


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"'{text[:80]}' is no id")


def _bounds(since: str, until: str) -> tuple[int | None, int | None]:
    try:
        first, last = (date_us(text, name) if text else None for name, text in (("--since", since), ("--until", until)))
    except GatewayError as error:
        fail(error.message)
    if first is not None and last is not None and first >= last:
        fail(f"--since: {since} is not before --until {until}")
    return first, last
