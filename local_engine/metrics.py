"""What the engine measures of itself: times to a first token, per token after it, of steps. Numbers of one thread; knows no socket."""

from __future__ import annotations

from bisect import bisect_left

from local_engine.wire import Times

FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
PER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
STEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts by bounds in seconds, the last one beyond them all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    @property
    def times(self) -> Times:
        return Times(self.bounds, tuple(self.counts), self.sum)


class Metrics:
    """One per engine."""

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_S)
        self.per_token = Histogram(PER_TOKEN_S)
        self.steps = Histogram(STEP_S)
        self.batch = 0  # sequences in the last step

    def step(self, seconds: float, sequences: int) -> None:
        self.steps.observe(seconds)
        self.batch = sequences

    def ended(self, tokens: int, first_at: float, now: float) -> None:
        """A sequence came to its end by itself. tokens: that it generated; times are monotonic seconds."""
        if tokens > 1:
            self.per_token.observe((now - first_at) / (tokens - 1))
