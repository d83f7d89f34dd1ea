"""Decision records on their way to SQL, with what their requests asked for: a bounded queue, written in batches by the ticker, apart from
the ledger and allowed to be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.tables import decisions
from gateway.exchange import Exchange
from gateway.routing.decision import Asked, Decision, encode
from gateway.routing.tally import Tally, tally
from providers import parameters
from providers.parameters import Noted

BATCH = 500
EXPIRED_AT_ONCE = 2000
EXPIRE_S = 600.0  # between two looks at what is too old
MICROSECONDS_A_DAY = 86_400_000_000


class Waiting(Struct, frozen=True, gc=False):
    """What is kept of a request until its record is written: nothing that holds its body. cache: see Asked."""

    id: UUID
    made_at_us: int
    team_id: int
    decision: Decision
    noted: Noted
    lowered: int | None
    cache: str


Count = Callable[[str, tuple[str, ...], int], None]


class DecisionLog:
    """One per worker. `lost` counts records that found the queue full or the database away. count: what the others come to, for metrics."""

    def __init__(self, engine: AsyncEngine, queue: int, keep_days: int, count: Count | None = None) -> None:
        self.engine = engine
        self.queue = queue
        self.keep_us = keep_days * MICROSECONDS_A_DAY
        self.waiting: list[Waiting] = []
        self.lost = 0
        self._count = count

    def put(self, x: Exchange) -> None:
        if x.decision is None:
            return
        if len(self.waiting) >= self.queue:
            self.lost += 1
            return
        self.waiting.append(waiting(x, x.decision))

    async def flush(self) -> None:
        """Write what waits. A failed batch is counted and dropped: a decision explains, it does not account."""
        while self.waiting:
            batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
            rows, tallied = await asyncio.to_thread(_rows, batch)
            if self._count is not None:
                for (name, labels), times in tallied.items():
                    self._count(name, labels, times)
            try:
                async with self.engine.begin() as connection:
                    await connection.execute(insert(decisions), rows)
            except (SQLAlchemyError, OSError):
                self.lost += len(batch)
                return

    async def expire(self, now_us: int) -> int:
        """Delete records older than `keep_days`, some at a time so that the ledger never waits for it; returns how many."""
        old = select(decisions.c.request_id).where(decisions.c.made_at_us < now_us - self.keep_us).limit(EXPIRED_AT_ONCE)
        total = 0
        while True:
            async with self.engine.begin() as connection:
                gone = (await connection.execute(delete(decisions).where(decisions.c.request_id.in_(old)))).rowcount
            total += gone
            if gone < EXPIRED_AT_ONCE:
                return total


def waiting(x: Exchange, decision: Decision) -> Waiting:
    """Taken on the request's path, at its end."""
    lowered = x.request.clamped if x.clamped is None else x.clamped
    return Waiting(x.id, x.started_us, x.principal.team_id, decision, parameters.note(x.request), lowered, x.cache_why)


def _rows(batch: Sequence[Waiting]) -> tuple[list[dict[str, Any]], Tally]:
    """Long records are deflated, which takes longer than the event loop should wait for a batch of them."""
    for one in batch:
        one.decision.asked = Asked(*parameters.read(one.noted), one.lowered, one.cache)
    rows = [{"request_id": one.id, "made_at_us": one.made_at_us, "team_id": one.team_id, "record": encode(one.decision)} for one in batch]
    return rows, tally(one.decision for one in batch)
