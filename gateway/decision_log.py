"""Decision records on their way to SQL: a bounded queue, written in batches by the ticker, apart from the ledger and allowed to be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.tables import decisions
from gateway.exchange import Exchange
from gateway.routing.decision import Decision, encode
from gateway.routing.tally import Tally, tally

BATCH = 500
EXPIRED_AT_ONCE = 2000
EXPIRE_S = 600.0  # between two looks at what is too old
MICROSECONDS_A_DAY = 86_400_000_000


Waiting = tuple[UUID, int, int, Decision]
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
        self.waiting.append((x.id, x.started_us, x.principal.team_id, x.decision))

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


def _rows(batch: Sequence[Waiting]) -> tuple[list[dict[str, Any]], Tally]:
    """Long records are deflated, which takes longer than the event loop should wait for a batch of them."""
    rows = [{"request_id": request, "made_at_us": at, "team_id": team, "record": encode(decision)} for request, at, team, decision in batch]
    return rows, tally(decision for _request, _at, _team, decision in batch)
