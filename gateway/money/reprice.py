# ruff: noqa: S608  (only names and words of our own are put into statements; values are always bound)
"""Ledger rows of a period at other prices: what they would have cost, and the difference booked beside them, never an edit.

An attempt's figure is its cost and what was booked to it before, so that the same run twice books nothing the second time. A page of
rows is one transaction: it may be stopped anywhere and run again. Knows no command line and no file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.catalog import Price
from gateway.db.engine import reading
from gateway.db.session import Away, Dialect, Do, Insert, Many, Session, Transaction, open_session
from gateway.db.tables import teams
from gateway.money import ledger
from gateway.money.book import Book
from gateway.money.ledger import REPRICE, now_priced, reprice_id
from gateway.money.presence import late, mark
from gateway.money.pricing import cost
from gateway.money.rebuild import attempt_of, record_of
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.money.sync import write_rollup

PAGE = 500  # rows of one transaction
TRIES = 5  # of a page whose transaction the database refused
TRY_AGAIN_S = 0.2
FROM_A_BOOK = ("api:", "genai-prices:")  # how the ids of a book's prices begin; an attempt without a price has none
CONFIG = "config:"  # of prices in the settings

_USAGE = ", ".join(f"u.{name}" for name in ledger.USAGE_COLUMNS)
_ATTEMPT = ", ".join(ledger.ATTEMPT_COLUMNS)


class Rater(Struct, frozen=True, kw_only=True):
    """Which price an attempt is rated at. The book alone: attempts that were billed from a book, or not at all for want of a price.

    backend: only attempts of this one, with `settled` as its price where the settings give it one. whatever: a book that is tried out
    rates every attempt whose model it names, however that was billed.
    """

    book: Book
    backend: str | None = None
    settled: Price | None = None
    whatever: bool = False

    def price(self, end: AttemptEnd, at_us: int) -> Price | None:
        """None = leave the attempt as it is."""
        if self.backend is not None and end.backend != self.backend:
            return None
        ours = FROM_A_BOOK if self.backend is None and not self.whatever else (*FROM_A_BOOK, CONFIG)
        if end.price_id and not end.price_id.startswith(ours):  # of owned hardware: its time is paid for, not its tokens
            return None
        return self.settled or self.book.at(end.vendor, end.model, at_us)


class Line(Struct, kw_only=True):
    """Requests of one team to one model. Money is nano-USD; unpriced: requests whose cost is not known."""

    team: str
    model: str
    requests: int = 0
    before: int = 0
    after: int = 0
    unpriced_before: int = 0
    unpriced_after: int = 0


class Found(Struct, kw_only=True):
    """rows: looked at. changed: whose cost differs. unknown: left, because what they used is not known."""

    lines: list[Line]
    rows: int = 0
    changed: int = 0
    unknown: int = 0


class _Page(Struct, frozen=True):
    """after: where the next page begins, None at the end."""

    rows: list[_Rated]
    after: tuple[int, UUID] | None


class _Rated(Struct, frozen=True, kw_only=True):
    """One row. before: what it is booked at now, None = unpriced. deltas: (attempt, id of the adjustment, nano-USD)."""

    record: UsageRecord
    charges: list[int]
    before: int | None
    after: int | None
    deltas: list[tuple[int, UUID, int]]


async def reprice(engine: AsyncEngine, rater: Rater, since_us: int, until_us: int, *, book: bool) -> Found:
    """Rate the requests that began in [since_us, until_us) anew. book: write the differences; else nothing is written."""
    session = open_session(engine)
    lines: dict[tuple[int, str], Line] = {}
    found = Found(lines=[])
    after: tuple[int, UUID] | None = (since_us - 1, UUID(int=(1 << 128) - 1))
    try:
        while after is not None:
            page = await _run(session, rater, after, until_us, book)
            for one in page.rows:
                _tally(found, lines, one)
            after = page.after
    finally:
        await session.close()
    async with reading(engine).connect() as connection:
        names = {row.id: row.name for row in await connection.execute(select(teams.c.id, teams.c.name))}
    for (team_id, _), line in lines.items():
        line.team = names.get(team_id, str(team_id))
    found.lines = sorted(lines.values(), key=lambda line: (line.team, line.model))
    return found


async def _run(session: Session, rater: Rater, after: tuple[int, UUID], until_us: int, book: bool) -> _Page:
    """One page. A transaction in doubt may be run again: what it booked is seen then."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return await session.run(_page(session.dialect, rater, after, until_us, book), reads=not book)
        except Away:
            if not left:
                raise
            await asyncio.sleep(TRY_AGAIN_S)
    raise AssertionError


def _page(sql: Dialect, rater: Rater, after: tuple[int, UUID], until_us: int, book: bool) -> Transaction[_Page]:
    """In the lock order of every transaction: usage, roll-ups, windows by id."""
    lock = f" {sql.for_update} u" if book and sql.for_update else ""
    rows = yield Do(
        f"SELECT {_USAGE} FROM usage u WHERE u.started_at_us >= $1 AND u.started_at_us < $3 AND (u.started_at_us > $1 OR u.id > $2)"
        f" ORDER BY u.started_at_us, u.id LIMIT {PAGE}{lock}",
        (after[0], sql.uid(after[1]), until_us),
    )
    if not rows:
        return _Page([], None)
    named = [dict(zip(ledger.USAGE_COLUMNS, row, strict=True)) for row in rows]
    for row in named:
        row["id"] = sql.uuid(row["id"])
    ids = [row["id"] for row in named]
    ends = yield from _attempts(sql, ids)
    where, args = sql.those("usage_id", 1, ids)
    adjusting = yield Do(f"SELECT usage_id, id, delta FROM adjustments WHERE {where}", args)
    booked: dict[UUID, dict[UUID, int]] = {}
    for usage_id, adjustment, delta in adjusting:
        booked.setdefault(sql.uuid(usage_id), {})[sql.uuid(adjustment)] = int(delta)
    rated = [_rate(rater, row, tuple(ends.get(row["id"], ())), booked.get(row["id"], {})) for row in named]
    if book:
        yield from _book(sql, [one for one in rated if one.deltas])
    last = named[-1]
    return _Page(rated, (last["started_at_us"], last["id"]) if len(named) == PAGE else None)


def _attempts(sql: Dialect, ids: Sequence[UUID]) -> Transaction[dict[UUID, list[AttemptEnd]]]:
    where, args = sql.those("request_id", 1, ids)
    rows = yield Do(f"SELECT {_ATTEMPT} FROM attempts WHERE {where} ORDER BY request_id, n", args)
    ends: dict[UUID, list[AttemptEnd]] = {}
    for row in rows:
        named = dict(zip(ledger.ATTEMPT_COLUMNS, row, strict=True))
        named["request_id"] = sql.uuid(named["request_id"])
        ends.setdefault(named["request_id"], []).append(attempt_of(named))
    return ends


def _rate(rater: Rater, row: Mapping[str, Any], ends: tuple[AttemptEnd, ...], booked: Mapping[UUID, int]) -> _Rated:
    record = record_of(row, ends)
    deltas = [] if record.outcome == "unknown" else _deltas(rater, record, booked)
    before = _figure(record, booked)
    after = _figure(record, {**booked, **{name: delta for _, name, delta in deltas}}) if deltas else before
    return _Rated(record=record, charges=json.loads(row["charges"]), before=before, after=after, deltas=deltas)


def _figure(record: UsageRecord, booked: Mapping[UUID, int]) -> int | None:
    """What a row comes to with all that was booked beside it."""
    if record.cost is None:
        return sum(booked.values()) if now_priced(record, booked) else None
    return record.cost + sum(booked.values())


def _deltas(rater: Rater, record: UsageRecord, booked: Mapping[UUID, int]) -> list[tuple[int, UUID, int]]:
    """What is to be booked to each attempt. Nothing of a row without a figure was booked: it gets all of it, or nothing while one of its
    attempts has no price."""
    deltas: list[tuple[int, UUID, int]] = []
    for end in record.attempts:
        times, standing = 0, None if record.cost is None else end.cost
        while (earlier := reprice_id(record.id, end.n, times)) in booked:
            standing = (standing or 0) + booked[earlier]
            times += 1
        price = None if end.outcome == "unknown" else rater.price(end, record.started_at_us)
        if price is None:
            wanted = end.cost if standing is None else standing
        elif end.cost == 0 and not (end.usage.prompt_tokens or end.usage.completion_tokens):
            wanted = standing or 0  # it was refused or never sent, so that no fee is due either
        else:
            wanted = cost(price, end.usage, record.kind)
        if wanted is None:
            return []
        if wanted != standing:
            deltas.append((end.n, earlier, wanted - (standing or 0)))
    return deltas


def _book(sql: Dialect, rated: Sequence[_Rated]) -> Transaction[None]:
    if not rated:
        return
    now = int((yield Do(f"SELECT {sql.clock}"))[0][0])
    yield Insert(
        "adjustments",
        ("id", "usage_id", "delta", "reason", "created_at_us"),
        ("uuid", "uuid", "bigint", "text", "bigint"),
        [(sql.uid(name), sql.uid(one.record.id), delta, REPRICE, now) for one in rated for _, name, delta in one.deltas],
        "",
    )
    rollup = ledger.Rollup()
    windows: dict[int, int] = {}
    for one in rated:
        delta = sum(delta for _, _, delta in one.deltas)
        rollup.adjust(one.record, delta, priced=one.before is None and one.after is not None)
        for window in one.charges:
            windows[window] = windows.get(window, 0) + delta
    yield from write_rollup(sql, rollup, now)
    yield from mark(late((one.record for one in rated), now))
    yield Many("UPDATE budget_windows SET spent = spent + $2 WHERE id = $1", sorted(windows.items()))


def _tally(found: Found, lines: dict[tuple[int, str], Line], one: _Rated) -> None:
    record = one.record
    found.rows += 1
    found.changed += bool(one.deltas)
    found.unknown += record.outcome == "unknown"
    if not record.attempts:
        return
    line = lines.setdefault((record.team_id, record.model), Line(team="", model=record.model))
    line.requests += 1
    line.before += one.before or 0
    line.after += one.after or 0
    line.unpriced_before += one.before is None
    line.unpriced_after += one.after is None
