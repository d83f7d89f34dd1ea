"""How long will the answer be? Means of recent answers per route, and per team on a route, drawn to the route's where a team is new.

Knows no message. Bounded: beyond so many names, new ones are not remembered and get what is known of all.
"""

from __future__ import annotations

PRIOR_TOKENS = 256.0
PRIOR_HIGH_TOKENS = 512.0
MEMORY = 0.02  # weight of the newest answer in a mean
SHRINK = 20.0  # answers of a team that weigh as much as its route's mean
COUNTED = 50.0  # more answers do not make a team's mean surer: it forgets
HIGH = 0.9  # the quantile that a deadline is judged by
STEP = 0.05  # of the quantile's own size, by which an answer moves it
NAMES_MOST = 10_000


class _Mean:
    __slots__ = ("count", "high", "mean")

    def __init__(self, mean: float, high: float) -> None:
        self.mean, self.high = mean, high
        self.count = 0.0

    def learn(self, tokens: int) -> None:
        self.count = min(COUNTED, self.count + 1.0)
        self.mean += max(MEMORY, 1.0 / (self.count + SHRINK)) * (tokens - self.mean)
        self.high = max(1.0, self.high * (1.0 + STEP * (HIGH if tokens > self.high else HIGH - 1.0)))


class Outputs:
    """Tokens of one choice."""

    def __init__(self) -> None:
        self._routes: dict[str, _Mean] = {}
        self._teams: dict[tuple[str, int], _Mean] = {}

    def expected(self, route: str, team: int, max_tokens: int | None) -> tuple[int, int]:
        """(mean, what nine of ten do not pass), each at least 1 and at most what was asked for."""
        of_route = self._routes.get(route)
        mean, high = (PRIOR_TOKENS, PRIOR_HIGH_TOKENS) if of_route is None else (of_route.mean, of_route.high)
        of_team = self._teams.get((route, team))
        if of_team is not None:
            weight = of_team.count / (of_team.count + SHRINK)
            mean += weight * (of_team.mean - mean)
            high += weight * (of_team.high - high)
        most = max_tokens if max_tokens is not None and max_tokens > 0 else None
        told = max(1, round(mean)), max(1, round(max(mean, high)))
        return told if most is None else (min(told[0], most), min(told[1], most))

    def learn(self, route: str, team: int, tokens: int) -> None:
        """An answer on this route is complete."""
        of_route = self._routes.get(route)
        if of_route is None:
            if len(self._routes) >= NAMES_MOST:
                return
            of_route = self._routes[route] = _Mean(PRIOR_TOKENS, PRIOR_HIGH_TOKENS)
        of_route.learn(tokens)
        of_team = self._teams.get((route, team))
        if of_team is None:
            if len(self._teams) >= NAMES_MOST:
                return
            of_team = self._teams[route, team] = _Mean(of_route.mean, of_route.high)
        of_team.learn(tokens)
