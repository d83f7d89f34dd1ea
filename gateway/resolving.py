"""A request whose end is not known, settled by a person: what it cost is booked, and the audit log says who said so. Knows no HTTP."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit
from gateway.access import Actor
from gateway.db.session import Dialect, Transaction
from gateway.money import corrections
from gateway.money.pricing import usd


async def resolve(engine: AsyncEngine, usage_id: UUID, cost_nanousd: int, *, actor: Actor) -> int:
    """Both in one transaction; returns the difference to what had been booked, nano-USD. NotFound, InvalidRequest where there is nothing
    to resolve."""

    def told(sql: Dialect, booked: int | None) -> Transaction[None]:
        before, after = {"usd": usd(booked)}, {"usd": usd(cost_nanousd)}
        return audit.step(sql, actor, action="ledger.resolve", kind="request", ident=str(usage_id), before=before, after=after)

    return await corrections.resolve(engine, usage_id, cost_nanousd, told)
