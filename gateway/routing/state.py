"""One worker's knowledge of one backend: requests in flight, predictor, health. Changed only through the Call of each attempt.

Knows no route and no request beyond its sizes; the clock (monotonic seconds) is passed in; what it learns dies with the worker.
"""

from __future__ import annotations

from zlib import crc32

from gateway.catalog import Backend
from gateway.routing.affinity import PromptCache, keeps_prompts
from gateway.routing.engine_load import EngineLoad, Load
from gateway.routing.features import Features
from gateway.routing.headroom import Headroom
from gateway.routing.health import Health
from gateway.routing.predict import CENSOR_MOST, MAX_US, SPARED_OF_RUN, UNWELL, Line, Predictor, predicted95_us, residual95
from gateway.routing.prefixes import Prefixes
from gateway.settings import Routing
from providers.errors import ProviderError
from providers.limit_headers import Limits

MIN_PACE_TOKENS = 4  # a shorter answer says nothing about the time per token
CONTENDED = 0.8  # of its parallel requests
FRESH = 0.25  # of the window's span: a backend with a sample this young is not explored
STALLED = 3  # so many requests that wait long, and no answer since they began: the backend hangs
STALLED_TIMES = 3.0  # long = so many times the prediction
CUT_SHORT = 2  # a late request that was cancelled would have waited so many times as long: else a hedge would hide how late a hosted
# backend is; in a queue of one's own what is ahead is known
FAILURE_MEMORY_S = 60.0  # failures and answers count by half after so long
ANSWERS_BEFORE = 10.0  # as if so many answers had come before the first attempt

Rates = tuple[int, int, int, int]  # nano-USD per million: input, output, cache read; nano-USD per request


class BackendState:
    """Read by filters and prediction, written by `Call`. Survives a reload of the catalog under its name."""

    __slots__ = (
        "_answers",
        "_counted_at",
        "backend",
        "drained",
        "engine",
        "failures",
        "fresh_s",
        "headroom",
        "health",
        "held",
        "in_flight",
        "kin",
        "last_token_at",
        "limits",
        "outstanding",
        "predictor",
        "prefixes",
        "price_id",
        "prompts",
        "rates",
        "reads_for_less",
        "scarcity",
        "waiting",
        "workers",
    )

    def __init__(self, backend: Backend, settings: Routing | None = None, workers: int = 1) -> None:
        settings = settings or Routing()
        self.health = Health(settings.eject_after, settings.eject_s, settings.eject_cap_s)
        self.predictor = Predictor(backend.ttft_prior_ms, backend.tpot_prior_ms, backend.own, settings.window_s)
        self.fresh_s = FRESH * settings.window_s
        self.workers = workers
        self.prefixes = Prefixes()  # of an engine of one's own
        self.prompts = PromptCache(backend.prompt_cache_s)  # of a hosted one
        self.engine = EngineLoad()  # stays empty where nothing is read
        self.drained = False  # an operator's word: no new requests
        self.in_flight = 0
        self.scarcity = 0  # of an engine of one's own, see scarcity.py
        self.held: dict[int, int] = {}  # by team: what its calls under way are expected to cost
        self.outstanding = 0  # prompt tokens of those that wait for their first token
        self.waiting: dict[Call, None] = {}  # without a first token so far, oldest first
        self.last_token_at = float("-inf")  # the newest first token
        self._answers = self.failures = 0.0  # recent ones, decayed to the time they were counted
        self._counted_at = 0.0
        self.headroom = Headroom(None, None)
        self.limits: tuple[int | None, int | None, int] = (None, None, workers)
        self.update(backend)

    def update(self, backend: Backend) -> None:
        """The catalog was reloaded: a new price, limit or label; what was learnt stays."""
        self.backend = backend
        self.share(self.workers)
        self.prompts.keep_s = backend.prompt_cache_s
        self.reads_for_less = not backend.own and keeps_prompts(backend)  # what its vendor's prompt cache holds
        self.kin = crc32(backend.vendor.encode()) & 0xFFFF  # whoever shares it may fail for the same reason
        self.price_id = "" if backend.price is None else backend.price.id
        self.rates: Rates | None = None  # None also when a long prompt has rates of its own: see pricing in choose.py
        price = backend.price
        if price is not None and not price.tiers:
            self.rates = (price.input, price.output, price.input if price.cache_read is None else price.cache_read, price.per_request)

    def share(self, workers: int) -> None:
        """So many workers live, this one included, which share the vendor's rate limits."""
        limits = (self.backend.rpm, self.backend.tpm, workers)
        if limits != self.limits:
            self.limits, self.workers = limits, workers
            self.headroom.resize(*(None if limit is None else limit / workers for limit in limits[:2]))

    def started(self, now: float, features: Features) -> Call:
        """An attempt is about to be sent. Exactly one of ended, failed and left must follow on the Call; a second one is harmless."""
        return Call(self, now, features)

    def ttft_line(self, now: float) -> Line:
        """The prediction of the first token; requests that wait longer than it said count as samples, which is what betrays a hang."""
        return self.lines(now)[0]

    def lines(self, now: float) -> tuple[Line, Line]:
        """The predictions of the first token and of the time per token. A hosted backend whose first tokens come far later than usual is
        held to write as much slower, until it is known: the first answer of a brown-out that ends is long in coming."""
        times = self.predictor.ttft
        ttft, tpot = times.line(now), self.predictor.tpot.line(now)
        for oldest in self.waiting:
            if (now - oldest.began) * 1e6 > oldest.expected_us:
                ttft = self._beside_waiting(now, ttft)
            break
        if ttft[0] > UNWELL * times.window.usual and not self.backend.own:
            tpot = self._slowed(ttft[0], tpot)
        return ttft, tpot

    def _beside_waiting(self, now: float, line: Line) -> Line:
        times = self.predictor.ttft
        late = []
        for seen, call in enumerate(self.waiting):
            waited = int((now - call.began) * 1_000_000)
            if seen >= CENSOR_MOST or waited <= call.expected_us:  # the younger ones have waited less
                break
            if times.window.replaced(call.began):
                continue  # an outlier, and so many have been answered since that it would be none of the recent ones
            residual = residual95(line, waited - call.allowance_us, call.tokens, call.load)
            if residual > line[0]:
                late.append((call.began, residual))
        return times.line(now, late) if late else line

    def _slowed(self, ttft_us: int, tpot: Line) -> Line:
        first, samples = self.predictor.ttft.window, self.predictor.tpot.window.samples
        if first.usual <= 0 or (len(samples) > SPARED_OF_RUN and samples[-1 - SPARED_OF_RUN][0] > first.well_at):
            return tpot
        return (min(MAX_US, tpot[0] * ttft_us // first.usual),)

    def load(self, now: float) -> Load:
        """Of an engine of one's own: what this worker has there and, by the engine's own figures while they are fresh, all others."""
        ahead, in_flight = self.engine.others(now)
        return self.outstanding + ahead, self.in_flight + in_flight

    def contended(self, now: float) -> bool:
        """Whether the last places of its limit of parallel requests are being taken, or an engine's cache is full."""
        parallel = self.backend.parallel
        return (parallel is not None and self.in_flight >= CONTENDED * parallel) or self.engine.full(now)

    def over_share(self, team: int) -> bool:
        """Whether this team's calls under way are worth more than an equal share of all."""
        return len(self.held) > 1 and self.held.get(team, 0) * len(self.held) > sum(self.held.values())

    def stalled(self, now: float) -> bool:
        """Several wait for much longer than was predicted, and none was answered since: silence, of which no average tells."""
        for late, call in enumerate(self.waiting, 1):
            if (now - call.began) * 1e6 <= STALLED_TIMES * call.expected_us:
                return False
            if late == STALLED:
                return self.last_token_at < call.began
        return False

    def attempted(self, now: float, failed: bool) -> None:
        """One more attempt is over."""
        kept = 0.5 ** ((now - self._counted_at) / FAILURE_MEMORY_S)
        self._counted_at = now
        self._answers *= kept
        self.failures *= kept
        if failed:
            self.failures += 1.0
        else:
            self._answers += 1.0

    def odds_ppm(self, now: float) -> int:
        """Of an attempt to fail rather than not, in millionths."""
        if self.failures < 0.01:
            return 0
        kept = 0.5 ** ((now - self._counted_at) / FAILURE_MEMORY_S)
        return int(1_000_000 * self.failures * kept / (ANSWERS_BEFORE + self._answers * kept))


class Call:
    """One attempt in flight, as the learner sees it. Times are those of its events; nothing here awaits or raises."""

    __slots__ = (
        "_answer",
        "_fresh",
        "_held",
        "_open",
        "_prefix",
        "_route",
        "_sent",
        "_state",
        "_team",
        "_worth",
        "allowance_us",
        "began",
        "expected_us",
        "first_at",
        "load",
        "stream",
        "tokens",
    )

    def __init__(self, state: BackendState, now: float, features: Features) -> None:
        self._state = state
        self._open = True
        self.began = now
        self.first_at: float | None = None
        own = state.backend.own
        self._fresh = features.input_tokens
        self._route, self._prefix, self._held = features.route, features.prefix, 0
        if features.prefix:
            if own:
                self._fresh -= state.prefixes.cached_tokens(features.prefix, features.input_tokens)
                state.prefixes.sent(features.prefix)
            elif state.reads_for_less:
                self._held = state.prompts.held_tokens(features, now)
        ahead, self.load = state.load(now) if own else (0, 0)
        self.tokens = ahead + self._fresh
        self.stream = features.stream
        # a whole answer shows nothing before its end: that it is still being written is no sign of trouble
        self.allowance_us = 0
        predictor = state.predictor
        if not features.stream:
            self.allowance_us = predicted95_us(predictor.tpot.line(now), self.tokens, self.load) * features.expected_output_tokens
        self.expected_us = predicted95_us(predictor.ttft.line(now), self.tokens, self.load) + self.allowance_us
        self._team = features.team
        rates = state.rates
        tokens = features.input_tokens + features.expected_output_tokens
        self._worth = 1 + (tokens if rates is None else (features.input_tokens * rates[0] + features.expected_output_tokens * rates[1]))
        state.held[self._team] = state.held.get(self._team, 0) + self._worth
        state.in_flight += 1
        state.outstanding += self._fresh
        state.waiting[self] = None
        state.health.began(now, self)
        self._answer = features.expected_output_tokens
        state.headroom.took(now, features.input_tokens, self._answer)
        self._sent = state.headroom.sent

    def told(self, now: float, limits: Limits) -> None:
        """What the headers of its answer, good or refused, say of the vendor's rate limits."""
        self._state.headroom.told(now, limits, self._state.workers, self.began, self._sent)

    def first_token(self, now: float) -> None:
        """The first event that carries something: the commit point."""
        if self.first_at is not None or not self._open:
            return
        self.first_at = now
        state = self._state
        state.waiting.pop(self, None)
        state.outstanding -= self._fresh
        state.last_token_at = now
        if self._prefix and state.reads_for_less:
            state.prompts.answered(self._prefix, now)
        if self.stream:
            state.predictor.ttft.observe(self.began, now - self.began, self.tokens, self.load)
        state.health.succeeded(self, self.began)

    def ended(self, now: float, output_tokens: int, cache_read_tokens: int | None = None) -> None:
        """The answer is complete. output_tokens: of all choices, reasoning included. cache_read_tokens: of its prompt by the vendor's word,
        None = it said nothing."""
        if not self._close():
            return
        state = self._state
        if self._held and cache_read_tokens is not None:
            state.prompts.learn(self._route, self._held, cache_read_tokens)
        state.health.succeeded(self, self.began)
        state.attempted(now, failed=False)
        state.headroom.came(now, output_tokens - self._answer)
        if not self.stream:
            state.predictor.observe_whole(self.began, now - self.began, output_tokens, (self.tokens, self.load))
        elif self.first_at is not None and output_tokens >= MIN_PACE_TOKENS:
            state.predictor.tpot.observe(self.began, (now - self.first_at) / (output_tokens - 1), self.tokens, self.load)

    def failed(self, now: float, error: ProviderError) -> None:
        """The backend failed before or after its first token, or refused."""
        if not self._close():
            return
        if not error.answered:
            self._learn_from_wait(now, 1)
        if error.limits is not None:
            self.told(now, error.limits)
        self._state.health.failed(now, error, self, self.began)
        if error.unhealthy:
            self._state.attempted(now, failed=True)

    def left(self, now: float) -> None:
        """Ended without a verdict: the client went away, or another attempt won."""
        if self._close():
            self._learn_from_wait(now, 1 if self._state.backend.own else CUT_SHORT)
            self._state.health.left(self)

    def _learn_from_wait(self, now: float, times_as_long: int) -> None:
        """A wait beyond the prediction is a lesson though nothing came: it would have taken at least this long. A shorter one is not."""
        times = self._state.predictor.ttft
        waited = int((now - self.began) * 1_000_000) - self.allowance_us
        if self.first_at is None and waited > predicted95_us(times.line(now), self.tokens, self.load):
            times.observe(self.began, times_as_long * waited / 1e6, self.tokens, self.load)

    def _close(self) -> bool:
        if not self._open:
            return False
        self._open = False
        state = self._state
        state.in_flight -= 1
        left = state.held[self._team] - self._worth
        if left > 0:
            state.held[self._team] = left
        else:
            del state.held[self._team]
        if self.first_at is None:
            state.waiting.pop(self, None)
            state.outstanding -= self._fresh
        return True
