"""What is left of a vendor's rate limits, before it says 429: our own count against the configured limits, and what its answers told.

A limit per minute refills all the time and lets a quarter of a minute through at once: vendors enforce their limits over shorter spans
than they are named for. The clock (monotonic seconds) is passed in; knows no request beyond its tokens.
"""

from __future__ import annotations

from providers.limit_headers import Limits

BURST_S = 15.0
TOLD_CAP_S = 60.0  # what a vendor told is believed for no longer


class Allowance:
    """One limit: requests, or tokens. per_minute None: only what the vendor tells."""

    __slots__ = ("_at", "_most", "_per_s", "_told", "room", "sent", "told_until")

    def __init__(self, per_minute: float | None) -> None:
        self._per_s = None if per_minute is None else per_minute / 60.0
        self._most = self.room = 0.0 if self._per_s is None else max(1.0, self._per_s * BURST_S)
        self._at = 0.0
        self._told = 0.0  # left until a time, by the vendor's word, less what went out since
        self.told_until = 0.0
        self.sent = 0.0  # in all

    def wait_s(self, now: float, amount: float) -> float:
        """Seconds until `amount` may go out by what is known; 0.0 = now. More than the limit lets through at once waits for a full one."""
        wait = 0.0
        if amount > self.room and self._per_s is not None:
            self._refill(now)
            wanted = amount if amount < self._most else self._most
            if wanted > self.room:
                wait = (wanted - self.room) / self._per_s
        if now < self.told_until and self._told < amount:
            wait = max(wait, self.told_until - now)
        return wait

    def took(self, now: float, amount: float) -> None:
        """So much went out; a negative amount comes back (less was used than was expected)."""
        if self._per_s is not None:
            self._refill(now)
            self.room = min(self._most, self.room - amount)
        self._told -= amount
        self.sent += amount

    def _refill(self, now: float) -> None:
        if self._per_s is not None and now > self._at:
            self.room = min(self._most, self.room + (now - self._at) * self._per_s)
            self._at = now

    def told(self, now: float, left: float, reset_s: float) -> None:
        """The vendor says what is left until its limit is whole again."""
        self._told = left
        self.told_until = now + min(reset_s, TOLD_CAP_S)

    def left(self, now: float) -> float | None:
        """What the vendor's word leaves; None where it said nothing that still holds."""
        return max(0.0, self._told) if now < self.told_until else None

    def resize(self, per_minute: float | None) -> None:
        """Another limit, or another share of it; what the vendor told stays."""
        fresh = Allowance(per_minute)
        self.room = fresh.room if self._per_s is None else min(self.room, fresh._most)
        self._per_s, self._most = fresh._per_s, fresh._most


Sent = tuple[float, float, float, float]
"""So much has gone out in all: requests, tokens, of them prompt and answer."""


class Headroom:
    """Of one backend in one worker: limits are this worker's share. Some vendors limit prompt and answer apart: looked at once told."""

    __slots__ = ("_apart", "_tells", "_told_of", "input", "limited", "output", "requests", "tokens")

    def __init__(self, rpm: float | None, tpm: float | None) -> None:
        self.requests = Allowance(rpm)
        self.tokens = Allowance(tpm)
        self.input = Allowance(None)
        self.output = Allowance(None)
        self.limited = rpm is not None or tpm is not None  # or once its vendor told
        self._apart = False
        self._tells = False
        self._told_of = float("-inf")  # when the newest request was sent whose answer told

    def wait_s(self, now: float, prompt: int, output: int) -> float:
        """Seconds until a request of so many tokens may go out; 0.0 = now."""
        requests, tokens = self.requests, self.tokens
        if requests.room >= 1.0 and now >= requests.told_until and tokens.room >= prompt + output and now >= tokens.told_until:
            wait = 0.0  # most requests, most of the time
        else:
            wait = max(requests.wait_s(now, 1.0), tokens.wait_s(now, prompt + output))
        if self._apart:
            wait = max(wait, self.input.wait_s(now, prompt), self.output.wait_s(now, output))
        return wait

    def took(self, now: float, prompt: int, output: int) -> None:
        """A request went out with so many tokens, those of its answer as expected."""
        self.requests.took(now, 1.0)
        self.tokens.took(now, prompt + output)
        if self._apart:
            self.input.took(now, prompt)
            self.output.took(now, output)

    def came(self, now: float, more: int) -> None:
        """An answer had so many tokens more than was expected; less, when negative."""
        self.tokens.took(now, more)
        if self._apart:
            self.output.took(now, more)

    @property
    def sent(self) -> Sent | None:
        """What has gone out by now; None as long as its vendor never told, so that nobody else's request pays for it."""
        return (self.requests.sent, self.tokens.sent, self.input.sent, self.output.sent) if self._tells else None

    def told(self, now: float, said: Limits, workers: int, began: float, sent: Sent | None) -> None:
        """What an answer's headers say, for all workers together. began: when its request went out; sent: what had gone out by then, it
        included; what followed its vendor had not counted. The answer to an older request than the last that told is old news."""
        if began < self._told_of:
            return
        self._told_of = began
        self._tells = self.limited = True
        self._apart = self._apart or said.input is not None or said.output is not None
        allowances = (self.requests, self.tokens, self.input, self.output)
        for n, (allowance, left) in enumerate(zip(allowances, (said.requests, said.tokens, said.input, said.output), strict=True)):
            if left is not None:
                since = 0.0 if sent is None else allowance.sent - sent[n]
                allowance.told(now, left[0] / workers - since, left[1])

    def resize(self, rpm: float | None, tpm: float | None) -> None:
        """Other limits, or another share of them."""
        self.requests.resize(rpm)
        self.tokens.resize(tpm)
        self.limited = self.limited or rpm is not None or tpm is not None
