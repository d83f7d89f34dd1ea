"""Which price held when."""

from __future__ import annotations

from gateway.catalog import Price
from gateway.money.book import API, SEED, Book, Dated


def dated(name: str, source: str, from_us: int, created_at_us: int = 0, model: str = "m") -> Dated:
    price = Price(id=name, input=1, output=1)
    return Dated(vendor="v", model=model, source=source, from_us=from_us, created_at_us=created_at_us, price=price)


def test_the_entry_that_held_at_an_instant() -> None:
    book = Book(
        [
            dated("late word", API, 100, created_at_us=900),
            dated("word", API, 200),
            dated("published", SEED, 50),
            dated("published later", SEED, 150),
            dated("word again", API, 200, created_at_us=201),
            dated("another", API, 0, model="n"),
        ]
    )

    def held(at_us: int) -> str | None:
        found = book.at("v", "m", at_us)
        return None if found is None else found.id

    assert [held(at) for at in (0, 49, 50, 99, 100, 150, 199, 200, 10**18)] == [
        *(None, None, "published", "published"),
        *("late word", "late word", "late word", "word again", "word again"),
    ]
    assert book.at("v", "o", 10**18) is None and book.at("w", "m", 10**18) is None
