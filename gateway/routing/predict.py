"""How long will a backend take? Learnt online per backend from recent requests, and from those still waiting.

    ttft95 = q95(recent residuals) + slope · prompt tokens + load · requests in flight        tpot95 likewise

Of a hosted backend the prompt tokens are the request's own and the load counts for nothing; of an engine of one's own they are all that
is not prefilled yet, and both times bend. Times are integer microseconds and the published coefficients integers, so that a stored
decision is recomputed to the last digit. Knows no request; the clock (monotonic seconds) is passed in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

WINDOW = 64  # samples
WINDOW_S = 120.0  # as shipped; older ones say nothing
CENSOR_MOST = 8  # waiting requests that are looked at, the oldest first
PAD = 8  # with fewer samples the prior stands in for the missing ones
SPARED = tuple(int(0.05 * n + (0.05 * 0.95 * n) ** 0.5) for n in range(WINDOW + PAD + CENSOR_MOST))
"""Of n samples so many are left out above the q95: one in twenty and a standard deviation, so that a backend is not believed late before
that is likelier than bad luck. A single outlier of eight is no verdict, below eight each counts."""
GAP = 0.125  # of the window's span: after so long a silence PAD new samples replace what was known before it
USUAL = 64  # a sample moves what is usual by one in so many
UNWELL = 3  # times the usual
SPARED_OF_RUN = 2  # of the newest PAD: three bad ones among them are a change, however good the rest of the window was
REFIT_EVERY = 16  # samples between two publications of the slopes
FORGET = 0.998  # recursive least squares: memory of about 500 samples
OUTLIER = 4.0  # an error of the fit beyond this many times its usual size counts as this many
LEAST_SCALE_S = 0.02  # however regular a backend was, a change this small is no outlier
LEAST_PACE_SCALE_S = 0.001
SPREAD_US = 200_000  # the first token of a queue of one's own: errors grow with the queue
PRIOR_SPREAD = 250_000  # q95 over the fitted time until there are samples, in millionths
MAX_SLOPE_PS = 10**10  # per prompt token: ten milliseconds
MAX_LOAD_NS = 10**10  # per request in flight: ten seconds
MAX_US = 3_600_000_000  # one hour: nothing is predicted beyond


Line = tuple[int, ...]
"""How a time is predicted: q95 of what is left over, slope per prompt token in ps, per request in flight in ns, intercept in µs, spread in
µs; zeros at the end left out. Without a spread the first is in µs and added; else it is in millionths of the fitted time and the spread,
for what errs more the longer it takes."""


def predicted95_us(line: Line, tokens: int, in_flight: int) -> int:
    """Microseconds, to the first token or per token; also used to check a stored decision. Never below 0."""
    count = len(line)
    if count == 1:
        return line[0]
    if count == 2:
        predicted = line[0] + line[1] * tokens // 1_000_000
    else:
        fitted, spread = _fitted(line, tokens, in_flight)
        predicted = fitted + (line[0] * ((fitted if fitted > 0 else 0) + spread) // 1_000_000 if spread else line[0])
    return predicted if predicted > 0 else 0


def residual95(line: Line, us: int, tokens: int, in_flight: int) -> int:
    """The first number of a line that would have predicted `us`."""
    fitted, spread = _fitted(line, tokens, in_flight)
    return (us - fitted) * 1_000_000 // ((fitted if fitted > 0 else 0) + spread) if spread else us - fitted


def _fitted(line: Line, tokens: int, in_flight: int) -> tuple[int, int]:
    _, slope, load, intercept, spread = line if len(line) == 5 else (*line, 0, 0, 0, 0)[:5]
    return intercept + slope * tokens // 1_000_000 + load * in_flight // 1000, spread


def e2e95_us(ttft_us: int, tpot_us: int, output_tokens: int) -> int:
    """Microseconds to the end of an answer of `output_tokens`."""
    return ttft_us + tpot_us * output_tokens


class Window:
    """The q95 of recent samples (WINDOW, span_s), padded with a prior. A sample: (time, value, whatever made it); its time is when its
    request was sent, so that an answer that took a minute is a minute old, and samples are kept in that order."""

    __slots__ = ("_ordered", "_since", "_span_s", "epoch", "expires", "known95", "prior", "samples", "unwell", "usual", "well_at", "worst")

    def __init__(self, prior: int, span_s: float = WINDOW_S) -> None:
        self.prior = prior
        self._span_s = span_s
        self._since = float("-inf")  # the time of the first sample after the last silence
        self.epoch = PAD  # samples since then, up to PAD
        self.worst = 0  # of them
        self.usual = prior  # a mean over many windows, in which no sample counts as more than twice of it
        self.samples: deque[tuple[float, int, tuple[int, int, int]]] = deque()
        self._ordered: list[int] = []
        self.known95 = prior  # until it expires
        self.expires = float("inf")  # when the oldest sample is too old
        self.unwell = False  # far worse than it used to be
        self.well_at = float("-inf")  # the time of the newest sample that was not

    def add(self, at: float, value: int, raw: tuple[int, int, int] = (0, 0, 0)) -> None:
        """at: when the request was sent."""
        samples = self.samples
        if samples and at - samples[-1][0] > GAP * self._span_s:
            self.epoch = self.worst = 0
            self._since = at
        elif at < self._since or (len(samples) >= WINDOW and at < samples[0][0]):
            return  # of what has been replaced since
        if value <= UNWELL * self.usual and at > self.well_at:
            self.well_at = at
        self.usual += (min(value, 2 * self.usual) - self.usual) // USUAL
        if self.epoch < PAD:
            self.epoch += 1
            self.worst = max(self.worst, value)
            if self.epoch == PAD:
                while len(samples) >= PAD:
                    self._drop()
        elif len(samples) >= WINDOW:
            self._drop()
        place = len(samples)
        while place and samples[place - 1][0] > at:
            place -= 1
        samples.insert(place, (at, value, raw))
        insort(self._ordered, value)
        self._settle()

    def worth_a_trial(self, now: float, asked: bool) -> bool:
        """Far worse than it used to be by what was known before a silence, and nothing that came since is bad; of what came nothing, only
        if no request is waiting there (asked)."""
        if not self.unwell:
            return False
        if now - self.samples[-1][0] > GAP * self._span_s:
            return not asked
        return 0 < self.epoch < PAD and 2 * self.worst < self.known95

    def q95(self, now: float) -> int:
        if now > self.expires:
            samples = self.samples
            while samples and samples[0][0] < now - self._span_s:
                self._drop()
            self._settle()
        return self.known95

    def mixed(self, late: Sequence[tuple[float, int]]) -> int:
        """The q95 with `late` samples beside the recorded ones: (time, value). A run of bad ones at the end counts at once."""
        ordered = self._ordered
        total = len(ordered) + len(late)
        rank = SPARED[total]  # from the top
        worst = ordered[-1 - rank :]
        if late:
            worst = sorted([*worst, *[value for _, value in late]])[-1 - rank :]
        if total < PAD:
            return max(self.prior, worst[0] if worst else 0)
        samples = self.samples
        newest = [(at, value) for at, value, _ in [samples[i] for i in range(-min(PAD, len(samples)), 0)]]
        if late:
            newest = sorted([*newest, *late])[-PAD:]
        return max(worst[0], sorted([value for _, value in newest])[-1 - SPARED_OF_RUN])

    def replace(self, values: Sequence[int]) -> None:
        """New values for the same samples, in their order."""
        self.samples = deque((at, value, raw) for (at, _, raw), value in zip(self.samples, values, strict=True))
        self._ordered = sorted(values)
        self._settle()

    def replaced(self, at: float) -> bool:
        """Whether WINDOW requests that were sent later have been answered."""
        return len(self.samples) >= WINDOW and at < self.samples[0][0]

    def _settle(self) -> None:
        samples = self.samples
        self.known95 = self.mixed(())
        self.expires = samples[0][0] + self._span_s if samples else float("inf")
        self.unwell = bool(samples) and self.known95 > UNWELL * self.usual

    def _drop(self) -> None:
        value = self.samples.popleft()[1]
        del self._ordered[bisect_left(self._ordered, value)]


class Fit:
    """Recursive least squares with forgetting over (1, thousands of prompt tokens, requests in flight) -> seconds. Outliers are clipped.
    spread_s: errors grow with the time beyond it, and count less accordingly; 0 = all count alike."""

    __slots__ = ("_least", "_p", "_scale", "_spread_s", "_w")

    def __init__(self, prior_s: float, least_scale_s: float, spread_s: float = 0.0) -> None:
        self._w = [prior_s, 0.0, 0.0]
        self._p = [10.0, 0.0, 0.0, 0.1, 0.0, 0.025]  # upper triangle: 00 01 02 11 12 22; variance of the prior over that of the noise
        self._least = least_scale_s
        self._spread_s = spread_s
        self._scale = max(prior_s, 2.5 * least_scale_s)  # the usual absolute error, seconds

    @property
    def intercept_us(self) -> int:
        return int(self._w[0] * 1e6)

    @property
    def slope_ps(self) -> int:
        return min(MAX_SLOPE_PS, max(0, int(self._w[1] * 1e9)))

    @property
    def load_ns(self) -> int:
        return min(MAX_LOAD_NS, max(0, int(self._w[2] * 1e9)))

    def learn(self, seconds: float, tokens: int, in_flight: int) -> None:
        x, y = tokens / 1000.0, float(in_flight)
        w, (a, b, c, d, e, f) = self._w, self._p
        fitted = w[0] + w[1] * x + w[2] * y
        error = seconds - fitted
        weight = (1.0 + max(fitted, 0.0) / self._spread_s) ** 2 if self._spread_s else 1.0
        limit = OUTLIER * self._scale
        self._scale = max(self._least, 0.95 * self._scale + 0.05 * min(abs(error), limit))
        error = min(max(error, -limit), limit)
        g0, g1, g2 = a + b * x + c * y, b + d * x + e * y, c + e * x + f * y
        gain = 1.0 / (FORGET * weight + g0 + g1 * x + g2 * y)
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


class Times:
    """One of the two times of a backend: a fit over prompt tokens and load, and the q95 of what it leaves over."""

    __slots__ = ("_fit", "_line", "_loaded", "_rest", "_since_refit", "window")

    def __init__(self, prior_ms: float, fit: Fit | None, span_s: float, loaded: bool, spread_us: int = 0) -> None:
        """fit: prompt tokens matter; loaded: requests in flight do too."""
        prior_us = int(prior_ms * 1000)
        self._fit = fit
        self._loaded = loaded
        self._since_refit = 0
        if spread_us:  # so that it predicts the prior until it knows better
            self.window = Window(PRIOR_SPREAD, span_s)
            intercept = (prior_us * 1_000_000 - PRIOR_SPREAD * spread_us) // (1_000_000 + PRIOR_SPREAD)
            self._rest: Line = (0, 0, intercept, spread_us)
        else:
            self.window = Window(prior_us, span_s)
            self._rest = ()
        self._line: Line = (self.window.q95(0.0), *self._rest)

    def line(self, now: float, late: Sequence[tuple[float, int]] = ()) -> Line:
        """late: (when sent, what is left over) of requests that still wait, beside what is known."""
        window = self.window
        base = window.known95 if now <= window.expires else window.q95(now)
        if late:
            return window.mixed(late), *self._rest
        line = self._line
        if line[0] != base:
            line = self._line = (base, *self._rest)
        return line

    def observe(self, at: float, seconds: float, tokens: int, in_flight: int) -> None:
        """at: when the request was sent."""
        us = min(MAX_US, max(0, int(seconds * 1_000_000)))
        fit = self._fit
        if fit is None:
            self.window.add(at, us)
            return
        load = in_flight if self._loaded else 0
        fit.learn(us / 1e6, tokens, load)
        line = (0, *self._rest)
        self.window.add(at, residual95(line, us, tokens, load), (us, tokens, load))
        self._since_refit += 1
        if self._since_refit >= REFIT_EVERY:
            self._since_refit = 0
            spread = self._rest[3] if len(self._rest) > 3 else 0
            rest = [fit.slope_ps, fit.load_ns if self._loaded else 0, fit.intercept_us if spread else 0, spread]
            while rest and rest[-1] == 0:
                rest.pop()
            self._rest = tuple(rest)
            line = (0, *self._rest)
            self.window.replace([residual95(line, *raw) for _, _, raw in self.window.samples])
            self._line = (self.window.q95(at), *self._rest)


class Predictor:
    """What one backend's recent past says. `observe_*` take seconds; the rest is integer microseconds. own: an engine that queues what it
    is sent, so that its load is its speed."""

    __slots__ = ("tpot", "ttft")

    def __init__(self, ttft_prior_ms: float, tpot_prior_ms: float, own: bool = False, span_s: float = WINDOW_S) -> None:
        ttft_fit = Fit(ttft_prior_ms / 1000.0, LEAST_SCALE_S, SPREAD_US / 1e6 if own else 0.0)
        self.ttft = Times(ttft_prior_ms, ttft_fit, span_s, own, SPREAD_US if own else 0)
        self.tpot = Times(tpot_prior_ms, Fit(tpot_prior_ms / 1000.0, LEAST_PACE_SCALE_S) if own else None, span_s, own)

    def observe_whole(self, at: float, seconds: float, output_tokens: int, load: tuple[int, int]) -> None:
        """An answer that came in one piece: split its time as the present prediction would. load: prompt tokens, in flight."""
        ttft = max(1, predicted95_us(self.ttft.line(at), *load))
        share = ttft / (ttft + predicted95_us(self.tpot.line(at), *load) * output_tokens)
        self.ttft.observe(at, seconds * share, *load)
        if output_tokens > 0:
            self.tpot.observe(at, seconds * (1.0 - share) / output_tokens, *load)
