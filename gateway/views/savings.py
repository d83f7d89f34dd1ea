"""What choosing saved: the tokens of each route at the price of its dearest backend, less what they cost. Pure; from roll-ups alone.

An upper figure, and said to be one: it takes the prices now in force without their tiers, and that the dearest backend would have used
as many tokens and could have taken every request.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from gateway.catalog import Catalog, Price
from gateway.db.columns import CLASSES
from gateway.money.ledger import ROLLUP_SUMS
from gateway.money.pricing import cost
from providers.types import Usage

TOLD = (
    "The tokens of each route at the present price of its dearest backend, less what they cost: as if that backend had taken every request "
    "with as many tokens."
)
_FIRST = len(ROLLUP_SUMS) - len(CLASSES)


def saved_by_routing(catalog: Catalog, sums: Mapping[tuple[str, str], list[int]]) -> int:
    """nano-USD, 0 or more. sums: (route, backend) -> sums in the order of ROLLUP_SUMS, without what came from the cache."""
    whole = 0
    routes: dict[str, list[int]] = {}
    for (name, _), values in sums.items():
        there = routes.setdefault(name, [0] * len(ROLLUP_SUMS))
        routes[name] = [a + b for a, b in zip(there, values, strict=True)]
    for name, values in routes.items():
        route = catalog.routes.get(name)
        if route is None:
            continue
        prices = [catalog.backends[backend].price for backend in route.backends if backend in catalog.backends]
        spent, requests = values[ROLLUP_SUMS.index("cost")], values[ROLLUP_SUMS.index("requests")]
        dearest = max((_at(price, values, requests) for price in prices if price is not None), default=spent)
        whole += max(0, dearest - spent)
    return whole


def _at(price: Price, values: list[int], requests: int) -> int:
    """What these tokens cost at a price's own rates."""
    usage = structs.replace(Usage(), **{name.removesuffix("_tokens"): values[_FIRST + place] for place, name in enumerate(CLASSES)})
    return (cost(structs.replace(price, tiers=(), per_request=0), usage) or 0) + price.per_request * requests
