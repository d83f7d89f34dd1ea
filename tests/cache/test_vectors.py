"""Per input: names, what is missing, what a known answer repeats, and how the parts become one answer."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cache import vectors
from gateway.cache.response import Entry, StoredFrame, decode, encode
from gateway.money.records import AttemptEnd
from providers.dialects.openai_embeddings.requests import decode_request
from providers.types import Finished, Frame, Metered, Request, Started, Usage, Vector


def asked(*texts: str, **members: Any) -> Request:
    return decode_request(json.dumps({"model": "m", "input": list(texts), **members}).encode())


def names(request: Request, tenant: int = 1, route: str = "r", allowed: frozenset[str] | None = None) -> tuple[bytes, ...]:
    return vectors.keys(request, tenant, route, allowed)


def known(data: str, model: str = "e", tokens: int = 1, cost: int | None = 5) -> Entry:
    frame = StoredFrame(events=[Vector(0, data)])
    return Entry(created=1.0, frames=(frame,), usage=Usage(input=tokens), cost=cost, backend="b", model=model)


def end(tokens: int, cost: int | None) -> AttemptEnd:
    return AttemptEnd(
        request_id=UUID(int=1),
        n=1,
        backend="b",
        vendor="v",
        model="e",
        price_id="",
        outcome="completed",
        cost=cost,
        worst=None,
        usage=Usage(input=tokens),
        error="",
        status=200,
        ttft_ms=1,
        duration_ms=1,
        provider_id="",
    )


def test_a_name_depends_on_all_that_changes_a_vector_and_on_nothing_else() -> None:
    base = names(asked("a", "b"))
    assert base[0] != base[1]
    assert names(asked("b", "a")) == base[::-1]
    assert names(asked("a", "b", encoding_format="base64", user="u")) == base
    for other in (names(asked("a", dimensions=2)), names(asked("a", space="x")), names(asked("a"), tenant=2), names(asked("a"), route="s")):
        assert other[0] != base[0]
    assert names(asked("a"), allowed=frozenset({"x"}))[0] != base[0]


def test_g16_what_is_missing_is_asked_once_each_in_order() -> None:
    request = asked("b", "a", "c", "b")
    looked = vectors.lookup(names(request), [None, known("[1]"), None, None], "e")
    assert looked.missing == (0, 2)
    rest = vectors.reduced(request, looked.missing)
    assert [bytes(raw) for raw in rest.inputs] == [b'"b"', b'"c"']
    assert rest.prompt_bytes == 6

    came = Frame(events=[Started("", "e"), Vector(1, "[30]"), Vector(0, "[20]"), Metered(Usage(input=7)), Finished("stop")])
    fresh = vectors.fresh(rest, looked, [came], end(7, 70), 9.0)
    assert [(entry.usage.input, entry.cost) for entry in fresh.values()] == [(3, 35), (4, 35)]
    told = vectors.answer(looked, fresh, Usage(input=7))
    assert told.events == [
        Started("", "e"),
        Vector(0, "[20]"),
        Vector(1, "[1]"),
        Vector(2, "[30]"),
        Vector(3, "[20]"),
        Metered(Usage(input=7)),
        Finished("stop"),
    ]


@pytest.mark.parametrize(
    ("found", "model", "usable"),
    [
        (("e", "e"), "e", True),
        (("e", "e"), None, True),  # whole, and of one model: which backend would answer does not matter
        (("e", "f"), None, False),
        (("e", None), None, False),
        (("e", None), "e", True),
        (("f", None), "e", False),  # stored when the route ran another model
    ],
)
def test_g16_models_are_never_mixed(found: tuple[str | None, ...], model: str | None, usable: bool) -> None:
    entries = [None if one is None else known("[1]", one) for one in found]
    looked = vectors.lookup([b"1", b"2"], entries, model)
    assert looked.entries == (tuple(entries) if usable else (None, None))


def test_a_whole_hit_repeats_usage_and_cost() -> None:
    looked = vectors.lookup([b"1", b"2"], [known("[1]", tokens=2, cost=5), known("[2]", tokens=3, cost=7)], None)
    entry = vectors.stored(looked)
    assert (looked.missing, entry.usage.input, entry.cost) == ((), 5, 12)
    unpriced = vectors.lookup([b"1", b"2"], [known("[1]"), known("[2]", cost=None)], None)
    assert vectors.stored(unpriced).cost is None


def test_an_entry_survives_the_store() -> None:
    entry = known('"AAAA"')
    assert decode(encode(entry)) == entry


@given(st.integers(0, 10**12), st.lists(st.integers(2, 10**6), min_size=1, max_size=30))
def test_shares_add_up_and_are_fair(total: int, weights: list[int]) -> None:
    shares = vectors._shares(total, weights)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - total * weight / sum(weights)) < 1 + total * 1e-9
