"""What each class of tokens of an attempt came to at its price, exact, for people to check: its lines add up to the cost in the ledger.

The rule of which rate a class pays is pricing.py's; a test holds the two together. Knows no table.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.catalog import Price, Tier
from gateway.money.pricing import BATCH, MILLION, cost, rates_at
from providers.types import Usage

INPUTS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "input_audio", "input_image")
OUTPUTS = ("output", "reasoning", "output_audio", "output_image")
TOGETHER = {"cache_read": "input", "cache_write_5m": "input", "cache_write_1h": "cache_write_5m"}


class Line(Struct, frozen=True, kw_only=True):
    """rate: nano-USD per million tokens, None where it is no token's. millionths: of a nano-USD, exact; lines of a bill add up."""

    what: str  # a class of tokens | per_request | batch_discount | rounding
    tokens: int
    rate: int | None
    millionths: int


class Bill(Struct, frozen=True, kw_only=True):
    """lines: of what there was, in the order of the classes. above: the prompt passed a long-context tier that begins there, 0 = none."""

    lines: tuple[Line, ...]
    above: int
    total: int


def bill(price: Price, usage: Usage, kind: str = "") -> Bill:
    """The attempt's bill; `total` is what `pricing.cost` says."""
    tier = rates_at(price, usage.prompt_tokens)
    lines = [
        Line(what=name, tokens=tokens, rate=rate, millionths=tokens * rate)
        for name in (*INPUTS, *OUTPUTS)
        if (tokens := int(getattr(usage, name))) and (rate := _rate(price, tier, name)) is not None
    ]
    if kind == BATCH and price.batch_discount is not None:
        off = -sum(line.millionths for line in lines) * price.batch_discount // MILLION
        lines.append(Line(what="batch_discount", tokens=0, rate=None, millionths=off))
    if price.per_request:
        lines.append(Line(what="per_request", tokens=0, rate=None, millionths=price.per_request * MILLION))
    total = cost(price, usage, kind) or 0
    rest = total * MILLION - sum(line.millionths for line in lines)
    if rest:
        lines.append(Line(what="rounding", tokens=0, rate=None, millionths=rest))
    return Bill(lines=tuple(lines), above=tier.above if isinstance(tier, Tier) else 0, total=total)


def _rate(price: Price, tier: Price | Tier, name: str) -> int | None:
    """What a class pays: its own rate, else its neighbour's, in a tier no less than outside of it."""
    own: int | None = getattr(tier, name)
    if own is not None:
        return own
    if name in TOGETHER:
        return _rate(price, tier, TOGETHER[name])
    outside: int | None = getattr(price, name)
    return max(tier.input if name in INPUTS else tier.output, outside or 0)
