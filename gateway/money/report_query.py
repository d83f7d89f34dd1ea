"""Reads sums and latencies of a stretch of time from the coarsest roll-ups that can answer. Knows ids and instants, no name and no zone.

Time is cut where its label changes (a local day, a month); a day or an hour of UTC that lies between two cuts is read as one row, what
is left at the edges from quarters of an hour. So a report is exact in every zone and reads few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct
from sqlalchemy import ARRAY, BigInteger, ColumnElement, FromClause, Select, Table, and_, cast, func, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.tables import latency_rollups, rollups, team_latency_rollups, team_rollups
from gateway.errors import InvalidRequest
from gateway.money.latencies import COUNTS, add_octave
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US, ROLLUP_KEYS, ROLLUP_SUMS, TEAM_KEYS

ANSWERED = ("completed", "cached")  # whose latencies are told: those of the others say when somebody gave up
PER_GROUP_MAX = 50  # rows that are read of one group: its outcomes, or the octaves of its latencies
LABELS_MAX = 20_000  # hours, days, … of one report
_PIECE = ("label", "start_us", "stop_us")
_QUERY_CANCELED = "57014"


class Layer(Struct, frozen=True):
    """Roll-ups of one span of time. keys: what they can be grouped and filtered by."""

    span_us: int
    keys: frozenset[str]
    sums: Table
    latencies: Table


LAYERS = (  # coarsest first
    Layer(DAY_US, frozenset(TEAM_KEYS[2:]), team_rollups, team_latency_rollups),
    Layer(HOUR_US, frozenset(TEAM_KEYS[2:]), team_rollups, team_latency_rollups),
    Layer(BUCKET_US, frozenset(ROLLUP_KEYS[1:]), rollups, latency_rollups),
)


class Piece(Struct, frozen=True):
    """[start_us, stop_us) has one label, given by its number."""

    label: int
    start_us: int
    stop_us: int


class Wanted(Struct, frozen=True, kw_only=True):
    """keys: columns to group by. where: column -> the value it must have, or a set of values of which it must have one. label: of the
    quarter that begins at an instant; it never comes back once it has changed. rows_max: of groups."""

    keys: tuple[str, ...]
    since_us: int
    until_us: int
    label: Callable[[int], str]
    where: Mapping[str, Any] = {}
    rows_max: int
    latencies: bool = True


class Sums(Struct):
    """What belongs to one group and outcome. sums: by the names of ROLLUP_SUMS, in their order."""

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
    """One table of one layer, what to group its rows by, which columns to add up, and of when."""

    span_us: int
    table: Table
    by: tuple[str, ...]
    values: tuple[str, ...]
    pieces: Sequence[Piece]


async def read(connection: AsyncConnection, wanted: Wanted) -> tuple[list[Sums], Bins]:
    """The sums by label, group and outcome, and the latencies of answered requests by label and group."""
    needed = {*wanted.keys, *wanted.where}
    layers = [layer for layer in LAYERS if needed <= layer.keys]
    labels, pieces = cover(wanted.since_us, wanted.until_us, wanted.label, [layer.span_us for layer in layers])
    sums: list[Sums] = []
    bins: Bins = {}
    width = len(wanted.keys)
    of_sums = (*wanted.keys, *(() if "outcome" in wanted.keys else ("outcome",)))
    of_latencies = (*wanted.keys, "metric", "octave")
    for layer in layers:
        there = pieces[layer.span_us]
        if not there:
            continue
        for row in await _rows(connection, wanted, _Part(layer.span_us, layer.sums, of_sums, ROLLUP_SUMS, there)):
            outcome, values = row[1 + of_sums.index("outcome")], row[1 + len(of_sums) :]
            sums.append(Sums(labels[row[0]], tuple(row[1 : 1 + width]), outcome, list(map(int, values))))
        if len({(one.label, one.group) for one in sums}) > wanted.rows_max:
            too_many(wanted.rows_max)
        if wanted.latencies:
            for row in await _rows(connection, wanted, _Part(layer.span_us, layer.latencies, of_latencies, COUNTS, there)):
                metrics = bins.setdefault((labels[row[0]], tuple(row[1 : 1 + width])), {})
                add_octave(metrics.setdefault(row[1 + width], {}), row[2 + width], map(int, row[3 + width :]))
    return sums, bins


async def _rows(connection: AsyncConnection, wanted: Wanted, part: _Part) -> Sequence[Sequence[Any]]:
    """(number of the label, columns of `by`, sums of `values`)"""
    try:
        rows: Sequence[Sequence[Any]] = (await connection.execute(_statement(connection.dialect.name, wanted, part))).all()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _QUERY_CANCELED:
            raise InvalidRequest("The database gave up on this report: shorten the time or group by less.", param="since") from error
        raise
    if len(rows) > wanted.rows_max * PER_GROUP_MAX:
        too_many(wanted.rows_max)
    return rows


def too_many(rows_max: int) -> NoReturn:
    raise InvalidRequest(f"This report has more than {rows_max} rows: group by less or shorten the time.", param="by")


def _statement(dialect: str, wanted: Wanted, part: _Part) -> Select[Any]:
    table = part.table.c
    source, number, start, stop = _pieces(dialect, part.pieces)
    conditions: list[ColumnElement[bool]] = []
    if dialect == "postgresql":  # the whole stretch once more, as plain numbers: what a planner needs to know how few rows these are
        conditions += [table.bucket_us >= part.pieces[0].start_us, table.bucket_us < part.pieces[-1].stop_us]
    conditions += [
        table[name].in_(sorted(value)) if isinstance(value, frozenset) else table[name] == value for name, value in wanted.where.items()
    ]
    if "span_us" in table:
        conditions.append(table.span_us == part.span_us)
    if "metric" in part.by:
        conditions.append(table.outcome.in_(ANSWERED))
    groups: list[ColumnElement[Any]] = [number, *(table[name] for name in part.by)]
    joined = source.join(part.table, and_(table.bucket_us >= start, table.bucket_us < stop))
    sums = [func.sum(table[name]) for name in part.values]
    return select(*groups, *sums).select_from(joined).where(*conditions).group_by(*groups).limit(wanted.rows_max * PER_GROUP_MAX + 1)


def _pieces(dialect: str, pieces: Sequence[Piece]) -> tuple[FromClause, ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
    """The pieces as something to join with: (source, label, start, stop)."""
    if dialect == "postgresql":
        lists = ([one.label for one in pieces], [one.start_us for one in pieces], [one.stop_us for one in pieces])
        source = func.unnest(*(cast(literal(values, ARRAY(BigInteger)), ARRAY(BigInteger)) for values in lists))
        piece = source.table_valued(*_PIECE, name="piece").render_derived()
        return piece, *(piece.c[name] for name in _PIECE)  # type: ignore[return-value]
    text = "[" + ",".join(f"[{one.label},{one.start_us},{one.stop_us}]" for one in pieces) + "]"
    each = func.json_each(text).table_valued("value", name="each_piece")
    columns = [func.json_extract(each.c.value, f"$[{place}]").label(name) for place, name in enumerate(_PIECE)]
    listed = select(*columns).cte("piece").prefix_with("MATERIALIZED")  # else the text is read once more for every row that is joined
    return listed, *(listed.c[name] for name in _PIECE)  # type: ignore[return-value]


def cover(since_us: int, until_us: int, label: Callable[[int], str], spans_us: Sequence[int]) -> tuple[list[str], dict[int, list[Piece]]]:
    """Cut [since_us, until_us) into pieces of one label each: (the labels, the pieces of each span, in order).

    Every piece of a span is made of whole spans; the coarsest is used wherever it fits. The last span is the grain of the edges.
    """
    cover = _Cover(label, spans_us)
    cover.cut(since_us, until_us, spans_us)
    return cover.labels, cover.pieces


class _Cover:
    def __init__(self, label: Callable[[int], str], spans_us: Sequence[int]) -> None:
        self.labels: list[str] = []
        self.pieces: dict[int, list[Piece]] = {span_us: [] for span_us in spans_us}
        self._label = label

    def cut(self, start_us: int, stop_us: int, spans: Sequence[int]) -> None:
        if start_us >= stop_us:
            return
        span_us, finer = spans[0], spans[1:]
        first, last = start_us + -start_us % span_us, stop_us - stop_us % span_us
        if first >= last:
            self.cut(start_us, stop_us, finer)
            return
        self.cut(start_us, first, finer)
        for at_us in range(first, last, span_us):
            name = self._label(at_us)
            if not finer or self._label(at_us + span_us - BUCKET_US) == name:
                self._add(span_us, at_us, at_us + span_us, name)
            else:
                self.cut(at_us, at_us + span_us, finer)
        self.cut(last, stop_us, finer)

    def _add(self, span_us: int, start_us: int, stop_us: int, name: str) -> None:
        if not self.labels or self.labels[-1] != name:
            self.labels.append(name)
            if len(self.labels) > LABELS_MAX:
                raise InvalidRequest(f"This report has more than {LABELS_MAX} stretches of time: shorten it.", param="since")
        number, there = len(self.labels) - 1, self.pieces[span_us]
        if there and there[-1].label == number and there[-1].stop_us == start_us:
            there[-1] = Piece(number, there[-1].start_us, stop_us)
        else:
            there.append(Piece(number, start_us, stop_us))
