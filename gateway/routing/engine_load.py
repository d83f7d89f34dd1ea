"""What an engine of one's own last said of itself, how much of its load is that of other clients than this worker, and what its last hour
came to.

Read off the path (gateway/engine_figures.py), used by prediction as long as it is fresh. The clock (monotonic seconds) is passed in.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from providers.figures import Figures

KV_FULL = 0.95  # of the KV cache, with requests waiting for room in it: the engine takes no more at once

Load = tuple[int, int]
"""(prompt tokens to be computed before the next request's, requests in flight)"""


HOUR_S, SAMPLE_S = 3600.0, 60.0
GROWING = ("preemptions", "prompt_tokens", "prefix_hit_tokens")  # totals of an engine whose last hour is told


class LastHour(Struct, frozen=True, kw_only=True):
    """Of an engine, over the time that this worker read it, an hour at most; null = it does not tell. preemptions: requests that gave
    their place back. prefix_hits: the share of prompt tokens that it had computed already, to 1; null also while none came."""

    over_s: float
    preemptions: int | None
    prefix_hits: float | None


class Growth:
    """By how much totals grew, from one reading to the next. An engine that was started anew begins at nothing."""

    __slots__ = ("_grown", "_last", "_samples")

    def __init__(self) -> None:
        self._last: tuple[int | None, ...] = (None,) * len(GROWING)
        self._grown = [0] * len(GROWING)
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()  # one a minute, of an hour: when, and what had grown by then

    def told(self, now: float, figures: Figures) -> None:
        totals = tuple(getattr(figures, name) for name in GROWING)
        for place, (old, new) in enumerate(zip(self._last, totals, strict=True)):
            if old is not None and new is not None:
                self._grown[place] += new - old if new >= old else new
        self._last = totals
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((now, tuple(self._grown)))
            while now - self._samples[0][0] > HOUR_S:
                self._samples.popleft()

    def lately(self, now: float) -> LastHour | None:
        """None before the second reading of a minute."""
        if not self._samples or now - self._samples[0][0] < SAMPLE_S:
            return None
        began, before = self._samples[0]
        grown = dict(zip(GROWING, (a - b for a, b in zip(self._grown, before, strict=True)), strict=True))
        told = {name for name, last in zip(GROWING, self._last, strict=True) if last is not None}
        prompts = grown["prompt_tokens"] if told >= {"prompt_tokens", "prefix_hit_tokens"} else 0
        return LastHour(
            over_s=round(min(HOUR_S, now - began), 1),
            preemptions=grown["preemptions"] if "preemptions" in told else None,
            prefix_hits=round(min(1.0, grown["prefix_hit_tokens"] / prompts), 4) if prompts else None,
        )


class EngineLoad:
    """Of one backend. problem: why nothing is known, or nothing new; empty while it is read."""

    __slots__ = ("_others", "_until", "at", "crowded", "figures", "growth", "problem")

    def __init__(self) -> None:
        self.figures: Figures | None = None
        self.at = float("-inf")  # when they were read
        self.growth = Growth()
        self.problem = "not read yet"
        self._until = float("-inf")
        self._others: Load = (0, 0)
        self.crowded = False  # by the last figures, however old: no room in its KV cache, and some wait for it

    def said(self, now: float, until: float, figures: Figures, mine: Load) -> None:
        """A reading, good until a time. mine: of this worker's own load the most that may be in it."""
        self.figures, self.at, self._until, self.problem = figures, now, until, ""
        self.growth.told(now, figures)
        in_flight = (figures.waiting or 0) + (figures.running or 0)
        self.crowded = (figures.kv_share or 0.0) >= KV_FULL and bool(figures.waiting)
        self._others = (max(0, (figures.prefill_tokens or 0) - mine[0]), max(0, in_flight - mine[1]))

    def failed(self, problem: str) -> None:
        self.problem = problem

    def others(self, now: float) -> Load:
        """What other clients have there."""
        return self._others if now < self._until else (0, 0)

    def fresh(self, now: float) -> Figures | None:
        return self.figures if now < self._until else None

    def full(self, now: float) -> bool:
        """Whether it takes no more at once."""
        return self.crowded and now < self._until
