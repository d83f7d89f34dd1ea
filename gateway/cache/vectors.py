"""Embeddings are cached one by one: which inputs are known, what is still to be asked, and the answer put together again in order.

Vectors of two models are never mixed in one answer. Knows no store (store.py) and calls nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gateway.cache.response import NOT_IN_KEY, Entry, StoredFrame, scope_parts
from gateway.catalog import Catalog, Route
from gateway.labels import Labels
from gateway.money.records import AttemptEnd
from providers.types import Event, Finished, Frame, Metered, Request, Started, Usage, Vector

NOT_IN_INPUT_KEY = NOT_IN_KEY | {"input", "encoding_format"}  # the form of a vector is made when it is sent


class Lookup(Struct, frozen=True):
    """What the cache knew of a request. entries: per input, None = not known. missing: the first place of each unknown text."""

    keys: tuple[bytes, ...]
    entries: tuple[Entry | None, ...]
    missing: tuple[int, ...]


def keys(request: Request, tenant_id: int, route: str, allowed: frozenset[str] | None, labels: Labels = ()) -> tuple[bytes, ...]:
    """The name of each input's vector: the text as it was written, everything that changes the vector, and whose it is."""
    common = hashlib.blake2b(b"".join(scope_parts(request, tenant_id, route, (allowed, labels), NOT_IN_INPUT_KEY)), digest_size=24).digest()
    return tuple([hashlib.blake2b(common + bytes(raw), digest_size=24).digest() for raw in request.inputs])


def lookup(names: Sequence[bytes], found: Sequence[Entry | None], one_model: str | None) -> Lookup:
    """one_model: what every backend of the route runs, None where they differ: then stored vectors serve a request whole or not at all."""
    models = {entry.model for entry in found if entry is not None}
    whole = None not in found and len(models) == 1
    usable = found if whole or (one_model is not None and models <= {one_model}) else [None] * len(found)
    first: dict[bytes, int] = {}
    for place, (name, entry) in enumerate(zip(names, usable, strict=True)):
        if entry is None:
            first.setdefault(name, place)
    return Lookup(tuple(names), tuple(usable), tuple(first.values()))


def one_model(route: Route, catalog: Catalog) -> str | None:
    """The model of all of a route's backends, or None."""
    models = {catalog.backends[name].model for name in route.backends}
    return models.pop() if len(models) == 1 else None


def reduced(request: Request, missing: Sequence[int]) -> Request:
    """The request with the inputs that are still to be asked."""
    inputs = tuple([request.inputs[place] for place in missing])
    return replace(request, inputs=inputs, prompt_bytes=sum(len(memoryview(raw)) for raw in inputs), decoded=None)


def stored(looked: Lookup) -> Entry:
    """What a request that is wholly known repeats: the usage and cost of all its inputs as they were."""
    found = [entry for entry in looked.entries if entry is not None]
    costs = [entry.cost for entry in found]
    return Entry(
        created=min(entry.created for entry in found),
        frames=(),
        usage=Usage(input=sum(entry.usage.input for entry in found), estimated=any(entry.usage.estimated for entry in found)),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        backend=found[0].backend,
        model=found[0].model,
    )


def fresh(request: Request, looked: Lookup, frames: Sequence[Frame], end: AttemptEnd, created: float) -> dict[bytes, Entry]:
    """An entry for each vector that was asked for, by its name. Usage and cost are shared out by length, to the last token."""
    vectors = {event.index: event.data for frame in frames for event in frame.events if isinstance(event, Vector)}
    weights = [len(memoryview(raw)) for raw in request.inputs]
    tokens = _shares(end.usage.prompt_tokens, weights)
    costs = [None] * len(weights) if end.cost is None else _shares(end.cost, weights)
    found = {}
    for number, place in enumerate(looked.missing):
        found[looked.keys[place]] = Entry(
            created=created,
            frames=(StoredFrame(events=[Vector(0, vectors[number])]),),
            usage=Usage(input=tokens[number], estimated=end.usage.estimated),
            cost=costs[number],
            backend=end.backend,
            model=end.model,
        )
    return found


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers that add up to the total, each within one of its weight's part."""
    whole, given, shares, seen = sum(weights), 0, [], 0
    for weight in weights:
        seen += weight
        upto = total * seen // whole
        shares.append(upto - given)
        given = upto
    return shares


def answer(looked: Lookup, asked: dict[bytes, Entry], usage: Usage) -> Frame:
    """Vectors of all inputs in their order, as one frame."""
    events: list[Event] = []
    for place, (name, entry) in enumerate(zip(looked.keys, looked.entries, strict=True)):
        known = asked[name] if entry is None else entry
        if not events:
            events.append(Started("", known.model))
        vector = known.frames[0].events[0]
        assert isinstance(vector, Vector)
        events.append(Vector(place, vector.data))
    return Frame(events=[*events, Metered(usage), Finished("stop")], whole=True)
