"""The one table that says what follows a failed attempt: the same backend again, the next one, or the end; and the budget for it.

Every layer below tries exactly once, so attempts never multiply. Pure: clock (monotonic seconds) and random draw are passed in.
"""

from __future__ import annotations

from providers.errors import (
    BadAnswer,
    ContentFiltered,
    ContextTooLong,
    Cut,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    TimedOut,
    Unauthorized,
    Unavailable,
    Unreachable,
    Unsupported,
)

SHORT_RETRY_AFTER_S = 2.0  # a longer one is not waited for
BACKOFF_S = 0.1  # before the first retry on the same backend, doubled each time
BACKOFF_CAP_S = 1.0
WINDOW_S = 10
OPERATORS_FAULT = (401, 403, 404)  # our credential or our model name there: another backend may know better

# kind of error -> (may the next backend be asked?, may the same one be asked again?); the nearest class counts
TABLE: dict[type[ProviderError], tuple[bool, bool]] = {
    Unreachable: (True, True),
    TimedOut: (True, False),  # again only if the backend itself said so (408)
    Cut: (True, True),
    BadAnswer: (True, False),
    RateLimited: (True, True),
    QuotaExhausted: (True, False),
    ServerFailed: (True, True),
    Unavailable: (True, True),
    Unauthorized: (True, False),
    Rejected: (False, False),
    ContextTooLong: (True, False),
    ContentFiltered: (False, False),
    Unsupported: (True, False),
    ProviderError: (True, False),
}


def after(error: ProviderError, attempt: int, max_attempts: int, others: bool, draw: float) -> tuple[str, float]:
    """What to do after attempt number `attempt` (from 1, over all backends) failed: ("same" | "next" | "stop", seconds to wait before it).

    others: the plan holds a backend not asked yet. draw: uniform in [0, 1), jitter. The caller also asks the retry budget.
    """
    if attempt >= max_attempts:
        return "stop", 0.0
    elsewhere, again = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if isinstance(error, TimedOut) and error.answered:
        again = True
    if isinstance(error, Rejected) and error.status in OPERATORS_FAULT:
        elsewhere = True
    if elsewhere and others:
        return "next", 0.0
    said = error.retry_after_s
    if not again or (said is not None and said > SHORT_RETRY_AFTER_S):
        return "stop", 0.0
    backoff = min(BACKOFF_CAP_S, BACKOFF_S * 2 ** min(attempt - 1, 8)) * (0.5 + 0.5 * draw)
    return "same", backoff if said is None else max(backoff, said + 0.1 * draw)


class RetryBudget:
    """Stops storms: retries and failovers of the last 10 s stay within a share of its requests, but a floor is always free."""

    __slots__ = ("_floor", "_requests", "_retries", "_second", "_share", "refused")

    def __init__(self, share: float = 0.2, floor: int = 30) -> None:
        self._share = share
        self._floor = floor
        self._requests = [0] * WINDOW_S
        self._retries = [0] * WINDOW_S
        self._second = 0
        self.refused = 0  # monotonic, for metrics

    def request(self, now: float) -> None:
        """A request was admitted."""
        self._advance(now)
        self._requests[self._second % WINDOW_S] += 1

    def take(self, now: float) -> bool:
        """May one more attempt beyond a request's first be made? True counts it."""
        self._advance(now)
        if sum(self._retries) >= max(self._floor, int(self._share * sum(self._requests))):
            self.refused += 1
            return False
        self._retries[self._second % WINDOW_S] += 1
        return True

    def _advance(self, now: float) -> None:
        second = int(now)
        for passed in range(max(self._second + 1, second - WINDOW_S + 1), second + 1):
            self._requests[passed % WINDOW_S] = self._retries[passed % WINDOW_S] = 0
        self._second = max(self._second, second)
