"""How much of each budget is spent, for the metrics: the few with the largest share, read every few seconds, off any request.

Budgets of keys are left out: what is published holds no key.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import Numeric, and_, case, cast, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import clock_us, reading
from gateway.db.tables import budget_windows, budgets
from gateway.people.common import scope_name

MOST = 100  # budgets; beyond them the alerts of every budget still tell
EVERY_S = 15.0  # about as often as Prometheus asks


class BudgetShare(Struct, frozen=True, kw_only=True):
    """A budget in its present window. Money is nano-USD. passed: part of the window that is over, 0 to 1; None = it has no end."""

    scope_kind: str
    scope: str
    model: str
    per: str
    limit: int
    spent: int
    passed: float | None

    @property
    def share(self) -> float:
        return self.spent / self.limit


async def read(engine: AsyncEngine, most: int = MOST) -> tuple[BudgetShare, ...]:
    """Those of organisations and teams that have a limit above 0 and an open window; the largest share first."""
    budget, window = budgets.c, budget_windows.c
    async with reading(engine).connect() as connection:
        now_us = clock_us(connection.dialect.name)
        overridden = and_(budget.override_nanousd.is_not(None), budget.override_until_us > now_us)
        cap = case((overridden, budget.override_nanousd), else_=budget.limit_nanousd)
        statement = (
            select(
                budget.scope_kind, scope_name(budgets).label("scope"), budget.model, budget.period, cap.label("cap"), window.spent,
                window.starts_at_us, window.ends_at_us, now_us.label("now_us"),
            )
            .join(budget_windows, window.budget_id == budget.id)
            .where(
                budget.deleted_at_us.is_(None),
                budget.scope_kind != "key",
                cap > 0,
                window.starts_at_us <= now_us,
                or_(window.ends_at_us.is_(None), window.ends_at_us > now_us),
            )
            .order_by((cast(window.spent, Numeric) / cast(cap, Numeric)).desc(), budget.id)
            .limit(most)
        )  # fmt: skip
        rows = (await connection.execute(statement)).all()
    return tuple(
        BudgetShare(
            scope_kind=row.scope_kind,
            scope=row.scope or "",
            model=row.model or "",
            per=row.period,
            limit=row.cap,
            spent=row.spent,
            passed=None if row.ends_at_us is None else (row.now_us - row.starts_at_us) / (row.ends_at_us - row.starts_at_us),
        )
        for row in rows
    )


class BudgetShares:
    """One per worker: what it read last. While the database is away nothing is shown rather than something old."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.found: tuple[BudgetShare, ...] = ()

    async def look(self) -> None:
        try:
            self.found = await read(self._engine)
        except (SQLAlchemyError, OSError, TimeoutError):
            self.found = ()
