"""What the price book says for any instant: the entry that held then. Pure; knows no database, no file and no cost.

What a person set wins over a published price, whichever is newer; of two the one that began later, then the one that was set later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct

from gateway.catalog import Price

API, SEED = "api", "seed"


class Dated(Struct, frozen=True, kw_only=True):
    """One price of the book. source: api (a person's word) | seed (published). Instants are microseconds since 1970."""

    vendor: str
    model: str
    source: str
    from_us: int
    created_at_us: int
    price: Price


class Book:
    """All prices of a book, withdrawn ones left out."""

    def __init__(self, entries: Iterable[Dated]) -> None:
        self._held: dict[tuple[str, str, str], list[Dated]] = {}
        for entry in sorted(entries, key=lambda entry: (entry.from_us, entry.created_at_us)):
            self._held.setdefault((entry.vendor, entry.model, entry.source), []).append(entry)

    def at(self, vendor: str, model: str, at_us: int) -> Price | None:
        """The price of a vendor's model at an instant; None where the book has none."""
        for source in (API, SEED):
            held = self._held.get((vendor, model, source), [])
            place = bisect_right(held, at_us, key=lambda entry: entry.from_us)
            if place:
                return held[place - 1].price
        return None
