"""Prices and the cost of one attempt: Decimal in, integer nano-USD out. Knows no budget and no database.

The rule for a class that a price list does not name: it is billed as the dearer neighbour that the list does name, never as zero.
cache_read -> input · cache_write_5m -> input · cache_write_1h -> cache_write_5m -> input · reasoning -> output · audio -> input, output.
A long-context tier applies to the whole request. The sum is rounded once per attempt, half to even, to whole nano-USD; the cost of a
request is the sum of its attempts. A missing price is None, never 0.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from gateway.catalog import Price, Tier
from gateway.settings import PriceSettings
from providers.types import Usage

NANO = 1_000_000_000
MILLION = 1_000_000
_HALF = MILLION // 2
_MOST_USD = Decimal(1_000_000)  # per million tokens: beyond it a price is a slip of the pen


def nanousd(text: str | Decimal, name: str = "amount") -> int:
    """Decimal USD to integer nano-USD, exact; ValueError when it is no number, negative, or finer than a nano-dollar."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{name}: {text!r} is not a decimal number such as 0.15") from error
    if not value.is_finite() or value < 0:
        raise ValueError(f"{name}: {text!r} must be 0 or more")
    scaled = value * NANO
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{name}: {text!r} is finer than a nano-dollar (nine decimals)")
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
    names = (
        "input",
        "output",
        "cache_read",
        "cache_write_5m",
        "cache_write_1h",
        "reasoning",
        "input_audio",
        "output_audio",
        "per_request",
    )
    rates = {name: _rate(getattr(price, name), f"backend {backend!r}: price.{name}") for name in names}
    digest = hashlib.sha256(repr(sorted(rates.items())).encode()).hexdigest()[:12]
    return Price(
        id=f"config:{backend}:{digest}",
        input=rates["input"] or 0,  # both are required in the settings, so None cannot be: an explicit "0" is a price
        output=rates["output"] or 0,
        cache_read=rates["cache_read"],
        cache_write_5m=rates["cache_write_5m"],
        cache_write_1h=rates["cache_write_1h"],
        reasoning=rates["reasoning"],
        input_audio=rates["input_audio"],
        output_audio=rates["output_audio"],
        per_request=rates["per_request"] or 0,
    )


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


def cost(price: Price | None, usage: Usage) -> int | None:
    """Nano-USD of one attempt; None when the price is unknown."""
    if price is None:
        return None
    tier = rates_at(price, usage.prompt_tokens) if price.tiers else price
    total = usage.input * tier.input + usage.output * tier.output
    if usage.cache_read:
        total += usage.cache_read * _first(tier.cache_read, tier.input)
    if usage.cache_write_5m:
        total += usage.cache_write_5m * _first(tier.cache_write_5m, tier.input)
    if usage.cache_write_1h:
        total += usage.cache_write_1h * _first(tier.cache_write_1h, tier.cache_write_5m, tier.input)
    if usage.reasoning:
        total += usage.reasoning * (_first(price.reasoning, price.output) if tier is price else max(tier.output, price.reasoning or 0))
    if usage.input_audio:
        total += usage.input_audio * max(_first(price.input_audio, tier.input), tier.input if tier is not price else 0)
    if usage.output_audio:
        total += usage.output_audio * max(_first(price.output_audio, tier.output), tier.output if tier is not price else 0)
    return round_half_even(total) + price.per_request


def dearest_input(rates: Price | Tier) -> int:
    """The highest input rate that any class of it can be billed at."""
    classes = [rates.input, rates.cache_read, rates.cache_write_5m, rates.cache_write_1h]
    if isinstance(rates, Price):
        classes.append(rates.input_audio)
    return max(rate for rate in classes if rate is not None)


def dearest_output(price: Price, rates: Price | Tier) -> int:
    return max(rate for rate in (rates.output, price.reasoning, price.output_audio) if rate is not None)


# ---- the seed --------------------------------------------------------------------------------------------------------------------
_SEEDED = {
    "cache_read": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "reasoning": "output_reasoning_mtok",
    "input_audio": "input_audio_mtok",
    "output_audio": "output_audio_mtok",
}


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
        tiers=_tiers(listed),
        **rates,
    )


def _base(value: Any) -> Decimal | None:
    base: Decimal | None = getattr(value, "base", value)  # a Decimal, or a tiered price whose base is one
    return base


def _tiers(listed: Any) -> tuple[Tier, ...]:
    """Every threshold that input or output names, with all rates as they stand above it."""
    names = {"input": "input_mtok", "output": "output_mtok"} | {
        name: _SEEDED[name] for name in ("cache_read", "cache_write_5m", "cache_write_1h")
    }
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
            cache_read=above("cache_read", start),
            cache_write_5m=above("cache_write_5m", start),
            cache_write_1h=above("cache_write_1h", start),
        )
        for start in starts
    )
