"""Thresholds of budgets and the alerts that crossing them makes: each once per window, whoever looks, whatever dies. Off any request.

An alert is a row; where it is to be delivered the row is the queue: whoever claims it has it for a time, then it is due again. Knows no
HTTP and no log.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy import Numeric, and_, case, cast, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import clock_us, reading
from gateway.db.tables import budget_alerts, budget_thresholds, budget_windows, budgets
from gateway.people.common import scope_name

FOUND_MAX = 200  # of one look
GRACE_US = 3_600_000_000  # a window that ended is looked at for this long: its last requests may settle late
SPENT, REFUSED = "spent", "refused"


class Alert(Struct, frozen=True, kw_only=True):
    """A threshold that was crossed. reason: spent | refused (of 100 alone: a request found no money). Money is nano-USD.

    spent, cap: when it was found. tries: deliveries begun, this one included.
    """

    id: UUID
    window_id: int
    percent: int
    reason: str
    at_us: int
    spent: int
    cap: int
    budget_id: int
    scope_kind: str
    scope: str
    model: str | None
    period: str
    timezone: str
    starts_us: int
    ends_us: int | None
    tries: int = 0


async def find(engine: AsyncEngine, refused: Collection[int], *, deliver: bool) -> list[Alert]:
    """Thresholds crossed and not yet told, each given to exactly one caller. refused: windows in which requests found no money.

    deliver: queue them too.
    """
    async with reading(engine).connect() as connection:
        if not (await connection.execute(_crossed(connection.dialect.name, refused).limit(1))).all():
            return []
    async with engine.begin() as connection:
        rows = (await connection.execute(_crossed(connection.dialect.name, refused).limit(FOUND_MAX))).mappings().all()
        now_us = await _now_us(connection)
        found = []
        for row in rows:
            reason = SPENT if row["spent"] * 100 >= row["cap"] * row["percent"] else REFUSED
            alert = Alert(**{**row, "id": uuid4(), "at_us": now_us, "reason": reason})
            if await _insert(connection, alert, now_us if deliver else None):
                found.append(alert)
    return found


def _named() -> list[Any]:
    window, budget = budget_windows.c, budgets.c
    return [
        window.id.label("window_id"),
        window.starts_at_us.label("starts_us"),
        window.ends_at_us.label("ends_us"),
        budget.id.label("budget_id"),
        budget.scope_kind,
        scope_name(budgets).label("scope"),
        budget.model,
        budget.period,
        budget.timezone,
    ]


def _crossed(dialect: str, refused: Collection[int]) -> Any:
    window, budget, now_us = budget_windows.c, budgets.c, clock_us(dialect)
    overridden = and_(budget.override_nanousd.is_not(None), budget.override_until_us > now_us)
    cap = case((overridden, budget.override_nanousd), else_=budget.limit_nanousd)
    percent = budget_thresholds.c.percent
    reached = cast(window.spent, Numeric) * 100 >= cast(cap, Numeric) * percent  # of 64 bits a hundredfold would be too much
    if refused:
        reached = or_(reached, and_(percent == 100, window.id.in_(list(refused))))
    told = and_(budget_alerts.c.window_id == window.id, budget_alerts.c.percent == percent)
    return (
        select(*_named(), percent, window.spent, cap.label("cap"))
        .join(budgets, budgets.c.id == budget_thresholds.c.budget_id)
        .join(budget_windows, budget_windows.c.budget_id == budgets.c.id)
        .join(budget_alerts, told, isouter=True)
        .where(
            budget_alerts.c.window_id.is_(None),
            budget.deleted_at_us.is_(None),
            cap > 0,
            window.starts_at_us <= now_us,
            or_(window.ends_at_us.is_(None), window.ends_at_us > now_us - GRACE_US),
            reached,
        )
        .order_by(window.id, percent)
    )


async def _insert(connection: AsyncConnection, alert: Alert, due_us: int | None) -> bool:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    names = ("window_id", "percent", "id", "reason", "at_us", "spent", "cap")
    statement = make(budget_alerts).values(**{name: getattr(alert, name) for name in names}, due_at_us=due_us)
    made = await connection.execute(statement.on_conflict_do_nothing().returning(budget_alerts.c.percent))
    return made.first() is not None


async def claim(engine: AsyncEngine, hold_us: int) -> Alert | None:
    """The alert that has been due longest, for this caller alone during `hold_us`; then it is due again unless `finish` came."""
    row = budget_alerts.c
    async with reading(engine).connect() as connection:
        due = row.due_at_us <= clock_us(connection.dialect.name)
        if (await connection.execute(select(row.window_id).where(due).limit(1))).first() is None:
            return None
    async with engine.begin() as connection:
        now_us = await _now_us(connection)
        oldest = select(row.window_id, row.percent).where(row.due_at_us <= now_us).order_by(row.due_at_us).limit(1)
        key = (await connection.execute(oldest.with_for_update(skip_locked=True))).one_or_none()
        if key is None:
            return None
        mine = row.window_id == key.window_id, row.percent == key.percent
        await connection.execute(update(budget_alerts).where(*mine).values(tries=row.tries + 1, due_at_us=now_us + hold_us))
        whole = (
            select(*_named(), *(row[name] for name in ("id", "percent", "reason", "at_us", "spent", "cap", "tries")))
            .join(budget_windows, budget_windows.c.id == row.window_id)
            .join(budgets, budgets.c.id == budget_windows.c.budget_id)
            .where(*mine)
        )
        return Alert(**(await connection.execute(whole)).mappings().one())


async def finish(engine: AsyncEngine, alert: Alert, *, delivered: bool, again_us: int | None = None) -> None:
    """The end of the delivery that `claim` began. again_us: due again after this time; None = over. A later claim's word stands."""
    row = budget_alerts.c
    async with engine.begin() as connection:
        now_us = await _now_us(connection)
        mine = row.window_id == alert.window_id, row.percent == alert.percent, row.tries == alert.tries
        values = {"due_at_us": None if again_us is None else now_us + again_us, "delivered_at_us": now_us if delivered else None}
        await connection.execute(update(budget_alerts).where(*mine).values(**values))


async def _now_us(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())
