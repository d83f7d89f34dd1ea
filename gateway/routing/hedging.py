"""May a second backend be asked beside the first? A token bucket bounds hedges to a share of the requests. The clock is nowhere in it.

When to ask and whom is decided by the router; who wins and who is cancelled by attempts.py.
"""

from __future__ import annotations

MOST = 20.0  # hedges that may follow one another at once, after so many requests that needed none
AFTER = 0.6

EARLY = 0.72  # of the predicted time: a request that was expected to wait is not late before


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
