"""The worst case bounds the cost of everything that the request may turn out to be."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalog import Price, Tier
from gateway.money.pricing import BATCH, CLASSES, cost
from gateway.money.worst_case import (
    UNKNOWN_OUTPUT_TOKENS,
    Bound,
    fitting_max_tokens,
    output_tokens,
    prompt_tokens,
    worst,
    worst_case,
)
from providers.types import Usage

RATES = st.integers(0, 100_000_000_000)
MAYBE = st.none() | RATES
PRICES = st.builds(
    Price,
    id=st.just("p"),
    input=RATES,
    output=RATES,
    cache_read=MAYBE,
    cache_write_5m=MAYBE,
    cache_write_1h=MAYBE,
    reasoning=MAYBE,
    input_audio=MAYBE,
    output_audio=MAYBE,
    input_image=MAYBE,
    output_image=MAYBE,
    batch_discount=st.none() | st.integers(0, 1_000_000),
    per_request=st.integers(0, 10**9),
    tiers=st.lists(
        st.builds(
            Tier,
            above=st.integers(0, 3000),
            input=RATES,
            output=RATES,
            **{name: MAYBE for name in CLASSES if name not in ("input", "output")},
        ),
        max_size=2,
    ).map(lambda tiers: tuple(sorted(tiers, key=lambda tier: tier.above))),
)
SHARES = st.lists(st.integers(0, 1000), min_size=10, max_size=10)


@settings(max_examples=300, deadline=None)
@given(price=PRICES, shares=SHARES, spare=st.integers(0, 500))
def test_no_usage_within_the_bound_costs_more(price: Price, shares: list[int], spare: int) -> None:
    usage = Usage(
        input=shares[0],
        cache_read=shares[1],
        cache_write_5m=shares[2],
        cache_write_1h=shares[3],
        input_audio=shares[4],
        output=shares[5],
        reasoning=shares[6],
        output_audio=shares[7],
        input_image=shares[8],
        output_image=shares[9],
    )
    spent, in_a_batch = cost(price, usage), cost(price, usage, BATCH)
    assert spent is not None and in_a_batch is not None
    assert in_a_batch <= spent <= worst_case(price, usage.prompt_tokens + spare, usage.completion_tokens + spare)


@settings(max_examples=100, deadline=None)
@given(price=PRICES, tokens=st.integers(1, 5000), asked=st.integers(1, 5000), n=st.integers(1, 4), money=st.integers(0, 10**12))
def test_a_clamped_request_fits_and_no_larger_one_does(price: Price, tokens: int, asked: int, n: int, money: int) -> None:
    fitting = fitting_max_tokens(price, Bound(input_tokens=tokens, max_tokens=asked, n=n), money)
    assert fitting <= asked
    if fitting > 0:
        full = worst(price, Bound(input_tokens=tokens, max_tokens=fitting, n=n))
        assert full is not None
        assert full <= money
    if 0 <= fitting < asked:
        more = worst(price, Bound(input_tokens=tokens, max_tokens=fitting + 1, n=n))
        assert more is not None
        assert more > money


def test_output_is_bounded_by_the_smallest_limit_that_is_known() -> None:
    assert output_tokens(Bound(input_tokens=1, max_tokens=30_000, n=2)) == 60_000
    assert output_tokens(Bound(input_tokens=1, max_tokens=30_000, max_output_tokens=4096)) == 4096
    assert output_tokens(Bound(input_tokens=1, max_output_tokens=4096)) == 4096
    assert output_tokens(Bound(input_tokens=1)) == UNKNOWN_OUTPUT_TOKENS


def test_a_prompt_is_no_longer_than_the_context() -> None:
    assert prompt_tokens(Bound(input_tokens=10_000_000, context_tokens=128_000)) == 128_000


def test_an_unknown_price_has_no_worst_case() -> None:
    assert worst(None, Bound(input_tokens=1)) is None
