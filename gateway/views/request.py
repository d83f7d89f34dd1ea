"""One request as the tables hold it: its row, attempts, corrections, bill, budgets and decision, for somebody who may see it.

What somebody may not see is told like what does not exist. Knows no HTTP and no HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access import Actor
from gateway.catalog import Catalog, Price
from gateway.db.columns import CLASSES
from gateway.db.engine import snapshot
from gateway.db.tables import adjustments, api_keys, attempts, budget_windows, budgets, decisions, price_book, teams, usage
from gateway.errors import NotFound
from gateway.money.bill import Bill, bill
from gateway.money.ledger import BOOKED
from gateway.money.marks import FAILED_OVER, HEDGED, MISSED
from gateway.money.pricing import usd
from gateway.people.common import scope_name
from gateway.routing import decision as records
from gateway.routing.decision import Decision
from gateway.views import asked
from gateway.views.decided import tell
from gateway.views.explorer_filter import sight
from providers.types import Usage


class Tried(Struct, frozen=True, kw_only=True):
    """row: of the attempts table. bill: how its cost comes about, None where the price of then is not at hand or the cost is a share of
    hardware that is paid for by the hour. share: it is."""

    row: Mapping[str, Any]
    bill: Bill | None
    share: bool


class Charged(Struct, frozen=True, kw_only=True):
    """A budget that the request drew on, and the period."""

    scope_kind: str
    scope: str
    period: str
    timezone: str
    starts_at_us: int


class Correction(Struct, frozen=True, kw_only=True):
    reason: str
    delta: int
    at_us: int


class Found(Struct, frozen=True, kw_only=True):
    """row: of the usage table, with team, key and key_name. decision: None where none was made, or it has expired or is of another
    version. price_since_us: from when on the row's price held, None where the price book does not know it."""

    id: UUID
    row: Mapping[str, Any]
    tried: tuple[Tried, ...]
    corrections: tuple[Correction, ...]
    charged: tuple[Charged, ...]
    decision: Decision | None
    price_since_us: int | None = None

    @property
    def cost(self) -> int | None:
        """With what was booked later; None = still unpriced."""
        later = sum(one.delta for one in self.corrections)
        own: int | None = self.row["cost"]
        if own is None:
            return later if self.corrections else None
        return own + later


def wanted_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise missing(text) from error


def missing(text: str) -> NotFound:
    return NotFound(f"There is no request '{text[:80]}' here: its row appears at the latest a second after the answer.", param="id")


async def find(engine: AsyncEngine, actor: Actor, request: UUID, catalog: Catalog) -> Found:
    """NotFound also for a request that the actor may not see."""
    async with snapshot(engine) as connection:
        named = select(usage, teams.c.name.label("team"), api_keys.c.public.label("key"), api_keys.c.name.label("key_name"))
        joined = named.join(teams, teams.c.id == usage.c.team_id, isouter=True).join(
            api_keys, api_keys.c.id == usage.c.key_id, isouter=True
        )
        seen = (await sight(connection, actor)).on(usage)
        statement = joined.where(usage.c.id == request, usage.c.outcome.not_in(BOOKED), *seen)
        row = (await connection.execute(statement)).mappings().one_or_none()
        if row is None:
            raise missing(str(request))
        tried = (await connection.execute(select(attempts).where(attempts.c.request_id == request).order_by(attempts.c.n))).mappings().all()
        prices, since_us = await _prices(connection, {row["price_id"], *(one["price_id"] for one in tried)}, catalog)
        return Found(
            id=request,
            row=dict(row),
            tried=tuple(_tried(dict(one), row["kind"], prices, catalog) for one in tried),
            corrections=await _corrections(connection, request),
            charged=await _charged(connection, json.loads(row["charges"])),
            decision=await _decision(connection, request),
            price_since_us=since_us.get(row["price_id"]),
        )


async def _prices(connection: AsyncConnection, ids: set[str], catalog: Catalog) -> tuple[dict[str, Price], dict[str, int]]:
    """By id: of the book, also those that no longer hold, and of the settings those in force; and from when on those of the book hold."""
    book = price_book.c
    rows = (await connection.execute(select(book.id, book.record, book.from_us).where(book.id.in_(ids)))).all()
    found = {row.id: msgspec.json.decode(row.record, type=Price) for row in rows}
    found |= {one.price.id: one.price for one in catalog.backends.values() if one.price is not None and one.price.id in ids}
    return found, {row.id: row.from_us for row in rows}


def _tried(row: Mapping[str, Any], kind: str, prices: Mapping[str, Price], catalog: Catalog) -> Tried:
    price = prices.get(row["price_id"])
    made = None if price is None or row["cost"] is None else bill(price, usage_of(row), kind)
    backend = catalog.backends.get(row["backend"])
    share = backend is not None and backend.hourly_nanousd is not None
    return Tried(row=row, bill=made if made is not None and made.total == row["cost"] and not share else None, share=share)


def usage_of(row: Mapping[str, Any]) -> Usage:
    return Usage(**{name.removesuffix("_tokens"): row[name] for name in CLASSES}, estimated=row["estimated"])


async def _corrections(connection: AsyncConnection, request: UUID) -> tuple[Correction, ...]:
    beside = adjustments.c
    rows = await connection.execute(
        select(beside.reason, beside.delta, beside.created_at_us).where(beside.usage_id == request).order_by(beside.created_at_us)
    )
    return tuple(Correction(reason=row.reason, delta=row.delta, at_us=row.created_at_us) for row in rows)


async def _charged(connection: AsyncConnection, windows: Sequence[int]) -> tuple[Charged, ...]:
    if not windows:
        return ()
    one = budgets.c
    statement = (
        select(one.scope_kind, scope_name(budgets).label("scope"), one.period, one.timezone, budget_windows.c.starts_at_us)
        .join(budgets, one.id == budget_windows.c.budget_id)
        .where(budget_windows.c.id.in_(windows))
        .order_by(one.id)
    )
    return tuple(msgspec.convert(row, Charged, from_attributes=True) for row in await connection.execute(statement))


async def _decision(connection: AsyncConnection, request: UUID) -> Decision | None:
    record = (await connection.execute(select(decisions.c.record).where(decisions.c.request_id == request))).scalar_one_or_none()
    try:
        return None if record is None else records.decode(bytes(record))
    except msgspec.MsgspecError:
        return None


# ---- as JSON
def document(found: Found) -> dict[str, Any]:
    """The request as values for JSON; its decision has an address of its own."""
    row = found.row
    named = (
        *("team", "key", "key_name", "route", "backend", "vendor", "model", "price_id", "outcome", "status", "error", "surface", "kind"),
        *("tag", "streamed", "estimated", "started_at_us", "ended_at_us", "ttft_ms", "duration_ms", "provider_id"),
    )
    return {
        "id": str(found.id),
        **{name: row[name] for name in named},
        **_money("cost", row["cost"]),
        **_money("adjusted", sum(one.delta for one in found.corrections)),
        **_money("saved", row["saved"]),
        "usage": {name: row[name] for name in CLASSES},
        "failed_over": bool(row["marks"] & FAILED_OVER),
        "hedged": bool(row["marks"] & HEDGED),
        "missed_objective": bool(row["marks"] & MISSED),
        "attempts": [_attempt(one) for one in found.tried],
        "corrections": [{"reason": one.reason, "at_us": one.at_us, **_money("delta", one.delta)} for one in found.corrections],
        "charged": [msgspec.structs.asdict(one) for one in found.charged],
        "price_since_us": found.price_since_us,
        "asked": None if found.decision is None else asked.document(found.decision.asked),
        "decision": None if found.decision is None else f"/admin/decisions/{found.id}",
    }


def _attempt(one: Tried) -> dict[str, Any]:
    named = ("n", "backend", "vendor", "model", "price_id", "outcome", "status", "error", "estimated", "ttft_ms", "duration_ms", "began_ms")
    made = one.bill
    return {
        **{name: one.row[name] for name in named},
        **_money("cost", one.row["cost"]),
        **_money("worst", one.row["worst"]),
        "usage": {name: one.row[name] for name in CLASSES},
        "bill": None
        if made is None
        else [
            {"what": line.what, "tokens": line.tokens, "usd_per_million": usd(line.rate) if line.rate is not None else None,
             "nanousd_millionths": line.millionths}
            for line in made.lines
        ],
    }  # fmt: skip


def _money(name: str, nanousd: int | None) -> dict[str, Any]:
    return {f"{name}_nanousd": nanousd, f"{name}_usd": usd(nanousd)}


def decision_document(found: Found) -> dict[str, Any]:
    """The decision in words, computed again, and the record itself. NotFound where there is none."""
    made = found.decision
    if made is None:
        raise NotFound(
            f"No decision of request '{found.id}' is stored: it appears a second after the answer, cached ones have none, old ones expire.",
            param="id",
        )
    told = tell(made)
    return {
        "id": str(found.id),
        "headline": told.headline,
        "candidates": [msgspec.structs.asdict(row) for row in told.rows],
        "limit_us": told.limit_us,
        "agrees": not told.differences,
        "differences": list(told.differences),
        "explanation": records.explain(made, told.differences),
        "record": records.plain(made),
    }
