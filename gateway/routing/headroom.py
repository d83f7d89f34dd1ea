"""What is left of a vendor's rate limits, before it says 429: our own count against the configured limits, and what its answers told.

A limit per minute refills all the time and lets a quarter of a minute through at once: vendors enforce their limits over shorter spans
than they are named for. The clock (monotonic seconds) is passed in; knows no request beyond its tokens.
"""

from __future__ import annotations

BURST_S = 15.0
TOLD_CAP_S = 60.0  # what a vendor told is believed for no longer


class Allowance:
    """One limit: requests, or tokens. per_minute None: only what the vendor tells."""

    __slots__ = ("_at", "_left", "_most", "_per_s", "_told", "_told_until")

    def __init__(self, per_minute: float | None) -> None:
        self._per_s = None if per_minute is None else per_minute / 60.0
        self._most = self._left = 0.0 if self._per_s is None else max(1.0, self._per_s * BURST_S)
        self._at = 0.0
        self._told = 0.0  # left until a time, by the vendor's word, less what went out since
        self._told_until = 0.0

    def wait_s(self, now: float, amount: float) -> float:
        """Seconds until `amount` may go out by what is known; 0.0 = now. More than the limit lets through at once waits for a full one."""
        wait = 0.0
        if self._per_s is not None:
            if now > self._at:
                self._left = min(self._most, self._left + (now - self._at) * self._per_s)
                self._at = now
            wanted = amount if amount < self._most else self._most
            if wanted > self._left:
                wait = (wanted - self._left) / self._per_s
        if now < self._told_until and self._told < amount:
            wait = max(wait, self._told_until - now)
        return wait

    def took(self, now: float, amount: float) -> None:
        """So much went out; a negative amount comes back (less was used than was expected)."""
        if self._per_s is not None:
            self._left = min(self._most, self._left - amount)
        self._told -= amount

    def told(self, now: float, left: float, reset_s: float) -> None:
        """The vendor says what is left until its limit is whole again."""
        self._told = left
        self._told_until = now + min(reset_s, TOLD_CAP_S)


class Headroom:
    """Of one backend in one worker: limits are this worker's share."""

    __slots__ = ("limited", "requests", "tokens")

    def __init__(self, rpm: float | None, tpm: float | None) -> None:
        self.requests = Allowance(rpm)
        self.tokens = Allowance(tpm)
        self.limited = rpm is not None or tpm is not None  # or once its vendor told

    def wait_s(self, now: float, tokens: int) -> float:
        """Seconds until a request of so many tokens may go out; 0.0 = now."""
        wait = self.requests.wait_s(now, 1.0)
        other = self.tokens.wait_s(now, tokens)
        return wait if wait > other else other

    def told(self, now: float, requests: tuple[float, float] | None, tokens: tuple[float, float] | None) -> None:
        """What an answer's headers say of each limit: (left, seconds until it is whole again), None = nothing."""
        for allowance, said in ((self.requests, requests), (self.tokens, tokens)):
            if said is not None:
                allowance.told(now, *said)
                self.limited = True
