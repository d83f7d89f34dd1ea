"""The most that one attempt can cost: what a budget reserves before it is sent. Pure; the caller brings upper bounds of tokens.

Knows no tokenizer: `input_tokens` is an upper bound already (the byte length, or a count times the family's factor), with a stated maximum
for each image, document and clip.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from gateway.catalog import Price
from gateway.money.pricing import MILLION, dearest_input, dearest_output

UNKNOWN_OUTPUT_TOKENS = 16_384  # a model whose own maximum is not known and a client that names none
FRAMING_TOKENS = 64  # role markers and the priming of the answer, per request


class Bound(Struct, frozen=True, kw_only=True):
    """Upper bounds of one attempt. max_tokens: of one choice, reasoning included; None = the model's maximum."""

    input_tokens: int
    max_tokens: int | None = None
    n: int = 1
    context_tokens: int | None = None
    max_output_tokens: int | None = None


def prompt_tokens(bound: Bound) -> int:
    """Upper bound of the prompt. A prompt never exceeds the context: a longer one is refused upstream unbilled."""
    tokens = bound.input_tokens + FRAMING_TOKENS
    return tokens if bound.context_tokens is None else min(tokens, bound.context_tokens)


def output_tokens(bound: Bound) -> int:
    """Upper bound of all choices together."""
    limits = [limit for limit in (bound.max_tokens, bound.max_output_tokens, bound.context_tokens) if limit is not None]
    return (min(limits) if limits else UNKNOWN_OUTPUT_TOKENS) * bound.n


def worst_case(price: Price, input_tokens: int, output_tokens: int) -> int:
    """Nano-USD, rounded up: upper bounds of all prompt tokens and of all generated tokens (every choice, reasoning included).

    The dearest class and every tier that the prompt may reach are counted, the fee per request too.
    """
    before, per_token = _parts(price, input_tokens)
    return before + -(-output_tokens * per_token // MILLION)


def worst(price: Price | None, bound: Bound) -> int | None:
    """The same from the parts of a request; None when the price is unknown."""
    return None if price is None else worst_case(price, prompt_tokens(bound), output_tokens(bound))


def fitting_max_tokens(price: Price, bound: Bound, obtainable: int) -> int:
    """The largest max_tokens per choice whose worst case is at most `obtainable` nano-USD, never more than asked; 0 or less = none."""
    before, per_token = _parts(price, prompt_tokens(bound))
    asked = output_tokens(bound) // bound.n
    if per_token == 0:
        return asked if before <= obtainable else 0
    return min(asked, (obtainable - before) * MILLION // per_token // bound.n)


def _parts(price: Price, input_tokens: int) -> tuple[int, int]:
    """(worst of input and request fee in nano-USD, dearest output rate per million): over the base price and each tier in reach."""
    dearest_in, dearest_out, tiers = _dearest(price)
    for above, tier_in, tier_out in tiers:
        if input_tokens > above:
            dearest_in, dearest_out = max(dearest_in, tier_in), max(dearest_out, tier_out)
    return price.per_request + -(-input_tokens * dearest_in // MILLION), dearest_out


@lru_cache(maxsize=4096)
def _dearest(price: Price) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
    """The dearest rates of input and output, and for each tier the tokens above which it applies with its own."""
    tiers = tuple((tier.above, dearest_input(price, tier), dearest_output(price, tier)) for tier in price.tiers)
    return dearest_input(price, price), dearest_output(price, price), tiers
