"""How long will the answer be? Means of recent answers on a route to prompts of like size, and how much longer or shorter a team's are.

Prompts of one size are often of one kind: a long document is answered shortly, a short question at length. Knows no message. Bounded:
beyond so many names, new ones are not remembered and get what is known of all.
"""

from __future__ import annotations

PRIOR_TOKENS = 256.0
PRIOR_HIGH_TOKENS = 512.0
MEMORY = 0.02  # weight of the newest answer in a mean
SHRINK = 20.0  # answers of a team that weigh as much as its route's, of a size as much as all sizes
COUNTED = 50.0  # more answers do not make a mean surer: it forgets
HIGH = 0.9  # the quantile that a deadline is judged by
STEP = 0.05  # of the quantile's own size, by which an answer moves it
NAMES_MOST = 10_000


class _Mean:
    __slots__ = ("count", "mean")

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.count = 0.0

    def learn(self, value: float) -> None:
        self.count = min(COUNTED, self.count + 1.0)
        self.mean += max(MEMORY, 1.0 / (self.count + SHRINK)) * (value - self.mean)


class _Lengths(_Mean):
    __slots__ = ("high",)

    def __init__(self, mean: float, high: float) -> None:
        super().__init__(mean)
        self.high = high

    def learn(self, value: float) -> None:
        super().learn(value)
        self.high = max(1.0, self.high * (1.0 + STEP * (HIGH if value > self.high else HIGH - 1.0)))


class Outputs:
    """Tokens of one choice. Sizes of prompts are alike within a power of two."""

    def __init__(self) -> None:
        self._routes: dict[str, _Lengths] = {}
        self._sizes: dict[tuple[str, int], _Lengths] = {}
        self._teams: dict[tuple[str, int], _Mean] = {}  # in times of what is expected of all

    def expected(self, route: str, team: int, max_tokens: int | None, input_tokens: int) -> tuple[int, int]:
        """(mean, what nine of ten do not pass), each at least 1 and at most what was asked for."""
        known = self._sizes.get((route, input_tokens.bit_length())) or self._routes.get(route)
        mean, high = (PRIOR_TOKENS, PRIOR_HIGH_TOKENS) if known is None else (known.mean, known.high)
        of_team = self._teams.get((route, team))
        if of_team is not None:
            times = 1.0 + of_team.count / (of_team.count + SHRINK) * (of_team.mean - 1.0)
            mean, high = times * mean, times * high
        most = max_tokens if max_tokens is not None and max_tokens > 0 else None
        told = max(1, round(mean)), max(1, round(max(mean, high)))
        return told if most is None else (min(told[0], most), min(told[1], most))

    def learn(self, route: str, team: int, input_tokens: int, tokens: int) -> None:
        """An answer on this route is complete. input_tokens: as they were expected."""
        of_route = self._routes.get(route)
        if of_route is None:
            if len(self._routes) >= NAMES_MOST:
                return
            of_route = self._routes[route] = _Lengths(PRIOR_TOKENS, PRIOR_HIGH_TOKENS)
        size = (route, input_tokens.bit_length())
        known = self._sizes.get(size)
        if known is None:
            known = of_route
            if len(self._sizes) < NAMES_MOST:
                known = self._sizes[size] = _Lengths(of_route.mean, of_route.high)
        of_team = self._teams.get((route, team))
        if of_team is None and len(self._teams) < NAMES_MOST:
            of_team = self._teams[route, team] = _Mean(1.0)
        if of_team is not None:
            of_team.learn(tokens / max(1.0, known.mean))
        of_route.learn(tokens)
        if known is not of_route:
            known.learn(tokens)
