"""The parts of one worker, made by app.py and handed to the routes. Values and references only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.api.limits import Limits
from gateway.auth import Keyring
from gateway.backend_watch import BackendWatch
from gateway.board import Board
from gateway.cache.store import Store
from gateway.catalog import Catalog
from gateway.db import schema
from gateway.engine_figures import EngineFigures
from gateway.made import NOTHING, Made
from gateway.money.accounts import Accounts
from gateway.money.shares import BudgetShares
from gateway.pipeline import Pipeline
from gateway.routing.router import Router
from gateway.settings import Settings
from gateway.snapshot import Snapshot
from gateway.telemetry import Telemetry
from gateway.views.attention import Attention
from providers.types import Provider


@dataclass(slots=True)
class Standing:
    """Which settings a worker goes by, and what stands in the way of others."""

    settings: str  # hash of the file's
    since: float = field(default_factory=time.time)
    refused: str = ""  # why newer ones could not be taken over here
    refused_at: float = 0.0
    newer_refused: bool = False  # here or by the supervisor
    problems: Mapping[str, str] = field(default_factory=dict)  # what the API made and is not in force: `backend x` -> why
    made: Made = NOTHING  # what the API made, as last read
    ask_reload: Callable[[str], None] | None = None  # tells the supervisor; None = there is none


@dataclass(slots=True)
class Parts:
    settings: Settings  # in force: the file's, joined with what the API made
    file: Settings  # the file's alone
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
    watch: BackendWatch
    board: Board
    attention: Attention
    standing: Standing

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
