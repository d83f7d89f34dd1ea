"""How long will a backend take? Learnt online per backend from recent requests, and from those still waiting.

    ttft95 = q95(recent residuals) + slope · input tokens + load · requests in flight        tpot95 = q95(recent)

Times are integer microseconds and the published coefficients integers, so that a stored decision is recomputed to the last digit.
Knows no request; the clock (monotonic seconds) is passed in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

WINDOW = 64  # samples
WINDOW_S = 120.0  # older ones say nothing
PAD = 8  # with fewer samples the prior stands in for the missing ones
REFIT_EVERY = 16  # samples between two publications of the slopes
CENSOR_MOST = 8  # waiting requests that are looked at, the oldest first
FORGET = 0.998  # recursive least squares: memory of about 500 samples
OUTLIER = 4.0  # an error of the fit beyond this many times its usual size counts as this many
LEAST_SCALE_S = 0.02  # however regular a backend was, a change this small is no outlier
MAX_SLOPE_NS = 10_000_000  # per token
MAX_LOAD_US = 10_000_000  # per request in flight
MAX_US = 3_600_000_000  # one hour: nothing is predicted beyond


def ttft95_us(base_us: int, slope_ns: int, load_us: int, input_tokens: int, in_flight: int) -> int:
    """Microseconds to the first token; also used to check a stored decision."""
    return base_us + slope_ns * input_tokens // 1000 + load_us * in_flight


def e2e95_us(ttft_us: int, tpot_us: int, output_tokens: int) -> int:
    """Microseconds to the end of an answer of `output_tokens`."""
    return ttft_us + tpot_us * output_tokens


class Window:
    """The q95 of recent samples (WINDOW, WINDOW_S), padded with a prior. A sample: (time, value, whatever made it)."""

    __slots__ = ("_ordered", "_q95", "prior", "samples")

    def __init__(self, prior: int) -> None:
        self.prior = prior
        self.samples: deque[tuple[float, int, tuple[int, int, int]]] = deque()
        self._ordered: list[int] = []
        self._q95 = prior

    def add(self, now: float, value: int, raw: tuple[int, int, int] = (0, 0, 0)) -> None:
        if len(self.samples) >= WINDOW:
            self._drop()
        self.samples.append((now, value, raw))
        insort(self._ordered, value)
        self._q95 = self.mixed(())

    def q95(self, now: float) -> int:
        samples = self.samples
        if samples and samples[0][0] < now - WINDOW_S:
            while samples and samples[0][0] < now - WINDOW_S:
                self._drop()
            self._q95 = self.mixed(())
        return self._q95

    def mixed(self, extra: Sequence[int]) -> int:
        """The q95 with `extra` samples beside the recorded ones."""
        ordered = self._ordered
        total = len(ordered) + len(extra)
        if total < PAD:
            return max(self.prior, ordered[-1] if ordered else 0, max(extra, default=0))
        rank = total // 20  # from the top
        if not extra:
            return ordered[-1 - rank]
        return sorted([*ordered[-1 - rank :], *extra])[-1 - rank]

    def replace(self, values: Sequence[int]) -> None:
        """New values for the same samples, in their order."""
        self.samples = deque((at, value, raw) for (at, _, raw), value in zip(self.samples, values, strict=True))
        self._ordered = sorted(values)
        self._q95 = self.mixed(())

    def _drop(self) -> None:
        value = self.samples.popleft()[1]
        del self._ordered[bisect_left(self._ordered, value)]


class Fit:
    """Recursive least squares with forgetting over (1, thousands of input tokens, requests in flight) -> seconds. Outliers are clipped."""

    __slots__ = ("_p", "_scale", "_w")

    def __init__(self, prior_s: float) -> None:
        self._w = [prior_s, 0.0, 0.0]
        self._p = [10.0, 0.0, 0.0, 0.1, 0.0, 0.025]  # upper triangle: 00 01 02 11 12 22; variance of the prior over that of the noise
        self._scale = max(prior_s, 0.05)  # the usual absolute error, seconds

    @property
    def slope_ns(self) -> int:
        return min(MAX_SLOPE_NS, max(0, int(self._w[1] * 1_000_000)))

    @property
    def load_us(self) -> int:
        return min(MAX_LOAD_US, max(0, int(self._w[2] * 1_000_000)))

    def learn(self, seconds: float, input_tokens: int, in_flight: int) -> None:
        x, y = input_tokens / 1000.0, float(in_flight)
        w, (a, b, c, d, e, f) = self._w, self._p
        error = seconds - (w[0] + w[1] * x + w[2] * y)
        limit = OUTLIER * self._scale
        self._scale = max(LEAST_SCALE_S, 0.95 * self._scale + 0.05 * min(abs(error), limit))
        error = min(max(error, -limit), limit)
        g0, g1, g2 = a + b * x + c * y, b + d * x + e * y, c + e * x + f * y
        gain = 1.0 / (FORGET + g0 + g1 * x + g2 * y)
        k0, k1, k2 = g0 * gain, g1 * gain, g2 * gain
        w[0] += k0 * error
        w[1] += k1 * error
        w[2] += k2 * error
        p = [a - k0 * g0, b - k0 * g1, c - k0 * g2, d - k1 * g1, e - k1 * g2, f - k2 * g2]
        if (
            p[0] < 10.0 and p[3] < 0.1 and p[5] < 0.025
        ):  # never less sure than at the start: without variety in x the matrix would grow for ever
            p = [v / FORGET for v in p]
        self._p = p


class Predictor:
    """What one backend's recent past says. `observe_*` take seconds; the rest is integer microseconds."""

    __slots__ = ("_fit", "_since_refit", "load_us", "slope_ns", "tpot", "ttft")

    def __init__(self, ttft_prior_ms: float, tpot_prior_ms: float) -> None:
        self.ttft = Window(int(ttft_prior_ms * 1000))
        self.tpot = Window(int(tpot_prior_ms * 1000))
        self._fit = Fit(ttft_prior_ms / 1000.0)
        self._since_refit = 0
        self.slope_ns = 0
        self.load_us = 0

    def observe_ttft(self, now: float, seconds: float, input_tokens: int, in_flight: int) -> None:
        us = _bounded(seconds)
        self._fit.learn(us / 1e6, input_tokens, in_flight)
        self.ttft.add(now, self.residual(us, input_tokens, in_flight), (us, input_tokens, in_flight))
        self._since_refit += 1
        if self._since_refit >= REFIT_EVERY:
            self._since_refit = 0
            self.slope_ns, self.load_us = self._fit.slope_ns, self._fit.load_us
            self.ttft.replace([self.residual(*raw) for _, _, raw in self.ttft.samples])

    def observe_tpot(self, now: float, seconds: float) -> None:
        self.tpot.add(now, _bounded(seconds))

    def observe_whole(self, now: float, seconds: float, output_tokens: int, load: tuple[int, int]) -> None:
        """An answer that came in one piece: split its time as the present prediction would. load: input tokens, in flight."""
        ttft = max(1, ttft95_us(self.ttft.q95(now), self.slope_ns, self.load_us, *load))
        share = ttft / (ttft + self.tpot.q95(now) * output_tokens)
        self.observe_ttft(now, seconds * share, *load)
        if output_tokens > 0:
            self.observe_tpot(now, seconds * (1.0 - share) / output_tokens)

    def residual(self, us: int, input_tokens: int, in_flight: int) -> int:
        return us - self.slope_ns * input_tokens // 1000 - self.load_us * in_flight


def _bounded(seconds: float) -> int:
    return min(MAX_US, max(0, int(seconds * 1_000_000)))
