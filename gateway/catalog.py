"""The catalog: routes, backends and prices as one immutable snapshot, swapped whole on reload. A request keeps the one it began with."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Price(Struct, frozen=True, kw_only=True):
    """Every rate is integer nano-USD per MILLION tokens ("0.15" USD per million = 150_000_000): exact for any published price.

    None = the price list names no such class: the dearer neighbour is used (see money/pricing.py), never zero.
    """

    id: str  # where it came from and which version: "config:<backend>:<hash>", "genai-prices:0.2.3:openai/gpt-4o-mini"
    input: int
    output: int
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    input_image: int | None = None
    output_image: int | None = None
    per_request: int = 0  # nano-USD
    batch_discount: int | None = None  # millionths off the tokens of a batch; None = not known, billed without
    tiers: tuple[Tier, ...] = ()  # long-context tiers, ascending by `above`; a tier applies to the whole request


class Tier(Struct, frozen=True, kw_only=True):
    """Rates when the prompt has more than `above` tokens. None = not less than the price's own, see money/pricing.py."""

    above: int
    input: int
    output: int
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    input_image: int | None = None
    output_image: int | None = None


class Backend(Struct, frozen=True, kw_only=True):
    """One model at one provider endpoint. price None = unknown, which is not zero.

    hourly_nanousd: of hardware that one owns; then requests pay a share of it, and `price` is only what one token more costs: what
    routing compares.
    """

    name: str
    vendor: str
    model: str
    dialect: str
    base_url: str = ""
    api_key: str = ""  # a reference, env:NAME or file:PATH; the value lives in the provider alone
    price: Price | None = None
    hourly_nanousd: int | None = None
    capabilities: frozenset[str] = frozenset()
    honours: frozenset[str] = frozenset()  # fields that no language's table knows and that it understands
    refuses: frozenset[str] = frozenset()  # parameters that it takes with their default value alone
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    token_factor: float = 1.5  # our token estimate × this is an upper bound for this model family
    parallel: int | None = None  # most attempts in flight at once, per worker
    rpm: int | None = None  # requests a minute that the vendor allows, over all workers
    tpm: int | None = None  # tokens a minute, likewise
    prompt_cache_s: float = 300.0  # how long after its last use a hosted vendor keeps a prompt
    own: bool = False  # an engine that queues what it is sent: its load is its speed
    labels: Mapping[str, str] = {}
    ttft_prior_ms: float = 800.0
    tpot_prior_ms: float = 20.0
    connect_s: float = 5.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0


class QualityRule(Struct, frozen=True, kw_only=True):
    """Which backends of a route are weak, and when they will do. most_gain: by so much likelier, in millionths, may a strong model be
    right; strong_share: this share of prompts goes to strong ones instead. model: a file, "" = the one that ships."""

    weak: tuple[str, ...]
    most_gain: int = 0
    strong_share: float | None = None
    model: str = ""


class Route(Struct, frozen=True, kw_only=True):
    """What a client names as `model`: a policy over backends."""

    name: str
    backends: tuple[str, ...]
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    deadline_ms: float | None = None
    cache: str = "deterministic"  # deterministic | always | never
    cache_ttl_s: int = 3600
    max_attempts: int = 3  # over all backends
    free_when_spent: bool = True  # a backend of price 0 may be asked when a budget has nothing left
    labels: Mapping[str, str] = {}  # a backend must carry each of them
    quality: QualityRule | None = None


class Catalog(Struct, frozen=True, kw_only=True):
    version: str
    backends: Mapping[str, Backend]
    routes: Mapping[str, Route]
