"""Usage of every language: counts checked, running totals merged, and made disjoint by a table of where a language counts what.

Knows no particular language: each brings its `Nesting`. A count that cannot be (negative, absurd) makes the whole usage None, so that
the caller counts for itself and flags it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from providers.types import Event, Metered, Usage

MAX_COUNT = 1_000_000_000  # tokens, or USD; a larger count is a vendor's mistake
NANO = 1_000_000_000


class Nesting(Struct, frozen=True, kw_only=True):
    """Where a language counts what: places, a dot for each step inwards; of several the first that states a number counts.

    outside_cache: cached tokens stand beside the prompt's count, not in it. outside_reasoning: so does thinking beside the
    completion's. Where a vendor's own total shows otherwise, the total decides. audio_mark: a member beside which tokens that only the
    total counts are audio. cache_write is a total of which what is not said to be longer is the five-minute kind. zeros: places that we
    write even where there is nothing to count.
    """

    prompt: str
    completion: str
    total: str = ""
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    cache_write_5m: str = ""
    cache_write_1h: tuple[str, ...] = ()  # these are added
    input_audio: str = ""
    reasoning: tuple[str, ...] = ()
    output_audio: str = ""
    input_image: str = ""
    output_image: str = ""
    outside_cache: bool = False
    outside_reasoning: bool = False
    audio_mark: str = ""
    zeros: frozenset[str] = frozenset()


class Meter:
    """The running totals of one answer. cost: stated beside the usage, in whatever form its vendor has."""

    __slots__ = ("_nesting", "_wire", "cost")

    def __init__(self, nesting: Nesting) -> None:
        self._nesting = nesting
        self._wire: dict[str, Any] = {}
        self.cost: Any = None

    def take(self, usage: Any, events: list[Event]) -> None:
        """Append what one more usage says. One that states nothing new is left out."""
        if not isinstance(usage, dict):
            return
        merged = merge(self._wire, usage)
        if merged == self._wire and self.cost is None:
            return
        self._wire = merged
        known = disjoint(merged, self._nesting, self.cost)
        if known is not None:
            events.append(Metered(known))


def merge(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Running totals: the last non-null value of each member counts, nothing is summed."""
    merged = dict(old)
    for name, value in new.items():
        if isinstance(value, dict):
            before = merged.get(name)
            merged[name] = merge(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            merged[name] = value
    return merged


class _Bad(Exception):
    """A count that cannot be."""


def disjoint(wire: Mapping[str, Any], nesting: Nesting, cost: Any = None) -> Usage | None:
    """None where it states neither prompt nor completion, or a count cannot be."""
    try:
        return _disjoint(wire, nesting, cost)
    except _Bad:
        return None


def _disjoint(wire: Mapping[str, Any], nesting: Nesting, cost: Any) -> Usage | None:
    prompt, completion = _count(wire, nesting.prompt), _count(wire, nesting.completion)
    if prompt is None and completion is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    read = _count(wire, *nesting.cache_read) or 0
    write_1h = sum(_count(wire, place) or 0 for place in nesting.cache_write_1h)
    write_5m = max(_count(wire, nesting.cache_write_5m) or 0, (_count(wire, *nesting.cache_write) or 0) - write_1h)
    audio, spoken = _count(wire, nesting.input_audio) or 0, _count(wire, nesting.output_audio) or 0
    seen, drawn = _count(wire, nesting.input_image) or 0, _count(wire, nesting.output_image) or 0
    reasoning = _count(wire, *nesting.reasoning) or 0
    cached = read + write_5m + write_1h
    prompt += cached if nesting.outside_cache else 0
    completion += reasoning if nesting.outside_reasoning else 0
    total = _count(wire, nesting.total)
    beyond = 0 if total is None else max(0, total - prompt - completion)  # what the vendor counts outside of both
    if cached and (cached > prompt or beyond == cached):
        prompt += cached
        beyond = 0 if beyond == cached else beyond
    elif beyond and nesting.audio_mark and wire.get(nesting.audio_mark) is not None:
        prompt, audio, beyond = prompt + beyond, audio + beyond, 0
    if beyond:  # thinking that is counted outside of the completion
        reasoning = max(reasoning, beyond)
        completion += beyond
    reasoning = min(reasoning, completion)
    spoken = min(spoken, completion - reasoning)
    drawn = min(drawn, completion - reasoning - spoken)
    audio = min(audio, prompt - cached)
    seen = min(seen, prompt - cached - audio)  # part of them may have been read from the cache
    return Usage(
        input=prompt - cached - audio - seen,
        cache_read=read,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        input_audio=audio,
        input_image=seen,
        output=completion - reasoning - spoken - drawn,
        reasoning=reasoning,
        output_audio=spoken,
        output_image=drawn,
        stated_nanousd=stated_nanousd(wire, cost),
    )


def _count(wire: Mapping[str, Any], *places: str) -> int | None:
    """The first of the places that is there. Raises _Bad for one that is negative, absurd or no number."""
    for place in places:
        value: Any = wire
        for name in place.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if type(value) not in (int, Decimal) or not 0 <= value <= MAX_COUNT:
            raise _Bad
        count = int(value)  # once it is known to be small: the integer that 1e999999999 stands for takes minutes to make
        if count != value:
            raise _Bad
        return count
    return None


def stated_nanousd(wire: Mapping[str, Any], cost: Any = None) -> int | None:
    """The vendor's own figure of the cost, from its usage or from beside it (`cost`)."""
    ticks = wire.get("cost_in_usd_ticks")
    if type(ticks) is int and 0 <= ticks <= MAX_COUNT * NANO * 10:
        return ticks // 10
    value = wire.get("cost")
    if isinstance(value, dict):
        value = value.get("total_cost")
    if value is None and isinstance(cost, dict):
        value = cost.get("usd")
    if type(value) is int or isinstance(value, Decimal):
        return int(Decimal(value) * NANO) if 0 <= value <= MAX_COUNT else None
    return None


def as_decimal(text: str) -> Decimal | None:
    """A decoder's float_hook: a stated cost is money. None for what no number can hold, as if it were not stated."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def to_wire(usage: Usage, nesting: Nesting) -> dict[str, Any]:
    """Disjoint classes in a language's nesting, each at its first place; the totals are those of `Usage`."""
    cached, writes = usage.cache_read + usage.cache_write_5m + usage.cache_write_1h, usage.cache_write_5m + usage.cache_write_1h
    prompt = usage.prompt_tokens - (cached if nesting.outside_cache else 0)
    completion = usage.completion_tokens - (usage.reasoning if nesting.outside_reasoning else 0)
    split = usage.cache_write_1h or (writes and nesting.outside_cache)
    counts = [
        (nesting.prompt, prompt),
        (nesting.completion, completion),
        (nesting.total, usage.prompt_tokens + usage.completion_tokens),
        (nesting.cache_read[:1], usage.cache_read),
        (nesting.cache_write[:1], writes),
        (nesting.input_audio, usage.input_audio),
        (nesting.reasoning[:1], usage.reasoning),
        (nesting.output_audio, usage.output_audio),
        (nesting.input_image, usage.input_image),
        (nesting.output_image, usage.output_image),
        (nesting.cache_write_5m, usage.cache_write_5m if split else None),
        (nesting.cache_write_1h[:1], usage.cache_write_1h if split else None),
    ]
    wire: dict[str, Any] = {}
    for where, count in counts:
        place = where if isinstance(where, str) else "".join(where)
        if place and count is not None and (count or place in nesting.zeros):
            *outer, name = place.split(".")
            members = wire
            for step in outer:
                members = members.setdefault(step, {})
            members[name] = count
    return wire
