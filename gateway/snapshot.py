"""What a worker knows of keys, budgets, rate limits, prices and what the API made, reloaded whole within about a second of any change: one
row is polled.

On an error the old snapshot stays in force, up to its bounded age, and the error is counted. Knows no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import structlog
from sqlalchemy import case, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import made
from gateway.auth import Keyring, Principal, live_keys, principal_from
from gateway.catalog import Price
from gateway.db.engine import clock_us, reading
from gateway.db.tables import budgets, catalog_version, limits, price_book
from gateway.money.budgets import BudgetRow
from gateway.money.limits import LimitRow
from gateway.people.common import scope_name

POLL_S = 1.0
JITTER_S = 0.2  # so that the workers of a fleet do not ask at the same moment
LOAD_S = 6.0  # one poll, reloading included

Prices = Mapping[tuple[str, str], Price]  # (vendor, model) -> the newest entry of the price book
OnLoad = Callable[[Prices, made.Made], Awaitable[None]]

log = structlog.get_logger("tollway.snapshot")


class TakesBudgets(Protocol):
    def set_budgets(self, budgets: Sequence[BudgetRow]) -> None: ...


class TakesLimits(Protocol):
    def set_limits(self, rows: Sequence[LimitRow]) -> None: ...


class Fresh(NamedTuple):
    """All of it as one look at the database found it. asked: monotonic second of that look."""

    version: int | None
    keys: dict[bytes, Principal]
    budgets: list[BudgetRow]
    limits: list[LimitRow]
    prices: Prices
    price_due_us: int | None
    made: made.Made
    asked: float


class Snapshot:
    """One per worker. `load` may be called at any time; `start` polls until `stop`.

    max_age_s: settings.server.stale_keys_s; without an answer for this long, keys are no longer taken on trust.
    on_load: awaited with the price book and what the API made whenever they were loaded anew.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        keyring: Keyring,
        accounts: TakesBudgets,
        *,
        limiter: TakesLimits | None = None,
        max_age_s: float = 3600.0,
        on_load: OnLoad | None = None,
    ) -> None:
        self._engine = reading(engine)
        self._keyring = keyring
        self._accounts = accounts
        self._limiter = limiter
        self._max_age_s = max_age_s
        self._on_load = on_load
        self._confirmed: float | None = None  # monotonic second of the last answer
        self._task: asyncio.Task[None] | None = None
        self.version: int | None = None  # of what is in force; None = nothing is
        self.prices: Prices = {}
        self._price_due_us: int | None = None  # when the next price of the book begins to hold
        self.failures = 0
        self.reloads = 0

    @property
    def loaded(self) -> bool:
        """Whether there is a snapshot in force."""
        return self.version is not None

    @property
    def age_s(self) -> float:
        """Seconds since the database last said that this snapshot is the newest; infinite before it ever did."""
        return float("inf") if self._confirmed is None else time.monotonic() - self._confirmed

    async def load(self) -> bool:
        """Ask for the version and reload when it moved. False when the database did not answer; what was known stays in force."""
        try:
            async with asyncio.timeout(LOAD_S), self._engine.connect() as connection:
                fresh = await self._read(connection)
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            self.failures += 1
            if self.failures == 1 or self.failures % 60 == 0:
                log.warning("keys, budgets and prices cannot be read", error=str(error), failures=self.failures, age_s=round(self.age_s, 1))
            if self.loaded and self.age_s > self._max_age_s:
                self._distrust()
            return False
        self._confirmed = time.monotonic()
        if fresh is not None:
            await self._take(fresh)
        return True

    async def _read(self, connection: AsyncConnection) -> Fresh | None:
        """None: what is in force is the newest."""
        asked = time.monotonic()
        version = (await connection.execute(select(catalog_version.c.version))).scalar_one_or_none()
        if version == self.version and not self._price_is_due():
            return None
        keys = dict(principal_from(row) for row in await connection.execute(live_keys()))
        rows = await connection.execute(select(budgets, scope_name(budgets).label("scope")).where(budgets.c.deleted_at_us.is_(None)))
        live = [msgspec.convert(row, BudgetRow, from_attributes=True) for row in rows]
        rows = await connection.execute(select(limits).where(limits.c.deleted_at_us.is_(None)).order_by(limits.c.id))
        rates = [msgspec.convert(row, LimitRow, from_attributes=True) for row in rows]
        prices, due_us = await read_prices(connection)
        entries = await made.read(connection)
        return Fresh(version, keys, live, rates, prices, due_us, entries, asked)

    async def _take(self, fresh: Fresh) -> None:
        """Without the database's connection and its time limit: whoever is told may have models to read."""
        # nothing is awaited until prices are in force: a request sees all of the old or all of the new
        self._keyring.replace(fresh.keys)
        self._accounts.set_budgets(fresh.budgets)
        if self._limiter is not None:
            self._limiter.set_limits(fresh.limits)
        self.prices, self._price_due_us = fresh.prices, fresh.price_due_us
        if self._on_load is not None:
            await self._on_load(fresh.prices, fresh.made)
        self.version = fresh.version
        self.reloads += 1
        told = {"version": fresh.version, "keys": len(fresh.keys), "budgets": len(fresh.budgets), "ms": _since_ms(fresh.asked)}
        log.info("keys, budgets and prices loaded", **told)

    def _price_is_due(self) -> bool:
        return self._price_due_us is not None and time.time_ns() // 1000 >= self._price_due_us

    def _distrust(self) -> None:
        """Too old to go by: a revoked key must not live for as long as the database is away. Budgets stay: they only refuse."""
        log.error("the snapshot is too old: no key is accepted until the database answers", max_age_s=self._max_age_s)
        self._keyring.replace({})
        self.version = None

    def start(self) -> None:
        """Poll in the background. Call once, on the loop that serves."""
        self._task = asyncio.create_task(self._poll(), name="snapshot")

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S + random.uniform(-JITTER_S, JITTER_S))
            try:
                await self.load()
            except Exception as error:  # noqa: BLE001 - the poller must outlive any row that cannot be read
                self.failures += 1
                log.error("the snapshot cannot be built", error=f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        """End the polling. Harmless when it never began."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None


async def read_prices(connection: AsyncConnection) -> tuple[dict[tuple[str, str], Price], int | None]:
    """The price in force of each (vendor, model), and the instant at which the next one begins to.

    What a person set wins over a published price, whichever is newer.
    """
    entry = price_book.c
    now_us = (await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one()
    order = case((entry.source == "api", 1), else_=0), entry.from_us, entry.created_at_us
    holding = entry.from_us <= now_us, entry.withdrawn_at_us.is_(None)
    rows = await connection.execute(select(entry.vendor, entry.model, entry.record).where(*holding).order_by(*order))
    upcoming = entry.from_us > now_us, entry.withdrawn_at_us.is_(None)
    due_us = (await connection.execute(select(func.min(entry.from_us)).where(*upcoming))).scalar_one()
    return {(row.vendor, row.model): msgspec.json.decode(row.record, type=Price) for row in rows}, due_us


def _since_ms(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
