"""The backends of the simulation: hosted ones that answer as published measurements did, an engine of one's own, and what befalls them.

Every draw is fixed by (seed, backend, request), so that all policies meet the same world. Knows no policy.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

from msgspec import Struct

from providers.errors import ProviderError, RateLimited, ServerFailed, Unavailable

MEASURED_TOKENS = 550  # the prompts of the published measurements
DRAWS = 4096  # per backend; a further request begins again
BROWN_TTFT, BROWN_TPOT = 20.0, 12.0
REFUSED_S = 0.05  # how long an outage takes to say so
OUTAGE = Unavailable("the backend is down", answered=True)


class Spell(Struct, frozen=True):
    """kind: outage | hang | brown, from begin to end (seconds)."""

    kind: str
    begin: float
    end: float


class Offer(Struct, frozen=True):
    """A hosted backend as an operator would configure it. Nano-USD per million tokens; rpm and tpm are what its vendor allows."""

    name: str
    provider: str  # in the published measurements
    model: str
    input: int
    output: int
    rpm: int
    tpm: int
    prefill_s: float = 0.00006  # per prompt token beyond those measured


USD = 10**9
# List prices and tiers of early 2024 as an operator would have written them; two sizes of one family, both good enough for the route.
OFFERS = (
    Offer("replicate-13b", "replicate", "llama-2-13b", USD // 10, USD // 2, rpm=75, tpm=120_000),
    Offer("fireworks-13b", "fireworks", "llama-2-13b", USD // 5, USD // 5, rpm=75, tpm=120_000),
    Offer("anyscale-13b", "anyscale", "llama-2-13b", USD // 4, USD // 4, rpm=75, tpm=120_000),
    Offer("together-13b", "together", "llama-2-13b", 3 * USD // 10, 3 * USD // 10, rpm=75, tpm=120_000),
    Offer("groq-70b", "groq", "llama-2-70b", 7 * USD // 10, 8 * USD // 10, rpm=75, tpm=120_000),
    Offer("together-70b", "together", "llama-2-70b", 9 * USD // 10, 9 * USD // 10, rpm=75, tpm=120_000),
    Offer("perplexity-70b", "perplexity", "llama-2-70b", 7 * USD // 10, 28 * USD // 10, rpm=75, tpm=120_000),
)
LOCAL = "own-13b"
LOCAL_RATES = (USD // 50, USD // 50)  # marginal: power; the card is paid whether it works or not
FAST, CHEAP = "groq-70b", "fireworks-13b"
SCENARIOS = ("normal", "outage", "hang", "brown-fast", "brown-cheap")


def spells(scenario: str, target: str, begin: float, length: float) -> dict[str, tuple[Spell, ...]]:
    """What befalls whom. target: of outage and hang, "" = the cheapest hosted backend."""
    if scenario == "normal":
        return {}
    kind, who = {
        "outage": ("outage", target or CHEAP),
        "hang": ("hang", target or CHEAP),
        "brown-fast": ("brown", FAST),
        "brown-cheap": ("brown", CHEAP),
    }[scenario]
    return {who: (Spell(kind, begin + 0.2 * length, begin + 0.5 * length),)}


class Bucket:
    """A vendor's limit per minute, refilled all the time; a quarter of a minute may come at once."""

    __slots__ = ("at", "left", "most", "per_s")

    def __init__(self, per_minute: float) -> None:
        self.per_s = per_minute / 60.0
        self.most = self.left = per_minute / 4.0
        self.at = 0.0

    def wait_s(self, now: float, amount: float) -> float:
        """Seconds until `amount` is there; 0 = now."""
        self.left = min(self.most, self.left + (now - self.at) * self.per_s)
        self.at = now
        return max(0.0, (min(amount, self.most) - self.left) / self.per_s)

    def take(self, amount: float) -> None:
        self.left -= amount


class Outcome(Struct, gc=False):
    """first_s None: no token comes; then error after error_s, or nothing at all when error is None too."""

    first_s: float | None = None
    tpot_s: float = 0.0
    error: ProviderError | None = None
    error_s: float = 0.0


class Hosted:
    def __init__(self, offer: Offer, rows: list[tuple[float, float, str]], seed: int, befalls: tuple[Spell, ...]) -> None:
        self.offer = offer
        self.spells = befalls
        draw = random.Random(f"{offer.name}:{seed}")
        self._draws = [rows[draw.randrange(len(rows))] for _ in range(DRAWS)]
        answered = [row for row in rows if not row[2]]
        self.priors = {
            "ttft_prior_ms": 1000.0 * _p95([row[0] for row in answered]),
            "tpot_prior_ms": 1000.0 * _p95([row[1] for row in answered]),
        }
        self._requests = Bucket(offer.rpm)
        self._tokens = Bucket(offer.tpm)

    def spell(self, now: float) -> str:
        for one in self.spells:
            if one.begin <= now < one.end:
                return one.kind
        return ""

    def limited_s(self, now: float, tokens: int) -> float:
        """How long its rate limits refuse this many tokens."""
        return max(self._requests.wait_s(now, 1.0), self._tokens.wait_s(now, tokens))

    def outcome(self, index: int, input_tokens: int, now: float) -> Outcome:
        """What would come of a request sent now, rate limits aside."""
        kind = self.spell(now)
        if kind == "outage":
            return Outcome(error=OUTAGE, error_s=REFUSED_S)
        if kind == "hang":
            return Outcome()
        ttft, tpot, error = self._draws[index % DRAWS]
        if error:
            return Outcome(error=ServerFailed(f"error {error}", answered=True), error_s=0.3)
        first = max(0.02, ttft + (input_tokens - MEASURED_TOKENS) * self.offer.prefill_s)
        if kind == "brown":
            return Outcome(first * BROWN_TTFT, tpot * BROWN_TPOT)
        if any(one.kind == "hang" and one.begin <= now + first < one.end for one in self.spells):
            return Outcome()
        return Outcome(first, tpot)

    def send(self, index: int, input_tokens: int, output_tokens: int, now: float) -> Outcome:
        """The same, and counted against the rate limits."""
        tokens = input_tokens + output_tokens
        wait = self.limited_s(now, tokens)
        if wait > 0.0 and self.spell(now) not in ("outage", "hang"):
            return Outcome(error=RateLimited("429", answered=True, retry_after_s=wait), error_s=REFUSED_S)
        self._requests.take(1.0)
        self._tokens.take(tokens)
        return self.outcome(index, input_tokens, now)


def _p95(values: list[float]) -> float:
    return sorted(values)[len(values) * 95 // 100]


def published(path: Path) -> dict[tuple[str, str], list[tuple[float, float, str]]]:
    """(TTFT, time per token, error code) by provider and model."""
    found: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    with path.open(newline="") as file:
        for one in csv.DictReader(file):
            error = one["error_code"].strip()
            sample = (0.0, 0.0, error) if error else (float(one["ttft_s"]), float(one["inter_token_latency_s"]), "")
            found.setdefault((one["provider"], one["model"]), []).append(sample)
    return found
