"""Looks at budgets every few seconds, says in log and metrics which thresholds were crossed, and delivers them to the webhook.

Chores of the worker's ticker: a receiver that is slow or dead delays later alerts, never a request. Each alert is found by one worker and
delivered by one at a time; money/alerts.py keeps what is due through restarts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.money.alerts import Alert, claim, find, finish
from gateway.money.pricing import usd
from gateway.money.windows import to_datetime
from gateway.settings import AlertSettings
from gateway.webhook import Webhook

AT_ONCE = 10  # deliveries of one round
HOLD_EXTRA_S = 30.0  # beyond its time limit a delivery belongs to its worker for this long

log = structlog.get_logger("tollway.alerts")

Count = Callable[[str, tuple[str, ...]], None]


class Alerting:
    """One per worker. refused: takes the windows in which requests found no money since it was last asked."""

    def __init__(
        self, engine: AsyncEngine, settings: AlertSettings, webhook: Webhook | None, refused: Callable[[], Collection[int]], count: Count
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._webhook = webhook
        self._refused = refused
        self._count = count
        self._pending: set[int] = set()  # windows with refused requests that were not looked at yet
        self._away = False

    async def look(self) -> None:
        """Say what was crossed since anybody looked. While the database is away that waits."""
        await self._unless_away(self._look)

    async def deliver(self) -> None:
        """Send what is due, a few at most."""
        if self._webhook is not None:
            await self._unless_away(self._deliver_due)

    async def _unless_away(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            if not self._away:
                log.warning("alerts wait: the database does not answer", error=str(error).partition("\n")[0])
            self._away = True
        else:
            self._away = False

    async def _look(self) -> None:
        self._pending.update(self._refused())
        found = await find(self._engine, self._pending, deliver=self._webhook is not None)
        self._pending.clear()
        for alert in found:
            self._count("tollway_budget_alerts_total", (alert.scope_kind, str(alert.percent)))
            log.warning(
                "budget alert",
                budget=alert.budget_id,
                scope=f"{alert.scope_kind} {alert.scope}",
                model=alert.model,
                percent=alert.percent,
                reason=alert.reason,
                spent_usd=usd(alert.spent),
                limit_usd=usd(alert.cap),
                resets_at=_instant(alert.ends_us),
            )

    async def _deliver_due(self) -> None:
        assert self._webhook is not None
        for _ in range(AT_ONCE):
            alert = await claim(self._engine, int((self._settings.timeout_s + HOLD_EXTRA_S) * 1_000_000))
            if alert is None:
                return
            await self._deliver(self._webhook, alert)

    async def _deliver(self, webhook: Webhook, alert: Alert) -> None:
        settings = self._settings
        if alert.tries > settings.attempts:  # the worker that tried last died over it
            await self._ended(alert, "given_up", "its last try was not finished")
            return
        wrong = await webhook.post(str(alert.id), msgspec.json.encode(document(alert)))
        if not wrong:
            await finish(self._engine, alert, delivered=True)
            self._count("tollway_alert_deliveries_total", ("delivered",))
        elif alert.tries >= settings.attempts:
            await self._ended(alert, "given_up", wrong)
        else:
            wait_s = min(settings.backoff_cap_s, settings.backoff_s * 2 ** (alert.tries - 1))
            await finish(self._engine, alert, delivered=False, again_us=int(wait_s * 1_000_000))
            self._count("tollway_alert_deliveries_total", ("failed",))
            log.warning("alert not delivered", alert=str(alert.id), attempt=alert.tries, again_s=wait_s, error=wrong)

    async def _ended(self, alert: Alert, result: str, wrong: str) -> None:
        await finish(self._engine, alert, delivered=False)
        self._count("tollway_alert_deliveries_total", (result,))
        log.error("alert given up", alert=str(alert.id), attempts=min(alert.tries, self._settings.attempts), error=wrong)

    async def close(self) -> None:
        if self._webhook is not None:
            await self._webhook.close()


def document(alert: Alert) -> dict[str, Any]:
    """What the receiver gets, as JSON."""
    return {
        "type": "budget.threshold",
        "id": str(alert.id),
        "at": _instant(alert.at_us),
        "percent": alert.percent,
        "reason": alert.reason,
        "spent_usd": usd(alert.spent),
        "limit_usd": usd(alert.cap),
        "budget": {
            "id": alert.budget_id,
            "scope_kind": alert.scope_kind,
            "scope": alert.scope,
            "model": alert.model,
            "per": alert.period,
            "timezone": alert.timezone,
        },
        "window": {"starts_at": _instant(alert.starts_us), "ends_at": _instant(alert.ends_us)},
    }


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else to_datetime(at_us).isoformat(timespec="seconds").replace("+00:00", "Z")
