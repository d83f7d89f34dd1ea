"""What choosing saved: the dearest backend of a route is the yardstick, and nothing is invented where prices are missing."""

from __future__ import annotations

from gateway.catalog import Backend, Catalog, Price, Route, Tier
from gateway.money.ledger import ROLLUP_SUMS
from gateway.views.savings import saved_by_routing

MILLION = 1_000_000


def backend(name: str, price: Price | None) -> Backend:
    return Backend(name=name, vendor="openai", model="m", dialect="openai_chat", price=price)


def catalog(*backends: Backend) -> Catalog:
    names = tuple(one.name for one in backends)
    return Catalog(version="v", backends={one.name: one for one in backends}, routes={"r": Route(name="r", backends=names)})


def sums(**values: int) -> list[int]:
    return [values.get(name, 0) for name in ROLLUP_SUMS]


CHEAP = backend("cheap", Price(id="a", input=100, output=200))
DEAR = backend("dear", Price(id="b", input=1000, output=3000, per_request=7, tiers=(Tier(above=1, input=10**9, output=10**9),)))


def test_tokens_are_priced_at_the_dearest_backend_of_their_route() -> None:
    told = {("r", "cheap"): sums(requests=2, cost=500, input_tokens=3 * MILLION, output_tokens=MILLION)}
    assert saved_by_routing(catalog(CHEAP, DEAR), told) == 3 * 1000 + 3000 + 2 * 7 - 500


def test_who_always_took_the_dearest_saved_nothing() -> None:
    told = {("r", "dear"): sums(requests=1, cost=9_000, input_tokens=MILLION, output_tokens=MILLION)}
    assert saved_by_routing(catalog(CHEAP, DEAR), told) == 0


def test_a_route_that_is_gone_or_has_no_price_tells_nothing() -> None:
    told = {("gone", "cheap"): sums(requests=1, input_tokens=MILLION), ("r", "free"): sums(requests=1, cost=5, input_tokens=MILLION)}
    assert saved_by_routing(catalog(backend("free", None)), told) == 0
