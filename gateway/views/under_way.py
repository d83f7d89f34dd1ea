"""A request that has no ledger row so far, for somebody who may see it: it runs here, or a journal of this machine says that it ran.

Of one that runs in the worker that answers everything is known; of others' what they wrote down: whom they asked, and how that ended.
Knows no HTTP and no HTML.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access import Actor
from gateway.db.engine import reading
from gateway.db.tables import api_keys, teams
from gateway.exchange import Exchange
from gateway.money.journal_search import Told
from gateway.money.records import AttemptEnd, Intent, UsageRecord
from gateway.routing.decision import Decision
from gateway.views.explorer_filter import sight

RUNS, WRITES = "runs", "being written"


class Call(Struct, frozen=True, kw_only=True):
    """One call to a backend. outcome "": it runs. ttft_ms: None where nothing has come, or another worker waits for it."""

    n: int
    backend: str
    outcome: str = ""
    error: str = ""
    ttft_ms: int | None = None


class UnderWay(Struct, frozen=True, kw_only=True):
    """state: RUNS | WRITES, its row is on its way to SQL. outcome: "" while it runs. pieces: of output that came so far, None = another
    worker counts them. decision: None where none was made, or another worker has it."""

    id: UUID
    team_id: int
    key_id: int
    route: str
    state: str
    started_at_us: int
    calls: tuple[Call, ...]
    outcome: str = ""
    pieces: int | None = None
    decision: Decision | None = None
    team: str = ""
    key: str = ""
    key_name: str = ""

    @property
    def told(self) -> str:
        """For those who asked for its row."""
        is_ = "still runs" if self.state == RUNS else "has ended and its row is being written"
        return f"Request '{self.id}' {is_}: ask again in a second."


class Running(Protocol):
    @property
    def in_flight(self) -> Collection[Exchange]: ...


class Journals(Protocol):
    async def journalled(self, request_id: UUID) -> list[Told]: ...


class Worker(Protocol):
    """What is needed of a worker's parts."""

    @property
    def engine(self) -> AsyncEngine: ...
    @property
    def accounts(self) -> Journals: ...
    @property
    def pipeline(self) -> Running: ...


async def find(worker: Worker, actor: Actor, request: UUID) -> UnderWay | None:
    """None for a request that nobody here knows, or that the actor may not see."""
    running = next((x for x in worker.pipeline.in_flight if x.id == request), None)
    found = of_journal(await worker.accounts.journalled(request)) if running is None else of_exchange(running)
    if found is None:
        return None
    async with reading(worker.engine).connect() as connection:
        if not (await sight(connection, actor)).includes(found.team_id, found.key_id):
            return None
        team = (await connection.execute(select(teams.c.name).where(teams.c.id == found.team_id))).scalar_one_or_none()
        key = (await connection.execute(select(api_keys.c.public, api_keys.c.name).where(api_keys.c.id == found.key_id))).one_or_none()
    named = replace(found, team=team or "deleted")
    return named if key is None else replace(named, key=key.public, key_name=key.name)


def of_exchange(x: Exchange) -> UnderWay:
    """Of one of this worker."""
    ended = [_ended(end) for end in x.ends]
    running = [Call(n=one.n, backend=one.backend.name, ttft_ms=_since_ms(one.started, one.meter.first_at)) for one in x.running]
    return UnderWay(
        id=x.id,
        team_id=x.principal.team_id,
        key_id=x.principal.key_id,
        route=x.route.name,
        state=WRITES if x.outcome else RUNS,
        started_at_us=x.started_us,
        calls=tuple(sorted([*ended, *running], key=lambda one: one.n)),
        outcome=x.outcome,
        pieces=x.answered_by.meter.pieces if x.answered_by is not None else 0,
        decision=x.decision,
    )


def of_journal(records: Sequence[Told]) -> UnderWay | None:
    """Of any worker of this machine, from what it wrote down in this order."""
    row = next((one for one in records if isinstance(one, UsageRecord)), None)
    intents = {one.n: one for one in records if isinstance(one, Intent)}
    source = row if row is not None else next(iter(intents.values()), None)
    if source is None:
        return None
    ends = {one.n: one for one in (row.attempts if row is not None else [one for one in records if isinstance(one, AttemptEnd)])}
    calls = [_ended(ends[n]) if n in ends else Call(n=n, backend=intents[n].backend) for n in sorted(intents.keys() | ends.keys())]
    return UnderWay(
        id=source.id if isinstance(source, UsageRecord) else source.request_id,
        team_id=source.team_id,
        key_id=source.key_id,
        route=source.route,
        state=RUNS if row is None else WRITES,
        started_at_us=source.started_at_us,
        calls=tuple(calls),
        outcome="" if row is None else row.outcome,
    )


def _ended(end: AttemptEnd) -> Call:
    return Call(n=end.n, backend=end.backend, outcome=end.outcome, error=end.error, ttft_ms=end.ttft_ms)


def _since_ms(began: float, at: float | None) -> int | None:
    return None if at is None else round((at - began) * 1000)
