"""Ways for a team to spend less: its newest choices of a week computed again as if something had been otherwise, and what that comes to a
month. Reads a bounded sample; the share that a sample would have saved is taken of what the week really cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import snapshot
from gateway.db.tables import attempts, decisions, usage
from gateway.money.ledger import BUCKET_US, DAY_US
from gateway.money.marks import HEDGED
from gateway.routing.decision import POLICY, Decision, decode
from gateway.routing.filters import QUALITY
from gateway.routing.what_if import ROOM, Effect, Way, WhatIf
from gateway.views.series import Part, Series, Steps, series

WEEK_US, MONTH_DAYS = 7 * DAY_US, 30
RECORDS_MIN = 1000  # fewer say too little
RECORDS_MAX = 2000
ROWS_MAX = 3000  # of the ledger that are looked through for those that were sent
AT_ONCE = 100  # records of one stretch of computing
MOVED_MIN = 10  # requests of the sample that a way would have sent elsewhere
SHOWN = 5
KEPT_S, KEPT_TEAMS = 600.0, 200
NOT_SENT = ("cached", "refused")
HEDGES = "hedges"
LOST = "lost_race"  # remark on an attempt that another one was faster than


class Saving(Struct, frozen=True, kw_only=True):
    """kind: of what_if.Way, or `hedges`. month: nano-USD less in MONTH_DAYS days. share: of the route's choices that would have gone
    elsewhere, most of them to `there`; of hedges, of all. goal_ms: the objective that would bring it, None where requests had several;
    percent: of what it is now. gain: by how much likelier a strong model is right on those, 0 to 1.
    """

    kind: str
    month: int
    share: float
    route: str = ""
    there: str = ""
    goal_ms: float | None = None
    percent: int = 100
    gain: float = 0.0


class Ways(Struct, frozen=True):
    """records: choices that were computed again, the newest of `sent` that the week had."""

    savings: tuple[Saving, ...]
    records: int
    sent: int


class Finder:
    """One per worker: computes for one team at a time, and keeps what it found for KEPT_S."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._alone = asyncio.Lock()
        self._kept: dict[int, tuple[int, Ways | None]] = {}

    async def of(self, team_id: int, now_us: int) -> Ways | None:
        """None of a team with fewer than RECORDS_MIN records."""
        async with self._alone:
            kept = self._kept.get(team_id)
            if kept is None or not 0 <= now_us - kept[0] < KEPT_S * 1e6:
                while len(self._kept) >= KEPT_TEAMS:
                    self._kept.pop(next(iter(self._kept)))
                kept = self._kept[team_id] = (now_us, await ways(self._engine, team_id, now_us))
            return kept[1]


class _Sample(Struct):
    """records: as they are stored. lost: nano-USD of attempts that a hedge had answered before. hedged, sent: requests of the rows read."""

    records: Sequence[bytes]
    week: Series
    lost: int
    hedged: int
    sent: int


async def ways(engine: AsyncEngine, team_id: int, now_us: int) -> Ways | None:
    """What would have cost the team less; None where too few choices are on record."""
    async with snapshot(engine) as connection:
        sample = await _sample(connection, team_id, now_us)
    if len(sample.records) < RECORDS_MIN:
        return None
    found = WhatIf()
    for start in range(0, len(sample.records), AT_ONCE):  # in pieces, so that the loop beside it is never long without the interpreter
        await asyncio.to_thread(_add, found, sample.records[start : start + AT_ONCE])
    if found.seen < RECORDS_MIN:
        return None
    savings = [*_of_choices(found, sample.week), *_of_hedges(sample)]
    savings.sort(key=lambda one: -one.month)
    return Ways(tuple(savings[:SHOWN]), found.seen, _sent(sample.week.total))


async def _sample(connection: AsyncConnection, team_id: int, now_us: int) -> _Sample:
    until_us = now_us + -now_us % BUCKET_US
    since_us = until_us - WEEK_US
    newest = (
        select(usage.c.id, usage.c.outcome, usage.c.marks)
        .where(usage.c.team_id == team_id, usage.c.started_at_us >= since_us)
        .order_by(usage.c.started_at_us.desc())
        .limit(ROWS_MAX)
    )
    rows = [row for row in await connection.execute(newest) if row.outcome not in NOT_SENT][:RECORDS_MAX]
    records = await _records(connection, [row.id for row in rows]) if len(rows) >= RECORDS_MIN else []
    hedged = [row.id for row in rows if row.marks & HEDGED]
    lost = select(func.coalesce(func.sum(attempts.c.cost), 0)).where(attempts.c.request_id.in_(hedged), attempts.c.error == LOST)
    return _Sample(
        records=records,
        week=await series(
            connection, ("route",), {"team_id": team_id}, Steps(WEEK_US, (since_us,), until_us, "UTC"), sums=("requests", "cost")
        ),
        lost=int((await connection.execute(lost)).scalar_one()) if hedged else 0,
        hedged=len(hedged),
        sent=len(rows),
    )


async def _records(connection: AsyncConnection, ids: Sequence[UUID]) -> Sequence[bytes]:
    return list((await connection.execute(select(decisions.c.record).where(decisions.c.request_id.in_(ids)))).scalars())


def _add(found: WhatIf, records: Sequence[bytes]) -> None:
    found.add(decision for record in records if (decision := _decoded(record)) is not None)


def _decoded(record: bytes) -> Decision | None:
    """None of a record of another version, whose choice would be computed otherwise."""
    try:
        decision = decode(record)
    except msgspec.MsgspecError:
        return None
    return decision if decision.policy == POLICY else None


def _of_choices(found: WhatIf, week: Series) -> list[Saving]:
    told: list[Saving] = []
    room: dict[str, list[tuple[Way, Effect]]] = {}
    for way, effect in found.best().items():
        if effect.requests < MOVED_MIN:
            continue
        if way.kind == ROOM:
            room.setdefault(way.backend, []).append((way, effect))
            continue
        base = found.routes[way.route]
        goal = next(iter(effect.goals)) * way.percent / 100 if len(effect.goals) == 1 else None
        told.append(
            Saving(
                kind=way.kind,
                month=_month(effect.saved, base.cost, week, way.route),
                share=effect.requests / base.requests,
                route=way.route,
                there=effect.moved.most_common(1)[0][0],
                goal_ms=goal,
                percent=way.percent,
                gain=effect.gain / effect.requests / 1e6 if way.kind == QUALITY else 0.0,
            )
        )
    for backend, parts in room.items():  # of all routes: it is the same room
        month = sum(_month(effect.saved, found.routes[way.route].cost, week, way.route) for way, effect in parts)
        requests = sum(found.routes[way.route].requests for way, _ in parts)
        told.append(Saving(kind=ROOM, month=month, share=sum(effect.requests for _, effect in parts) / requests, there=backend))
    return [one for one in told if one.month > 0]


def _month(saved: int, predicted: int, week: Series, route: str) -> int:
    """The share of what was predicted, of what the route really cost in the week, for a month. nano-USD."""
    spent = week.group((route,)).of("cost") if (route,) in week.by else 0
    return saved * spent * MONTH_DAYS // (predicted * 7) if predicted > 0 else 0


def _of_hedges(sample: _Sample) -> list[Saving]:
    """What was paid for answers that came second, by their own rows of the ledger."""
    if sample.hedged < MOVED_MIN or sample.lost <= 0:
        return []
    month = sample.lost * _sent(sample.week.total) * MONTH_DAYS // (sample.sent * 7)
    return [Saving(kind=HEDGES, month=month, share=sample.hedged / sample.sent)]


def _sent(part: Part) -> int:
    outcomes: Mapping[str, Any] = part.outcomes
    return sum(number for outcome, number in outcomes.items() if outcome not in NOT_SENT)
