"""What needs a hand, kept ready for every page: looked at in the background, told within what a caller sees, and dropped when it is old.

Backends are those of this gateway's workers; budgets and failed requests are all that the database knows. Knows no page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access import Actor
from gateway.board import Board
from gateway.catalog import Catalog
from gateway.db.engine import reading
from gateway.db.tables import api_keys, budgets
from gateway.errors import GatewayError
from gateway.money import forecast
from gateway.routing.router import BackendView, Router
from gateway.views.burn import Burn, Counts, burn
from gateway.views.burn import read as read_failures

EVERY_S = 15.0
BUDGETS_S, BUDGETS_MAX_S = 60.0, 150.0  # a forecast of every budget reads weeks: the longer it takes, the rarer it is asked
REST = 50  # times as long as a look at budgets took, nobody looks again
STALE_S = 180.0  # what is older is not told
STATES = {"ejected": "ejected", "rate_limited": "rate limited", "stalled": "stalled"}


class Watched(Protocol):
    """What it needs of a worker's parts."""

    catalog: Catalog
    router: Router


class Running(Struct, frozen=True):
    """A budget that is gone or runs out in its present window. team_id: whose it or its key is, None = an organisation's."""

    id: int
    team_id: int | None


class Attention:
    """One per worker."""

    def __init__(self, engine: AsyncEngine, board: Board) -> None:
        self._engine = engine
        self._board = board
        self._others: frozenset[str] = frozenset()
        self._budgets: tuple[float, tuple[Running, ...]] | None = None  # as of when
        self._failures: tuple[float, Counts] | None = None
        self._due = 0.0

    async def look(self) -> None:
        """Never twice at once. What cannot be read stays as it is until it is too old."""
        told = await asyncio.to_thread(self._board.others, time.time())
        self._others = frozenset(troubled(view for one in told for view in one.views))
        for read in (self._look_at_failures, self._look_at_budgets):
            try:
                await read()
            except (SQLAlchemyError, OSError, TimeoutError, GatewayError):  # also a database that gave up on a sum
                continue

    async def _look_at_failures(self) -> None:
        self._failures = time.monotonic(), await read_failures(self._engine)

    async def _look_at_budgets(self) -> None:
        begun = time.monotonic()
        if begun < self._due:
            return
        found = await running_out(self._engine)
        now = time.monotonic()
        self._budgets, self._due = (now, found), now + min(max(BUDGETS_S, REST * (now - begun)), BUDGETS_MAX_S)

    def burn(self, scope: frozenset[int] | None) -> Burn | None:
        """How fast what a scope sees uses up the errors that are allowed; None where it does not, or where that is not known."""
        if self._failures is None or _old(self._failures[0]):
            return None
        return burn(self._failures[1], scope)

    def counts(self, parts: Watched, actor: Actor) -> dict[str, int]:
        """Page -> how many things there need a hand, of what an actor sees; what is not known is not there."""
        own = troubled(parts.router.snapshot(time.monotonic()))
        found = {"backends": len((own | self._others) & set(parts.catalog.backends))}
        if self._budgets is not None and not _old(self._budgets[0]):
            whole = actor.whole
            found["budgets"] = sum(1 for one in self._budgets[1] if whole is None or one.team_id in whole)
        return {page: number for page, number in found.items() if number}


def _old(at: float) -> bool:
    return time.monotonic() - at > STALE_S


def troubled(views: Iterable[BackendView]) -> set[str]:
    """Backends that are not asked now though nobody took them out."""
    return {view.backend for view in views if view.state in STATES}


async def running_out(engine: AsyncEngine) -> tuple[Running, ...]:
    """Budgets that are gone or are expected to be before their window ends."""
    gone = [one.budget.id for one in await forecast.of_budgets(engine) if one.gone_us is not None]
    budget = budgets.c
    owners = select(budget.id, budget.scope_kind, budget.scope_id, api_keys.c.team_id).join(
        api_keys, (budget.scope_kind == "key") & (api_keys.c.id == budget.scope_id), isouter=True
    )
    async with reading(engine).connect() as connection:
        rows = await connection.execute(owners.where(budget.id.in_(gone)))
        return tuple(Running(row.id, row.scope_id if row.scope_kind == "team" else row.team_id) for row in rows)
