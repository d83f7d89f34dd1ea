"""When is a request late, and may a second backend be asked beside the first? A token bucket bounds hedges to a share of the requests.

The objective is the one of the first token, else that of the end: whoever has no token long before it can still be answered elsewhere.

Whom to ask is decided by the router; who wins and who is cancelled by race.py. The clock is nowhere in it.
"""

from __future__ import annotations

from gateway.routing.decision import SENT, Decision

MOST = 20.0  # hedges that may follow one another at once, after so many requests that needed none
AFTER = 0.6  # of the objective: without a first token by then a request is late
EARLY = 0.95  # of the predicted time: a request that was expected to wait is not late before


def late_after_us(objective_ms: float, ttft95_us: int) -> int:
    """Microseconds from admission after which a request without a first token is late. ttft95_us: predicted of whom it waits for."""
    return int(max(AFTER * objective_ms * 1000.0, EARLY * ttft95_us))


def differences(decision: Decision) -> list[str]:
    """What of a recorded hedge is not as recomputed."""
    hedge = decision.hedge
    objective_ms = decision.deadline_ms if decision.ttft_ms is None else decision.ttft_ms
    if hedge is None or objective_ms is None or not decision.order:
        return []
    computed = late_after_us(objective_ms, decision.candidates[decision.order[0]].ttft95_us)
    found = [] if computed == hedge.after_us else [f"hedge after_us: recorded {hedge.after_us}, recomputed {computed}"]
    if hedge.result == SENT and hedge.ttft95_us > objective_ms * 1000.0 - hedge.waited_us + 1.0:
        found.append(f"hedge: {hedge.ttft95_us} us were not in time after {hedge.waited_us} us")
    return found


class HedgeBudget:
    """Each request brings a share of a token; a hedge takes a whole one."""

    __slots__ = ("_left", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self._left = 0.0

    def request(self) -> None:
        """A request was admitted."""
        self._left = min(MOST, self._left + self.share)

    def take(self) -> bool:
        """May one more hedge be sent? True counts it."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        """It was not sent after all: no money, or nobody to ask."""
        self._left = min(MOST, self._left + 1.0)
