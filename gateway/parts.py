"""The parts of one worker, made by app.py and handed to the routes. Values and references only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.api.limits import Limits
from gateway.auth import Keyring
from gateway.cache.store import Store
from gateway.catalog import Catalog
from gateway.money.accounts import Accounts
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
    schema_problem: str = ""  # why the database cannot be used as it is

    async def readiness(self) -> dict[str, Any]:
        """What /health/ready says: ready or not, why, the catalog in force and the state of each local engine."""
        reasons = []
        if self.limits.draining:
            reasons.append("draining")
        if self.schema_problem:
            reasons.append(self.schema_problem)
        if not self.snapshot.loaded:
            reasons.append("keys, budgets and prices are not loaded yet: is the database reachable?")
        backends = {}
        for name, provider in self.providers.items():
            if provider.dialect == "local":
                backends[name] = await provider.check() or "ready"
        return {"ready": not reasons, "reasons": reasons, "catalog": self.catalog.version, "local_backends": backends}
