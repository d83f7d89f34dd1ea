"""Prices and the cost of one attempt: Decimal in, integer nano-USD out. Knows no budget and no database.

The rule for a class that a price list does not name: it is billed as the dearer neighbour that the list does name, never as zero.
cache_read -> input · cache_write_5m -> input · cache_write_1h -> cache_write_5m -> input · reasoning -> output · audio and images ->
input, output. A long-context tier applies to the whole request; a class that it does not name costs there no less than outside of it.
A batch pays its tokens less the vendor's discount, where that is known. The sum is rounded once per attempt, half to even, to whole
nano-USD; the cost of a request is the sum of its attempts. A missing price is None, never 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import structs

from gateway.catalog import Price, Tier
from gateway.settings import PriceSettings, TierSettings
from providers.types import Usage

NANO = 1_000_000_000
USD_MOST = 1_000_000_000  # of one amount: far inside 64 bits of nano-USD
MILLION = 1_000_000
TIERS_MAX = 16
BATCH = "batch"  # the kind of a request that a vendor's batch API answered
CLASSES = (
    *("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning"),
    *("input_audio", "output_audio", "input_image", "output_image"),
)
_MOST_USD = Decimal(1_000_000)  # per million tokens: beyond it a price is a slip of the pen


def nanousd(text: str | Decimal, name: str = "amount") -> int:
    """Decimal USD to integer nano-USD, exact; ValueError when it is no number, negative, more than USD_MOST or finer than a nano-dollar."""
    told = repr(str(text)[:80])
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{name}: {told} is not a decimal number such as 0.15") from error
    if not value.is_finite() or value < 0:
        raise ValueError(f"{name}: {told} must be 0 or more")
    if value > USD_MOST:  # before it is an integer: 1e999999 has a million digits
        raise ValueError(f"{name}: {told} must be at most {USD_MOST}")
    scaled = value * NANO
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{name}: {told} is finer than a nano-dollar (nine decimals)")
    return int(scaled)


def usd(amount: int | None) -> str:
    """Nano-USD as money is printed: nine decimals, `unknown` for None."""
    if amount is None:
        return "unknown"
    whole, rest = divmod(abs(amount), NANO)
    return f"{'-' if amount < 0 else ''}{whole}.{rest:09d}"


def _rate(text: str | Decimal | None, name: str) -> int | None:
    if text is None:
        return None
    rate = nanousd(text, name)
    if Decimal(text) > _MOST_USD:
        raise ValueError(f"{name}: {text} USD per million tokens is not believable; prices are per million, not per token")
    return rate


def parse_price(price: PriceSettings, backend: str) -> Price:
    """The price that the settings give a backend. ValueError names the backend and the field."""
    parsed = read_price(price, f"backend {backend!r}: price.")
    digest = hashlib.sha256(msgspec.json.encode(parsed)).hexdigest()[:12]
    return structs.replace(parsed, id=f"config:{backend}:{digest}")


def read_price(price: PriceSettings, where: str = "") -> Price:
    """The same without an id. where: what stands before a field's name in the ValueError."""
    return Price(
        id="",
        **_rates(price, where),
        per_request=_rate(price.per_request, f"{where}per_request") or 0,
        batch_discount=_discount(price.batch_discount, f"{where}batch_discount"),
        tiers=_read_tiers(price.tiers, where),
    )


def _rates(given: PriceSettings | TierSettings, where: str) -> dict[str, Any]:
    """Every class; input and output are there, so that an explicit "0" is a price."""
    rates = {name: _rate(getattr(given, name), where + name) for name in CLASSES}
    for name in ("input", "output"):
        if rates[name] is None:
            raise ValueError(f"{where}{name}: is required")
    return rates


def _discount(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    share = Decimal(nanousd(text, name)) / NANO
    if share > 1 or share * MILLION != int(share * MILLION):
        raise ValueError(f"{name}: {text!r} is a share between 0 and 1 with at most six decimals, such as 0.5")
    return int(share * MILLION)


def _read_tiers(given: Sequence[TierSettings], where: str) -> tuple[Tier, ...]:
    if len(given) > TIERS_MAX:
        raise ValueError(f"{where}tiers: at most {TIERS_MAX}")
    tiers = []
    for number, one in enumerate(given):
        if not 1 <= one.above <= 1_000_000_000:
            raise ValueError(f"{where}tiers[{number}].above: {one.above} is no number of tokens")
        tiers.append(Tier(above=one.above, **_rates(one, f"{where}tiers[{number}].")))
    tiers.sort(key=lambda tier: tier.above)
    for low, high in pairwise(tiers):
        if low.above == high.above:
            raise ValueError(f"{where}tiers: two begin above {low.above} tokens")
    return tuple(tiers)


def rates_at(price: Price, prompt_tokens: int) -> Price | Tier:
    """The highest tier that the prompt passes, else the price itself."""
    found: Price | Tier = price
    for tier in price.tiers:
        if prompt_tokens > tier.above:
            found = tier
    return found


def _first(*rates: int | None) -> int:
    for rate in rates:
        if rate is not None:
            return rate
    raise ValueError("a price names neither the class nor its neighbour")


def round_half_even(numerator: int, divisor: int = MILLION) -> int:
    """numerator / divisor to the nearest integer, a half to the even one; numerator >= 0."""
    whole, rest = divmod(numerator, divisor)
    twice = 2 * rest
    return whole + (1 if twice > divisor or (twice == divisor and whole & 1) else 0)


def cost(price: Price | None, usage: Usage, kind: str = "") -> int | None:
    """Nano-USD of one attempt; None when the price is unknown. kind: as in UsageRecord."""
    if price is None:
        return None
    total = _tokens_cost(price, rates_at(price, usage.prompt_tokens) if price.tiers else price, usage)
    if kind == BATCH and price.batch_discount is not None:
        return round_half_even(total * (MILLION - price.batch_discount), MILLION * MILLION) + price.per_request
    return round_half_even(total) + price.per_request


def _tokens_cost(price: Price, tier: Price | Tier, usage: Usage) -> int:
    """Millionths of a nano-USD, exact. tier: the rates that apply, the price itself or one of its tiers."""
    total = usage.input * tier.input + usage.output * tier.output
    if usage.cache_read:
        total += usage.cache_read * _first(tier.cache_read, tier.input)
    if usage.cache_write_5m:
        total += usage.cache_write_5m * _first(tier.cache_write_5m, tier.input)
    if usage.cache_write_1h:
        total += usage.cache_write_1h * _first(tier.cache_write_1h, tier.cache_write_5m, tier.input)
    if usage.reasoning:
        total += usage.reasoning * _or(tier.reasoning, tier.output, price.reasoning)
    if usage.input_audio:
        total += usage.input_audio * _or(tier.input_audio, tier.input, price.input_audio)
    if usage.input_image:
        total += usage.input_image * _or(tier.input_image, tier.input, price.input_image)
    if usage.output_audio:
        total += usage.output_audio * _or(tier.output_audio, tier.output, price.output_audio)
    if usage.output_image:
        total += usage.output_image * _or(tier.output_image, tier.output, price.output_image)
    return total


def _or(named: int | None, neighbour: int, outside: int | None) -> int:
    """A class that a tier does not name costs there what its neighbour does, and no less than outside of the tier."""
    return named if named is not None else max(neighbour, outside or 0)


def dearest_input(price: Price, rates: Price | Tier) -> int:
    """The highest input rate that any class of a prompt can be billed at under these rates of the price."""
    named = (rates.input, rates.cache_read, rates.cache_write_5m, rates.cache_write_1h, rates.input_audio, rates.input_image)
    return max(rate for rate in (*named, price.input_audio, price.input_image) if rate is not None)


def dearest_output(price: Price, rates: Price | Tier) -> int:
    named = (rates.output, rates.reasoning, rates.output_audio, rates.output_image)
    return max(rate for rate in (*named, price.reasoning, price.output_audio, price.output_image) if rate is not None)


# ---- the seed --------------------------------------------------------------------------------------------------------------------
_SEEDED = {
    "cache_read": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "reasoning": "output_reasoning_mtok",
    "input_audio": "input_audio_mtok",
    "output_audio": "output_audio_mtok",
    "input_image": "input_image_mtok",
    "output_image": "output_image_mtok",
}
# What a vendor takes off the tokens of its batch API, in millionths, by its own documentation; the published data does not say.
BATCH_DISCOUNTS = dict.fromkeys(("anthropic", "google", "groq", "mistral", "openai"), 500_000)


def seed_price(prices_name: str, model: str, at: datetime) -> Price | None:
    """The published price of a vendor's model at an instant, from the data of `genai-prices`; None when it lists none.

    prices_name: the vendor's id there. Imports 50 MiB: for the preparing process, never for a worker.
    """
    import genai_prices
    from genai_prices.data import providers

    vendor = next((found for found in providers if found.id == prices_name), None)
    info = None if vendor is None else vendor.find_model(model, all_providers=providers)
    if info is None:
        return None
    listed = info.get_prices(at)
    base_input, base_output = _base(getattr(listed, "input_mtok", None)), _base(getattr(listed, "output_mtok", None))
    if base_input is None and base_output is None:
        return None
    rates = {ours: _rate(_base(getattr(listed, theirs, None)), theirs) for ours, theirs in _SEEDED.items()}
    per_thousand = getattr(listed, "requests_kcount", None)
    return Price(
        id=f"genai-prices:{genai_prices.__version__}:{prices_name}/{info.id}",
        input=_rate(base_input, "input_mtok") or 0,  # an embedding model lists no output, a speech model no input: they bill none
        output=_rate(base_output, "output_mtok") or 0,
        per_request=0 if per_thousand is None else round_half_even(nanousd(per_thousand, "requests_kcount"), 1000),
        batch_discount=BATCH_DISCOUNTS.get(prices_name),
        tiers=_tiers(listed),
        **rates,
    )


def _base(value: Any) -> Decimal | None:
    base: Decimal | None = getattr(value, "base", value)  # a Decimal, or a tiered price whose base is one
    return base


def _tiers(listed: Any) -> tuple[Tier, ...]:
    """Every threshold that input or output names, with all rates as they stand above it."""
    names = {"input": "input_mtok", "output": "output_mtok", **_SEEDED}
    values = {ours: getattr(listed, theirs, None) for ours, theirs in names.items()}
    starts = sorted({tier.start for value in values.values() for tier in getattr(value, "tiers", ())})

    def above(name: str, start: int) -> int | None:
        value = values[name]
        rate = _base(value)
        for tier in getattr(value, "tiers", ()):
            if tier.start <= start:
                rate = tier.price
        return _rate(rate, names[name])

    return tuple(
        Tier(
            above=start,
            input=above("input", start) or 0,
            output=above("output", start) or 0,
            **{name: above(name, start) for name in _SEEDED},
        )
        for start in starts
    )
