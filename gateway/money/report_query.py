"""Reads sums and latencies of a stretch of time from the coarsest roll-ups that can answer. Knows ids and instants, no name and no zone.

Time is cut where its label changes (a local day, a month); a day or an hour of UTC that lies between two cuts and is settled is read from
the smallest cut that has the names asked for (cuts.py), what is left from quarters of an hour. So a report is exact in every zone, up to
now, and reads few rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct
from sqlalchemy import ARRAY, BigInteger, ColumnElement, FromClause, Select, Table, and_, cast, func, literal, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.rollup_tables import rollups
from gateway.errors import InvalidRequest
from gateway.money.cuts import LATENCIES, SUMS, Cut, Side, smallest
from gateway.money.latencies import add_octave
from gateway.money.ledger import BUCKET_US, DAY_US, ROLLUP_SUMS
from gateway.money.settling import Settled, settled_in

ANSWERED = ("completed", "cached")  # whose latencies are told: those of the others say when somebody gave up
PER_GROUP_MAX = 50  # rows that are read of one group: its outcomes, or the octaves of its latencies
LABELS_MAX = 20_000  # hours, days, … of one report
RANGES_MAX = 32  # of time in one statement
_PIECE = ("number", "start_us", "stop_us")
_QUERY_CANCELED = "57014"


class Piece(Struct, frozen=True):
    """[start_us, stop_us) has one label, given by its number."""

    label: int
    start_us: int
    stop_us: int


class Wanted(Struct, frozen=True, kw_only=True):
    """keys: columns to group by. where: column -> the value it must have, or a set of values of which it must have one. label: of the
    quarter that begins at an instant; it never comes back once it has changed. rows_max: of groups. sums: those of ROLLUP_SUMS that are
    read; the others are told as 0.
    """

    keys: tuple[str, ...]
    since_us: int
    until_us: int
    label: Callable[[int], str]
    where: Mapping[str, Any] = {}
    rows_max: int
    latencies: bool = True
    sums: tuple[str, ...] = ROLLUP_SUMS


class Sums(Struct):
    """What belongs to one group and outcome, "" where requests are not asked for. sums: by the names of ROLLUP_SUMS, in their order."""

    label: str
    group: tuple[Any, ...]
    outcome: str
    sums: Sequence[int]


Bins = dict[tuple[str, tuple[Any, ...]], dict[str, dict[int, int]]]  # (label, group) -> metric -> bin -> requests


async def known(connection: AsyncConnection) -> tuple[int, int]:
    """The time that roll-ups know of, in whole days of UTC; (0, 0) when there are none."""
    ends = [select(end(rollups.c.bucket_us)).scalar_subquery() for end in (func.min, func.max)]  # SQLite looks up one end at a time
    first, last = (await connection.execute(select(*ends))).one()
    return (0, 0) if first is None else (first - first % DAY_US, last - last % DAY_US + DAY_US)


class _Part(Struct, frozen=True):
    """One table, and the rows of it that are read. cut: None = quarters of an hour. by: what they are grouped by. values: added up."""

    table: Table
    cut: Cut | None
    span_us: int
    by: tuple[str, ...]
    values: tuple[str, ...]
    pieces: Sequence[Piece]


class _Read(Struct, frozen=True):
    """Rows of (number of the stretch, columns of `by`, sums of `values`). labels: of the stretches; None = between two pieces."""

    labels: Sequence[str | None]
    by: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


async def read(connection: AsyncConnection, wanted: Wanted) -> tuple[list[Sums], Bins]:
    """The sums by label, group and outcome, and the latencies of answered requests by label and group."""
    settled = await settled_in(connection, wanted.since_us, wanted.until_us)
    found = await _side(connection, wanted, SUMS, settled)
    sums = await asyncio.to_thread(_sums, wanted, found)
    if len({(one.label, one.group) for one in sums}) > wanted.rows_max:
        too_many(wanted.rows_max)
    if not wanted.latencies:
        return sums, {}
    return sums, await asyncio.to_thread(_bins, wanted, await _side(connection, wanted, LATENCIES, settled))


async def _side(connection: AsyncConnection, wanted: Wanted, side: Side, settled: Settled) -> list[_Read]:
    cut = smallest({*wanted.keys, *wanted.where}, hours=side is LATENCIES)
    spans = () if cut is None else cut.spans_us
    labels, pieces = await asyncio.to_thread(cover, wanted.since_us, wanted.until_us, wanted.label, [*spans, BUCKET_US], settled.has)
    more = () if "outcome" in wanted.keys or "requests" not in wanted.sums else ("outcome",)
    by = (*wanted.keys, *(side.more or more))
    found = []
    for span_us, there in pieces.items():
        if there:
            fine = span_us == BUCKET_US
            part = _Part(
                table=side.fine if fine else side.coarse,
                cut=None if fine else cut,
                span_us=span_us,
                by=by,
                values=side.values if side is LATENCIES else wanted.sums,
                pieces=there,
            )
            numbers, rows = await _rows(connection, wanted, part)
            found.append(_Read([None if number is None else labels[number] for number in numbers], by, rows))
    return found


def _sums(wanted: Wanted, found: Sequence[_Read]) -> list[Sums]:
    width = len(wanted.keys)
    whole = wanted.sums == ROLLUP_SUMS
    places = [ROLLUP_SUMS.index(name) for name in wanted.sums]
    sums: list[Sums] = []
    for part in found:
        outcome = 1 + part.by.index("outcome") if "outcome" in part.by else None
        first = 1 + len(part.by)
        for row in part.rows:
            label, values = part.labels[row[0]], row[first:]
            if label is None:
                continue
            if not whole:
                given, values = values, [0] * len(ROLLUP_SUMS)
                for place, value in zip(places, given, strict=True):
                    values[place] = value
            sums.append(Sums(label, tuple(row[1 : 1 + width]), "" if outcome is None else row[outcome], values))
    return sums


def _bins(wanted: Wanted, found: Sequence[_Read]) -> Bins:
    width = len(wanted.keys)
    bins: Bins = {}
    for part in found:
        for row in part.rows:
            label = part.labels[row[0]]
            if label is None:
                continue
            metrics = bins.setdefault((label, tuple(row[1 : 1 + width])), {})
            add_octave(metrics.setdefault(row[1 + width], {}), row[2 + width], row[3 + width :])
    return bins


async def _rows(connection: AsyncConnection, wanted: Wanted, part: _Part) -> tuple[list[int | None], Sequence[Sequence[Any]]]:
    """(numbers of the labels of the stretches, the rows)"""
    if connection.dialect.name == "postgresql":
        edges, numbers = _edges(part.pieces)
        at = part.table.c.bucket_us
        number = func.width_bucket(at, cast(literal(edges, ARRAY(BigInteger)), ARRAY(BigInteger))) - 1
        statement = _statement(wanted, part, number, part.table).where(_inside(at, part))
    else:
        source, number, start, stop = _pieces(part.pieces)
        at, numbers = part.table.c.bucket_us, [piece.label for piece in part.pieces]
        statement = _statement(wanted, part, number, source.join(part.table, and_(at >= start, at < stop)))
    try:
        rows: Sequence[Sequence[Any]] = (await connection.execute(statement)).all()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _QUERY_CANCELED:
            raise InvalidRequest("The database gave up on this report: shorten the time or group by less.", param="since") from error
        raise
    if len(rows) > wanted.rows_max * PER_GROUP_MAX:
        too_many(wanted.rows_max)
    return numbers, rows


def too_many(rows_max: int) -> NoReturn:
    raise InvalidRequest(f"This report has more than {rows_max} rows: group by less or shorten the time.", param="by")


def _statement(wanted: Wanted, part: _Part, number: ColumnElement[int], source: FromClause) -> Select[Any]:
    table = part.table.c
    conditions: list[ColumnElement[bool]] = [
        table[name].in_(sorted(value)) if isinstance(value, frozenset) else table[name] == value for name, value in wanted.where.items()
    ]
    if part.cut is not None:
        conditions += [table.cut == part.cut.name, table.span_us == part.span_us]
    if "metric" in part.by:
        conditions.append(table.outcome.in_(ANSWERED))
    stretch = number.label("stretch")
    groups: list[ColumnElement[Any]] = [table[name] for name in part.by]
    sums = [cast(func.sum(table[name]), BigInteger) for name in part.values]  # else Postgres answers with decimals, which are slow
    grouped = select(stretch, *groups, *sums).select_from(source).where(*conditions).group_by(stretch, *groups)
    return grouped.limit(wanted.rows_max * PER_GROUP_MAX + 1)


def _edges(pieces: Sequence[Piece]) -> tuple[list[int], list[int | None]]:
    """For Postgres, which looks a row's stretch up in a sorted list, but would compare every row with every piece in a join: the instants
    where a stretch begins, and the number of each one's label; None = no piece."""
    edges: list[int] = []
    numbers: list[int | None] = []
    for piece in pieces:
        if edges and edges[-1] == piece.start_us:
            numbers[-1] = piece.label
        else:
            edges.append(piece.start_us)
            numbers.append(piece.label)
        edges.append(piece.stop_us)
        numbers.append(None)
    return edges, numbers


def _inside(at: ColumnElement[int], part: _Part) -> ColumnElement[bool]:
    """Which rows are read on Postgres: ranges of time where there are few. Where there are many gaps, all between the first and the last
    piece, unless the gaps are most of it (a zone's midnights at the half hour): then each span that a piece is made of."""
    joined: list[tuple[int, int]] = []
    for piece in part.pieces:
        if joined and joined[-1][1] == piece.start_us:
            joined[-1] = joined[-1][0], piece.stop_us
        else:
            joined.append((piece.start_us, piece.stop_us))
    if len(joined) > RANGES_MAX:
        first_us, last_us = joined[0][0], joined[-1][1]
        if 2 * sum(stop_us - start_us for start_us, stop_us in joined) < last_us - first_us:
            spans = [at_us for start_us, stop_us in joined for at_us in range(start_us, stop_us, part.span_us)]
            return at == func.any(cast(literal(spans, ARRAY(BigInteger)), ARRAY(BigInteger)))
        joined = [(first_us, last_us)]
    return or_(*(and_(at >= start_us, at < stop_us) for start_us, stop_us in joined))


def _pieces(pieces: Sequence[Piece]) -> tuple[FromClause, ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
    """For SQLite, which looks up each piece in the key's tree, something to join with: (source, number of the piece, start, stop)."""
    text = "[" + ",".join(f"[{place},{one.start_us},{one.stop_us}]" for place, one in enumerate(pieces)) + "]"
    each = func.json_each(text).table_valued("value", name="each_piece")
    columns = [func.json_extract(each.c.value, f"$[{place}]").label(name) for place, name in enumerate(_PIECE)]
    listed = select(*columns).cte("piece").prefix_with("MATERIALIZED")  # else the text is read once more for every row that is joined
    return listed, *(listed.c[name] for name in _PIECE)  # type: ignore[return-value]


def cover(
    since_us: int,
    until_us: int,
    label: Callable[[int], str],
    spans_us: Sequence[int],
    there: Callable[[int, int], bool] = lambda span_us, at_us: True,
) -> tuple[list[str], dict[int, list[Piece]]]:
    """Cut [since_us, until_us), whole quarters of an hour, into pieces of one label each: (the labels, the pieces of each span, in order).

    Every piece of a span is made of whole spans; the coarsest is used wherever it fits and is there: `there` says so of a span and where
    it begins. The last span is the grain of the edges, and always there.
    """
    labels: list[str] = []
    pieces: dict[int, list[Piece]] = {span_us: [] for span_us in spans_us}
    for number, (name, start_us, stop_us) in enumerate(_stretches(since_us, until_us, label)):
        labels.append(name)
        _cut(Piece(number, start_us, stop_us), spans_us, there, pieces)
    return labels, pieces


def _stretches(since_us: int, until_us: int, label: Callable[[int], str]) -> list[tuple[str, int, int]]:
    """(label, start, stop) of each stretch, in order. A label never comes back, so what lies between two quarters of one label has it too:
    the edges are looked for by halves."""
    found: list[tuple[str, int, int]] = []
    ahead = [(since_us, until_us, label(since_us), label(until_us - BUCKET_US))] if since_us < until_us else []
    while ahead:
        start_us, stop_us, first, last = ahead.pop()
        if first != last:
            middle_us = start_us + (stop_us - start_us) // (2 * BUCKET_US) * BUCKET_US
            ahead += [(middle_us, stop_us, label(middle_us), last), (start_us, middle_us, first, label(middle_us - BUCKET_US))]
        elif found and found[-1][0] == first:
            found[-1] = first, found[-1][1], stop_us
        elif len(found) == LABELS_MAX:
            raise InvalidRequest(f"This report has more than {LABELS_MAX} stretches of time: shorten it.", param="since")
        else:
            found.append((first, start_us, stop_us))
    return found


def _cut(whole: Piece, spans_us: Sequence[int], there: Callable[[int, int], bool], pieces: dict[int, list[Piece]]) -> None:
    """Add a stretch to the pieces of the spans that it is made of."""
    if whole.start_us >= whole.stop_us:
        return
    span_us, finer = spans_us[0], spans_us[1:]
    if not finer:
        _add(pieces[span_us], whole)
        return
    left_us = whole.start_us
    for at_us in range(whole.start_us + -whole.start_us % span_us, whole.stop_us - whole.stop_us % span_us, span_us):
        if there(span_us, at_us):
            _cut(Piece(whole.label, left_us, at_us), finer, there, pieces)
            left_us = at_us + span_us
            _add(pieces[span_us], Piece(whole.label, at_us, left_us))
    _cut(Piece(whole.label, left_us, whole.stop_us), finer, there, pieces)


def _add(pieces: list[Piece], more: Piece) -> None:
    if pieces and pieces[-1].label == more.label and pieces[-1].stop_us == more.start_us:
        more = Piece(more.label, pieces.pop().start_us, more.stop_us)
    pieces.append(more)
