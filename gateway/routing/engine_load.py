"""What an engine of one's own last said of itself, and how much of its load is that of other clients than this worker.

Read off the path (gateway/engine_figures.py), used by prediction as long as it is fresh. The clock (monotonic seconds) is passed in.
"""

from __future__ import annotations

from providers.figures import Figures

KV_FULL = 0.95  # of the KV cache, with requests waiting for room in it: the engine takes no more at once

Load = tuple[int, int]
"""(prompt tokens to be computed before the next request's, requests in flight)"""


class EngineLoad:
    """Of one backend. problem: why nothing is known, or nothing new; empty while it is read."""

    __slots__ = ("_others", "_until", "at", "crowded", "figures", "problem")

    def __init__(self) -> None:
        self.figures: Figures | None = None
        self.at = float("-inf")  # when they were read
        self.problem = "not read yet"
        self._until = float("-inf")
        self._others: Load = (0, 0)
        self.crowded = False  # by the last figures, however old: no room in its KV cache, and some wait for it

    def said(self, now: float, until: float, figures: Figures, mine: Load) -> None:
        """A reading, good until a time. mine: of this worker's own load the most that may be in it."""
        self.figures, self.at, self._until, self.problem = figures, now, until, ""
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
