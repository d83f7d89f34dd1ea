"""Is a backend fit to be asked? Consecutive failures eject it for a growing while, then one probe at a time; a 429 only waits.

Knows no request and no route; the clock (monotonic seconds) is passed in. What to do when no backend is left is decided in filters.py.
"""

from __future__ import annotations

from providers.errors import ProviderError, QuotaExhausted, RateLimited, TimedOut

RETRY_AFTER_CAP_S = 600.0  # a vendor that says more is asked again after this
SOFT_COOL_S = 1.0  # a 429 that names no time
QUOTA_COOL_S = 30.0  # the account upstream is out of money: ask now and then
MAX_DOUBLINGS = 16  # bounds the exponent; the cap in seconds is reached far earlier


class Health:
    """States: healthy -> ejected (until a time) -> probing (one request) -> healthy, or ejected for longer."""

    __slots__ = (
        "answered",
        "cool_until",
        "eject_after",
        "eject_cap_s",
        "eject_s",
        "ejected",
        "ejected_at",
        "ejected_until",
        "ejections",
        "failures",
        "overdue",
        "probe",
        "probe_until",
        "wait_until",
    )

    def __init__(self, eject_after: int = 3, eject_s: float = 5.0, eject_cap_s: float = 80.0) -> None:
        self.eject_after = eject_after
        self.eject_s = eject_s
        self.eject_cap_s = eject_cap_s
        self.failures = 0  # in a row
        self.ejections = 0  # in a row
        self.ejected = 0  # ever, for metrics
        self.ejected_at = float("-inf")
        self.ejected_until = 0.0  # meaningful while ejections > 0
        self.answered = float("-inf")  # when the youngest request that was answered had been sent
        self.probe: object | None = None  # the call that tests a backend whose ejection is over
        self.probe_until = 0.0  # silent for so long it is as good as failed
        self.overdue: object | None = None  # the last one that was
        self.wait_until = 0.0  # the vendor named this time: nobody asks before
        self.cool_until = 0.0  # a guess of ours: others first

    def reason(self, now: float) -> str:
        """Why a new request should not go here: rate_limited | ejected | probing | cooling, or "" when nothing speaks against it."""
        if now < self.wait_until:
            return "rate_limited"
        if self.ejections > 0:
            if now < self.ejected_until:
                return "ejected"
            if self.probe is not None and now < self.probe_until:
                return "probing"
            if self.probe is not None and now < self.probe_until + self._next_s():
                return "ejected"
        if now < self.cool_until:
            return "cooling"
        return ""

    def ready_at(self, now: float) -> float:
        """The time at which `reason` may turn empty; `now` when it is."""
        until = max(now, self.wait_until, self.cool_until)
        if self.ejections == 0:
            return until
        if self.probe is not None and now >= self.probe_until:
            return max(until, self.probe_until + self._next_s())
        return max(until, self.ejected_until)

    def retry(self, now: float) -> None:
        """Somebody will not wait: the next request is the probe. What the vendor named is still waited for."""
        self.ejected_until = min(self.ejected_until, now)
        self.cool_until = min(self.cool_until, now)

    def began(self, now: float, call: object) -> None:
        """A request goes out: after an ejection the first one is the probe."""
        if self.ejections == 0 or now < self.ejected_until:
            return
        if self.probe is not None:
            if now < self.probe_until:
                return
            self.overdue = self.probe
            self._eject(self.probe_until)
            if now < self.ejected_until:  # somebody had to be asked
                self.probe = None
                return
        self.probe = call
        self.probe_until = now + self.eject_s

    def succeeded(self, call: object, began: float) -> None:
        """The backend answered. An answer to a request from before the ejection proves nothing."""
        self.answered = max(self.answered, began)
        if self.probe is call:
            self.probe = None
        if began >= self.ejected_at or self.overdue is call:
            self.failures = 0
            self.ejections = 0

    def left(self, call: object) -> None:
        """The request ended without a verdict (the client went away)."""
        if self.probe is call:
            self.probe = None

    def failed(self, now: float, error: ProviderError, call: object, began: float) -> None:
        """Count an error against the backend, or let it wait, or, when the request was at fault, take it as a sign of life."""
        was_probe = self.probe is call
        if was_probe:
            self.probe = None
        self._wait(now, error)
        if not error.unhealthy:
            if error.answered and not isinstance(error, RateLimited | QuotaExhausted):
                self.succeeded(call, began)
            return
        if self.ejections > 0 and (began < self.ejected_at or (now < self.ejected_until and not was_probe)):
            return  # an echo of what it is ejected for
        if began < self.answered and not was_probe and isinstance(error, TimedOut):
            return  # others were answered since: a lost request, no row of failures
        self.failures += 1
        if was_probe or self.ejections > 0 or self.failures >= self.eject_after:
            self._eject(now)

    def _next_s(self) -> float:
        """How long the next ejection lasts."""
        return min(self.eject_s * 2.0**self.ejections, self.eject_cap_s)

    def _eject(self, now: float) -> None:
        self.ejected_at = now
        self.ejected_until = now + self._next_s()
        self.ejections = min(self.ejections + 1, MAX_DOUBLINGS)
        self.ejected += 1
        self.failures = 0

    def _wait(self, now: float, error: ProviderError) -> None:
        said = error.retry_after_s
        if isinstance(error, RateLimited):
            if said is not None and said > 0:
                self.wait_until = max(self.wait_until, now + min(said, RETRY_AFTER_CAP_S))
            else:
                self.cool_until = max(self.cool_until, now + SOFT_COOL_S)
        elif isinstance(error, QuotaExhausted):
            self.cool_until = max(self.cool_until, now + QUOTA_COOL_S)
        elif error.unhealthy and said is not None and said > 0:
            self.cool_until = max(self.cool_until, now + min(said, RETRY_AFTER_CAP_S))
