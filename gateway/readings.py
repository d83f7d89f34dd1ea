"""What /metrics reads of a worker's parts rather than counts: gauges, totals that parts keep themselves, histograms of engines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from gateway.money.shares import BudgetShare
from gateway.numbers import Gauges, Labels, Read
from gateway.parts import Parts
from gateway.routing.router import BackendView
from providers.figures import NAMES, TIMES, metric


def gauges(parts: Parts) -> Gauges:
    """By (name, label values…)."""
    stats = parts.accounts.stats()
    found: dict[str, float] = {
        "tollway_in_flight": len(parts.pipeline.in_flight),
        "tollway_ready": not parts.limits.draining and parts.snapshot.loaded and not stats.journal_broken,
        "tollway_journal_bytes": stats.journal_bytes,
        "tollway_journal_age_seconds": stats.journal_age_s,
        "tollway_ledger_queue_rows": stats.queued,
        "tollway_ledger_lag_seconds": stats.lag_s,
        "tollway_ledger_quarantined_rows": stats.quarantined,
        "tollway_database_away": stats.database_away,
        "tollway_processes": stats.processes,
        "tollway_leased_nanousd": stats.leased_nanousd,
        "tollway_reserved_nanousd": stats.reserved_nanousd,
        "tollway_unsynced_nanousd": stats.unsynced_nanousd,
        "tollway_budget_windows": stats.windows,
        "tollway_budget_waiting": stats.waiting,
        "tollway_snapshot_age_seconds": parts.snapshot.age_s,
        "tollway_cache_degraded": parts.store.degraded,
        "tollway_limits_degraded": parts.pipeline.limits.degraded,
        "tollway_clock_offset_seconds": stats.clock_offset_s,
        "tollway_config_since_seconds": parts.standing.since,
        "tollway_config_refused": parts.standing.newer_refused,
        "tollway_made_problems": len(parts.standing.problems),
    }
    views = parts.router.snapshot(time.monotonic())
    factors = parts.pipeline.attempts.factors.means()
    return {
        **{(name,): float(value) for name, value in found.items()},
        **_backends(views),
        **_engines(views),
        **_budgets(parts.budget_shares.found),
        **{("tollway_route_backends", one.name): float(parts.router.open_backends(one)) for one in parts.catalog.routes.values()},
        **{("tollway_token_factor", family): mean for family, mean in factors.items()},
    }


def _backends(views: Sequence[BackendView]) -> Gauges:
    found: Gauges = {}
    for view in views:
        found["tollway_backend_ready", view.backend] = float(view.state == "ready")
        if view.state != "ready":
            found["tollway_backend_set_aside", view.backend, view.state] = 1.0
        found["tollway_backend_in_flight", view.backend] = float(view.in_flight)
        found["tollway_backend_drained", view.backend] = float(view.drained)
        found["tollway_backend_waiting", view.backend] = float(view.waiting)
        found["tollway_backend_predicted_ttft_seconds", view.backend] = view.ttft95_ms / 1000
        found["tollway_backend_predicted_tpot_seconds", view.backend] = view.tpot95_ms / 1000
    return found


def _engines(views: Sequence[BackendView]) -> Gauges:
    """What engines of one's own say of themselves, as long as it is fresh."""
    found: Gauges = {}
    for view in views:
        if view.engine is None:
            continue
        figures = view.engine.figures
        found["tollway_engine_read", view.backend] = float(figures is not None)
        for name in NAMES:
            value = None if figures is None else getattr(figures, name)
            if value is not None:
                found[metric(name), view.backend] = float(value)
    return found


def _budgets(shares: Sequence[BudgetShare]) -> Gauges:
    found: Gauges = {}
    for one in shares:
        labels = (one.scope_kind, one.scope, one.model, one.per)
        found["tollway_budget_limit_nanousd", *labels] = float(one.limit)
        found["tollway_budget_spent_nanousd", *labels] = float(one.spent)
        found["tollway_budget_spent_share", *labels] = one.share
        if one.passed is not None:
            found["tollway_budget_window_share", *labels] = one.passed
    return found


def totals(parts: Parts) -> Iterator[tuple[str, Labels, int]]:
    """(name, label values, count since the part was made)."""
    stats, stored = parts.accounts.stats(), parts.store.counters
    yield "tollway_ledger_syncs_total", (), stats.syncs
    yield "tollway_ledger_sync_faults_total", (), stats.faults
    yield "tollway_cache_stored_total", (), stored.stored
    yield "tollway_cache_dropped_total", (), stored.dropped
    yield "tollway_decisions_lost_total", (), parts.pipeline.decisions.lost
    yield "tollway_retries_refused_total", (), parts.router.retries.refused
    for name, state in parts.router.states(parts.catalog).items():
        yield "tollway_ejections_total", (name,), state.health.ejected


def histograms(parts: Parts) -> dict[str, dict[Labels, Read]]:
    """Times that engines of one's own keep, as they were read last."""
    found: dict[str, dict[Labels, Read]] = {}
    for view in parts.router.snapshot(time.monotonic()):
        figures = None if view.engine is None else view.engine.figures
        for name in TIMES:
            times = None if figures is None else getattr(figures, name)
            if times is not None:
                found.setdefault(metric(name), {})[(view.backend,)] = Read(times.bounds, times.counts, times.sum)
    return found
