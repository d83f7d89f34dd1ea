"""Which requests somebody looks for, and may see: from a query to conditions on ledger rows and roll-ups. Knows no page and no count.

Names become ids here. What is asked of a team that the caller does not see finds nothing, like a team that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, Table, and_, exists, false, literal_column, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.access import Actor
from gateway.db.tables import adjustments, api_keys, teams, usage
from gateway.errors import InvalidRequest
from gateway.money.ledger import BOOKED, REPRICE
from gateway.money.marks import ANSWERED, FAILED_OVER, HEDGED, MISSED, UNPRICED
from gateway.money.reports import OUTCOMES
from gateway.views.query import Query

ONLY = {"failed_over": FAILED_OVER, "hedged": HEDGED, "missed_objective": MISSED, "unpriced": UNPRICED}
FACETS = ("team_id", "outcome", "route", "backend")  # columns whose values are offered with their counts
COLUMNS = {"team": "team_id", "key": "key_id"}  # words of the query that are called otherwise in the tables
ROUGH = ("team", "key", "route", "backend", "model", "outcome", "tag")  # words that roll-ups know too
SEARCHED = ("route", "backend", "model", "tag", "error", "provider_id")
NAMES = (*ROUGH, "only", "cost_min", "cost_max", "ttft_min", "ttft_max", "q", "sort", "after")
ID_CHARACTERS = 36
EVER_US = 1 << 62


class Sight(Struct, frozen=True):
    """What a caller sees: whole teams (None = all of them), and of others the rows of its own keys."""

    teams: frozenset[int] | None
    keys: frozenset[int] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether it sees whole teams only."""
        return not self.keys

    def includes(self, team_id: int, key_id: int) -> bool:
        """Whether it sees what this key of this team asked."""
        return self.teams is None or team_id in self.teams or key_id in self.keys

    def on(self, table: Table) -> list[ColumnElement[bool]]:
        if self.teams is None:
            return []
        seen: list[ColumnElement[bool]] = [table.c.team_id.in_(sorted(self.teams))] if self.teams else []
        if self.keys:
            seen.append(table.c.key_id.in_(sorted(self.keys)))
        return [or_(*seen) if seen else false()]


class Wanted(Struct, frozen=True, kw_only=True):
    """Ids and instants. dims: column -> the values that it may have. marks: bits, of which a row has one. request: one row by its id, in
    whatever stretch of time."""

    sight: Sight
    from_us: int
    until_us: int
    dims: Mapping[str, tuple[object, ...]] = {}
    marks: int = 0
    cost: tuple[int | None, int | None] = (None, None)
    ttft: tuple[int | None, int | None] = (None, None)
    text: str = ""
    request: UUID | None = None

    @property
    def rough(self) -> bool:
        """Whether roll-ups can tell: nothing of single rows is asked."""
        return not (self.marks or self.text or self.request) and self.cost == self.ttft == (None, None)

    @property
    def by_team(self) -> bool:
        """Whether the roll-ups by team can."""
        return self.rough and self.sight.whole and set(self.dims) <= {"team_id", "outcome"}

    @property
    def marked(self) -> bool:
        """Whether only marked rows can match, which have an index of their own."""
        return bool(self.marks) or ("outcome" in self.dims and not set(self.dims["outcome"]) & set(ANSWERED))

    @property
    def teams(self) -> frozenset[int] | None:
        """The teams that rows may be of; None = any."""
        seen = self.sight.teams if self.sight.whole else None
        chosen = self.dims.get("team_id")
        if chosen is None:
            return seen
        asked = frozenset(one for one in chosen if isinstance(one, int))
        return asked if seen is None else asked & seen

    def on(self, table: Table, leave_out: Collection[str] = ()) -> list[ColumnElement[bool]]:
        """Conditions by who, what and how it ended, of ledger rows or roll-ups; the time is not in them."""
        found = self.sight.on(table)
        found += [table.c[name].in_(values) for name, values in self.dims.items() if name not in leave_out]
        if table is usage and "outcome" not in self.dims:
            found.append(usage.c.outcome.not_in(BOOKED))
        return found

    def on_rows(self, leave_out: Collection[str] = ()) -> list[ColumnElement[bool]]:
        """All conditions of ledger rows but the time."""
        row = usage.c
        found = self.on(usage, leave_out)
        if self.request is not None:
            found.append(row.id == self.request)
        if self.marks or (self.marked and "outcome" not in leave_out):
            found.append(marked_rows())
        if self.marks and "marks" not in leave_out:
            found.append(self._marks())
        for column, (least, most) in ((row.cost, self.cost), (row.ttft_ms, self.ttft)):
            if least is not None:
                found.append(column >= least)
            if most is not None:
                found.append(column <= most)
        if self.text:
            found.append(or_(*(row[name].icontains(self.text, autoescape=True) for name in SEARCHED)))
        return found

    def _marks(self) -> ColumnElement[bool]:
        marks = usage.c.marks
        plain = self.marks & ~UNPRICED
        either: list[ColumnElement[bool]] = [marks.bitwise_and(plain) != 0] if plain else []
        if self.marks & UNPRICED:
            either.append(and_(marks.bitwise_and(UNPRICED) != 0, ~repriced()))
        return or_(*either)


def marked_rows() -> ColumnElement[bool]:
    """Word for word the condition of the index, without which a planner does not take it."""
    return literal_column("usage.marks <> 0", type_=usage.c.marks.type).self_group()


def repriced() -> ColumnElement[bool]:
    """A row without a price when it was settled that got one since."""
    return exists(select(adjustments.c.id).where(adjustments.c.usage_id == usage.c.id, adjustments.c.reason == REPRICE))


async def sight(connection: AsyncConnection, actor: Actor) -> Sight:
    """What an actor sees: admins all, a team's admin that team, everybody else what their own keys asked."""
    whole = actor.whole
    if whole is None:
        return Sight(None)
    others = sorted(set(actor.teams) - whole)
    if actor.member_id is None or not others:
        return Sight(whole)
    own = select(api_keys.c.id).where(api_keys.c.member_id == actor.member_id, api_keys.c.team_id.in_(others))
    return Sight(whole, frozenset((await connection.execute(own)).scalars()))


async def wanted(connection: AsyncConnection, query: Query, sees: Sight) -> Wanted:
    """InvalidRequest names a word that cannot be meant."""
    request = request_id(query.q)
    if request is not None:  # whatever else is asked: who pastes an id wants that request
        return Wanted(sight=sees, from_us=0, until_us=EVER_US, request=request)
    dims: dict[str, tuple[object, ...]] = {}
    for name in ROUGH:
        values = query.words.get(name, ())
        if values:
            dims[COLUMNS.get(name, name)] = tuple(values)
    _known("outcome", dims.get("outcome", ()), OUTCOMES)
    only = query.words.get("only", ())
    _known("only", only, ONLY)
    if "team_id" in dims:
        dims["team_id"] = await _ids(connection, select(teams.c.id).where(teams.c.name.in_(dims["team_id"])))
    if "key_id" in dims:
        dims["key_id"] = await _ids(connection, select(api_keys.c.id).where(api_keys.c.public.in_(dims["key_id"])))
    return Wanted(
        sight=sees,
        from_us=query.from_us,
        until_us=query.until_us,
        dims=dims,
        marks=sum(ONLY[name] for name in set(only)),
        cost=(query.money.get("cost_min"), query.money.get("cost_max")),
        ttft=(query.ms.get("ttft_min"), query.ms.get("ttft_max")),
        text=query.q,
    )


def request_id(text: str) -> UUID | None:
    """The id that somebody pasted into the search."""
    try:
        return UUID(text) if len(text) == ID_CHARACTERS else None
    except ValueError:
        return None


async def _ids(connection: AsyncConnection, statement: Select[Any]) -> tuple[object, ...]:
    return tuple((await connection.execute(statement)).scalars())


def _known(name: str, values: Collection[object], allowed: Collection[str]) -> None:
    for value in values:
        if value not in allowed:
            raise InvalidRequest(f"{name}: '{str(value)[:80]}' is none; use {', '.join(allowed)}.", param=name)
