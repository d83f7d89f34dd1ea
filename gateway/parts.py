"""The parts of one worker, made by app.py and handed to the routes. Values and references only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.api.limits import Limits
from gateway.auth import Keyring
from gateway.cache.store import Store
from gateway.catalog import Catalog
from gateway.db import schema
from gateway.engine_figures import EngineFigures
from gateway.money.accounts import Accounts
from gateway.money.shares import BudgetShares
from gateway.pipeline import Pipeline
from gateway.routing.router import Router
from gateway.settings import Settings
from gateway.snapshot import Snapshot
from gateway.telemetry import Telemetry
from providers.types import Provider


@dataclass(slots=True)
class Parts:
    settings: Settings
    engine: AsyncEngine
    catalog: Catalog  # swapped whole on reload
    providers: Mapping[str, Provider]
    keyring: Keyring
    snapshot: Snapshot
    accounts: Accounts
    router: Router
    store: Store
    pipeline: Pipeline
    telemetry: Telemetry
    limits: Limits
    figures: EngineFigures
    budget_shares: BudgetShares

    async def readiness(self) -> dict[str, Any]:
        """What /health/ready says: ready or not, why, the catalog in force and the state of each local engine."""
        reasons = []
        if self.limits.draining:
            reasons.append("draining")
        if not self.snapshot.loaded:
            reasons.append(await self._database_problem())
        broken = self.accounts.stats().journal_broken
        if broken:
            reasons.append(f"The journal takes no more requests: {broken}.")
        backends = {}
        for name, provider in self.providers.items():
            if provider.dialect == "local":
                backends[name] = await provider.check() or "ready"
        return {"ready": not reasons, "reasons": reasons, "catalog": self.catalog.version, "local_backends": backends}

    async def _database_problem(self) -> str:
        try:
            return schema.problem(await schema.state(self.engine)) or "Keys, budgets and prices are not loaded yet."
        except (SQLAlchemyError, OSError) as error:
            return f"The database does not answer: {type(error).__name__}."
