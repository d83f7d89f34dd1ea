"""Costs: published figures, to the nano-dollar; what is missing is never free."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.catalog import Price, Tier
from gateway.money.pricing import BATCH, cost, nanousd, parse_price, round_half_even, seed_price, usd
from gateway.settings import PriceSettings, TierSettings
from providers.types import Usage

BASIC = parse_price(PriceSettings(input="1.00", cache_read="0.10", output="2.00"), "m-basic")
CLAUDE = parse_price(
    PriceSettings(input="3.00", cache_write_5m="3.75", cache_write_1h="6.00", cache_read="0.30", output="15.00"), "m-claude"
)
GEM = parse_price(PriceSettings(input="1.25", output="10.00"), "m-gem")
FLAT = parse_price(PriceSettings(input="0", output="10.00"), "m-flat")


@pytest.mark.parametrize(
    ("price", "usage", "expected"),
    [
        (CLAUDE, Usage(input=3, cache_write_5m=12304, output=550), "0.054399000"),  # G04
        (CLAUDE, Usage(cache_write_5m=1000, cache_write_1h=4000), "0.027750000"),  # G04, the split
        (BASIC, Usage(input=16111 - 15872, cache_read=15872, output=2), "0.001830200"),  # G05
        (BASIC, Usage(input=12, output=20), "0.000052000"),  # G10
        (BASIC, Usage(input=12), "0.000012000"),  # G10
        (GEM, Usage(input=1000, output=150, reasoning=8000), "0.082750000"),  # G23
        (CLAUDE, Usage(input=25, output=15), "0.000300000"),  # G24
        (FLAT, Usage(input=500, output=30_000), "0.300000000"),  # G02
    ],
)
def test_published_cases(price: Price, usage: Usage, expected: str) -> None:
    assert usd(cost(price, usage)) == expected


def test_g03_missing_is_not_zero() -> None:
    """No price gives no cost; an explicit 0 is one."""
    free = parse_price(PriceSettings(input="0", output="0"), "local")
    assert cost(None, Usage(input=1000, output=1000)) is None
    assert usd(cost(None, Usage(input=1))) == "unknown"
    assert cost(free, Usage(input=1000, output=1000)) == 0


def test_a_class_without_a_rate_is_billed_as_its_dearer_neighbour() -> None:
    bare = Price(id="x", input=2_000_000_000, output=8_000_000_000)
    for usage in (Usage(cache_read=10), Usage(cache_write_5m=10), Usage(cache_write_1h=10), Usage(input_audio=10), Usage(input_image=10)):
        assert cost(bare, usage) == 20_000
    for usage in (Usage(reasoning=10), Usage(output_audio=10), Usage(output_image=10)):
        assert cost(bare, usage) == 80_000
    short = Price(id="y", input=2_000_000_000, output=8_000_000_000, cache_write_5m=2_500_000_000)
    assert cost(short, Usage(cache_write_1h=10)) == 25_000


def test_a_tier_applies_to_the_whole_request() -> None:
    tiered = Price(
        id="t", input=1_250_000_000, output=10_000_000_000, tiers=(Tier(above=200_000, input=2_500_000_000, output=15_000_000_000),)
    )
    assert cost(tiered, Usage(input=200_000, output=1000)) == 250_000_000 + 10_000_000
    assert cost(tiered, Usage(input=200_001, output=1000)) == 500_002_500 + 15_000_000
    assert cost(tiered, Usage(input=1, cache_read=200_000, output=0, reasoning=10)) == 500_002_500 + 150_000


def test_images_have_rates_of_their_own() -> None:
    """Published: gemini-2.5-flash-image, 0.30 in, 2.50 out, images out 30; an image of 1,290 tokens."""
    price = parse_price(PriceSettings(input="0.30", output="2.50", output_image="30"), "draws")
    assert usd(cost(price, Usage(input=100, output=10, output_image=1290))) == "0.038755000"
    seen = parse_price(PriceSettings(input="5", output="40", input_image="10"), "sees")
    assert usd(cost(seen, Usage(input=1000, input_image=1000))) == "0.015000000"


def test_a_tier_of_the_settings_names_any_class() -> None:
    """Published: above 200,000 tokens claude-sonnet-4-5 costs 6 and 22.50, its cache reads 0.60."""
    tier = TierSettings(above=200_000, input="6", output="22.50", cache_read="0.60")
    price = parse_price(PriceSettings(input="3", output="15", cache_read="0.30", reasoning="30", input_image="4", tiers=(tier,)), "long")
    assert usd(cost(price, Usage(input=200_000, output=1000))) == "0.615000000"
    assert usd(cost(price, Usage(input=100_001, cache_read=100_000, output=1000))) == "0.682506000"
    assert usd(cost(price, Usage(input=200_001, reasoning=1000))) == "1.230006000", "30 outside of the tier, so no less inside"
    assert usd(cost(price, Usage(input=200_000, input_image=1))) == "1.200006000"
    named = TierSettings(above=200_000, input="6", output="22.50", reasoning="20")
    assert (
        usd(
            cost(
                parse_price(PriceSettings(input="3", output="15", reasoning="30", tiers=(named,)), "b"),
                Usage(input=200_001, reasoning=1000),
            )
        )
        == "1.220006000"
    )


def test_g28_a_batch_pays_half() -> None:
    usage = Usage(input=1800, output=1000)
    assert usd(cost(CLAUDE, usage)) == usd(cost(CLAUDE, usage, BATCH)) == "0.020400000", "a discount that nobody named is none"
    batched = structs.replace(CLAUDE, batch_discount=500_000)
    assert usd(cost(batched, usage, BATCH)) == "0.010200000"
    assert usd(cost(batched, usage)) == "0.020400000", "only what was asked for as a batch"
    odd = parse_price(PriceSettings(input="0.000000001", output="0", per_request="0.5", batch_discount="0.333333"), "b")
    assert cost(odd, Usage(input=3_000_000), BATCH) == 2 + 500_000_000, "rounded once; the fee of a request is not the vendor's tokens"


def test_a_fee_per_request_is_added_once() -> None:
    price = parse_price(PriceSettings(input="1", output="1", per_request="0.01"), "fee")
    assert cost(price, Usage(input=1)) == 10_000_000 + 1000


@given(numerator=st.integers(0, 10**20), divisor=st.sampled_from([2, 1000, 1_000_000]))
def test_rounding_is_half_to_even_once(numerator: int, divisor: int) -> None:
    expected = (Decimal(numerator) / divisor).quantize(Decimal(1), ROUND_HALF_EVEN) if numerator < 10**18 else None
    if expected is not None:
        assert round_half_even(numerator, divisor) == int(expected)


@given(
    st.builds(
        Usage,
        input=st.integers(0, 10**6),
        cache_read=st.integers(0, 10**6),
        cache_write_5m=st.integers(0, 10**6),
        cache_write_1h=st.integers(0, 10**6),
        output=st.integers(0, 10**6),
        reasoning=st.integers(0, 10**6),
    )
)
def test_integers_give_what_decimals_give(usage: Usage) -> None:
    rates = {
        "input": "3.00",
        "cache_read": "0.30",
        "cache_write_5m": "3.75",
        "cache_write_1h": "6.00",
        "output": "15.00",
        "reasoning": "15.00",
    }
    exact = sum((Decimal(rate) * getattr(usage, name) * 1000 for name, rate in rates.items()), Decimal(0))
    assert cost(CLAUDE, usage) == int(exact.quantize(Decimal(1), ROUND_HALF_EVEN))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("abc", "not a decimal"),
        ("-1", "0 or more"),
        ("NaN", "0 or more"),
        ("0.0000000001", "finer"),
        ("1e99999", "at most"),
        ("1e999999", "at most"),
        ("x" * 10**6, "'x{80}' is not a decimal"),
    ],
)
def test_a_price_that_is_none_is_refused_with_its_name(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"price.input.*{why}|{why}"):
        parse_price(PriceSettings(input=text, output="1"), "b")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"output_image": "-1"}, "price.output_image"),
        ({"batch_discount": "1.5"}, "price.batch_discount"),
        ({"batch_discount": "half"}, "price.batch_discount"),
        ({"tiers": (TierSettings(above=1, input="1", output="x"),)}, r"price.tiers\[0\].output"),
        ({"tiers": (TierSettings(above=0, input="1", output="1"),)}, r"price.tiers\[0\].above"),
        ({"tiers": (TierSettings(above=5, input="1", output="1"),) * 2}, "price.tiers: two begin above 5"),
        ({"tiers": tuple(TierSettings(above=n, input="1", output="1") for n in range(1, 18))}, "price.tiers: at most 16"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"backend 'b': {told}"):
        parse_price(PriceSettings(input="1", output="1", **wrong), "b")


def test_a_price_per_token_is_noticed() -> None:
    with pytest.raises(ValueError, match="not believable"):
        parse_price(PriceSettings(input="2000000", output="1"), "b")


def test_money_is_printed_with_nine_decimals() -> None:
    assert usd(1) == "0.000000001"
    assert usd(-1_500_000_000) == "-1.500000000"
    assert nanousd("0.15") == 150_000_000


def test_the_seed_knows_published_models() -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    mini = seed_price("openai", "gpt-4o-mini", at)
    assert mini is not None
    assert (mini.input, mini.output, mini.cache_read) == (150_000_000, 600_000_000, 75_000_000)
    assert mini.id.startswith("genai-prices:")
    sonnet = seed_price("anthropic", "claude-sonnet-4-5", at)
    assert sonnet is not None
    assert (sonnet.cache_write_5m, sonnet.cache_write_1h) == (3_750_000_000, 6_000_000_000)
    assert sonnet.tiers[0] == Tier(
        above=200_000,
        input=6 * 10**9,
        output=22_500_000_000,
        cache_read=600_000_000,
        cache_write_5m=7_500_000_000,
        cache_write_1h=12 * 10**9,
    )
    assert (mini.batch_discount, sonnet.batch_discount) == (500_000, 500_000)
    drawing = seed_price("google", "gemini-2.5-flash-image", at)
    assert drawing is not None and drawing.output_image == 30 * 10**9


def test_the_seed_follows_the_date_and_admits_what_it_does_not_know() -> None:
    before = seed_price("anthropic", "claude-sonnet-4-6", datetime(2026, 3, 1, tzinfo=UTC))
    after = seed_price("anthropic", "claude-sonnet-4-6", datetime(2026, 4, 1, tzinfo=UTC))
    assert before is not None
    assert after is not None
    assert before.tiers
    assert not after.tiers
    assert seed_price("openai", "no-such-model", datetime(2026, 4, 1, tzinfo=UTC)) is None
    assert seed_price("no-such-vendor", "gpt-4o-mini", datetime(2026, 4, 1, tzinfo=UTC)) is None
