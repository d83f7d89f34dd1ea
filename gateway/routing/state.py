"""One worker's knowledge of one backend: requests in flight, predictor, health. Changed only through the Call of each attempt.

Knows no route and no request beyond its sizes; the clock (monotonic seconds) is passed in; what it learns dies with the worker.
"""

from __future__ import annotations

from gateway.catalog import Backend
from gateway.routing.features import Features
from gateway.routing.health import Health
from gateway.routing.predict import CENSOR_MOST, Predictor
from gateway.settings import Routing
from providers.errors import ProviderError

MIN_PACE_TOKENS = 4  # a shorter answer says nothing about the time per token

Rates = tuple[int, int, int, int]  # nano-USD per million: input, output, cache read; nano-USD per request


class BackendState:
    """Read by filters and prediction, written by `Call`. Survives a reload of the catalog under its name."""

    __slots__ = ("backend", "health", "in_flight", "predictor", "price_id", "rates", "waiting")

    def __init__(self, backend: Backend, settings: Routing | None = None) -> None:
        settings = settings or Routing()
        self.health = Health(settings.eject_after, settings.eject_s, settings.eject_cap_s)
        self.predictor = Predictor(backend.ttft_prior_ms, backend.tpot_prior_ms)
        self.in_flight = 0
        self.waiting: dict[Call, None] = {}  # without a first token so far, oldest first
        self.update(backend)

    def update(self, backend: Backend) -> None:
        """The catalog was reloaded: a new price, limit or label; what was learnt stays."""
        self.backend = backend
        self.price_id = "" if backend.price is None else backend.price.id
        self.rates: Rates | None = None  # None also when a long prompt has rates of its own: see pricing in choose.py
        price = backend.price
        if price is not None and not price.tiers:
            self.rates = (price.input, price.output, price.input if price.cache_read is None else price.cache_read, price.per_request)

    def started(self, now: float, features: Features) -> Call:
        """An attempt is about to be sent. Exactly one of ended, failed and left must follow on the Call; a second one is harmless."""
        return Call(self, now, features)

    def ttft_base_us(self, now: float) -> int:
        """The residual q95; requests that wait longer than it predicts count as samples, which is what betrays a hang."""
        base = self.predictor.ttft.q95(now)
        if not self.waiting:
            return base
        late = []
        for seen, call in enumerate(self.waiting):
            waited = int((now - call.began) * 1_000_000)
            if seen >= CENSOR_MOST or waited <= base:  # the younger ones have waited less
                break
            residual = self.predictor.residual(waited - call.allowance_us, call.input_tokens, call.load)
            if residual > base:
                late.append(residual)
        return self.predictor.ttft.mixed(late) if late else base


class Call:
    """One attempt in flight, as the learner sees it. Times are those of its events; nothing here awaits or raises."""

    __slots__ = ("_open", "_state", "allowance_us", "began", "first_at", "input_tokens", "load", "stream")

    def __init__(self, state: BackendState, now: float, features: Features) -> None:
        self._state = state
        self._open = True
        self.began = now
        self.first_at: float | None = None
        self.input_tokens = features.input_tokens
        self.stream = features.stream
        self.load = state.in_flight
        # a whole answer shows nothing before its end: that it is still being written is no sign of trouble
        self.allowance_us = 0 if features.stream else state.predictor.tpot.q95(now) * features.expected_output_tokens
        state.in_flight += 1
        state.waiting[self] = None
        state.health.began(now, self)

    def first_token(self, now: float) -> None:
        """The first event that carries something: the commit point."""
        if self.first_at is not None or not self._open:
            return
        self.first_at = now
        state = self._state
        state.waiting.pop(self, None)
        if self.stream:
            state.predictor.observe_ttft(now, now - self.began, self.input_tokens, self.load)
        state.health.succeeded(self, self.began)

    def ended(self, now: float, output_tokens: int) -> None:
        """The answer is complete. output_tokens: of all choices, reasoning included."""
        if not self._close():
            return
        state = self._state
        state.health.succeeded(self, self.began)
        if not self.stream:
            state.predictor.observe_whole(now, now - self.began, output_tokens, (self.input_tokens, self.load))
        elif self.first_at is not None and output_tokens >= MIN_PACE_TOKENS:
            state.predictor.observe_tpot(now, (now - self.first_at) / (output_tokens - 1))

    def failed(self, now: float, error: ProviderError) -> None:
        """The backend failed before or after its first token, or refused."""
        if not self._close():
            return
        if not error.answered:
            self._learn_from_wait(now)
        self._state.health.failed(now, error, self, self.began)

    def left(self, now: float) -> None:
        """Ended without a verdict: the client went away, or another attempt won."""
        if self._close():
            self._learn_from_wait(now)
            self._state.health.left(self)

    def _learn_from_wait(self, now: float) -> None:
        """A wait beyond the prediction is a lesson though nothing came: it would have taken at least this long. A shorter one is not."""
        predictor = self._state.predictor
        waited = int((now - self.began) * 1_000_000) - self.allowance_us
        if self.first_at is None and predictor.residual(waited, self.input_tokens, self.load) > predictor.ttft.q95(now):
            predictor.observe_ttft(now, waited / 1e6, self.input_tokens, self.load)

    def _close(self) -> bool:
        if not self._open:
            return False
        self._open = False
        self._state.in_flight -= 1
        self._state.waiting.pop(self, None)
        return True
