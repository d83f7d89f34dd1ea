"""A bill's lines add up to the cost that the ledger holds, whatever the price names and leaves out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog import Price, Tier
from gateway.money.bill import bill
from gateway.money.pricing import BATCH, CLASSES, MILLION, cost
from providers.types import Usage

RATE = st.integers(0, 90_000_000_000)
OPTIONAL = {name: st.one_of(st.none(), RATE) for name in CLASSES if name not in ("input", "output")}
TIER = st.builds(Tier, above=st.integers(1, 5000), input=RATE, output=RATE, **OPTIONAL)
PRICE = st.builds(
    Price,
    id=st.just("p"),
    input=RATE,
    output=RATE,
    per_request=st.sampled_from([0, 7]),
    batch_discount=st.one_of(st.none(), st.integers(0, MILLION)),
    tiers=st.lists(TIER, max_size=2).map(lambda tiers: tuple(sorted(tiers, key=lambda tier: tier.above))),
    **OPTIONAL,
)
USAGE = st.builds(Usage, **{name: st.integers(0, 9000) for name in CLASSES})


@given(PRICE, USAGE, st.sampled_from(["", BATCH]))
def test_its_lines_add_up_to_the_cost(price: Price, usage: Usage, kind: str) -> None:
    made = bill(price, usage, kind)
    assert made.total == cost(price, usage, kind)
    assert sum(line.millionths for line in made.lines) == made.total * MILLION
    named = {line.what: line.tokens for line in made.lines if line.rate is not None}
    assert named == {name: getattr(usage, name) for name in CLASSES if getattr(usage, name)}
    rounding = [line.millionths for line in made.lines if line.what == "rounding"]
    assert all(abs(rest) <= MILLION for rest in rounding)


def test_a_bill_as_people_read_it() -> None:
    price = Price(id="p", input=150_000_000, output=600_000_000, cache_read=75_000_000)
    made = bill(price, Usage(input=951, cache_read=1920, output=541))
    assert [(line.what, line.tokens, line.millionths // MILLION) for line in made.lines] == [
        ("input", 951, 142_650),
        ("cache_read", 1920, 144_000),
        ("output", 541, 324_600),
    ]
    assert (made.total, made.above) == (611_250, 0)
