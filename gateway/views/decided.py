"""A recorded choice in words: why a backend was asked first, what was against each other one, and whether computing again agrees.

For the page of a request and `/admin/decisions/…`; `tollway explain` tells the same record with its terms. Knows no table and no HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from gateway.routing.choose import differences
from gateway.routing.decision import Candidate, Decision
from gateway.routing.filters import QUALITY, STATIC
from gateway.views import figures

PLANNED, ASIDE, FILTERED = "planned", "aside", "filtered"
FILTER_WORDS = {
    "not_allowed": "Not on the allow-list of the key",
    "labels": "Lacks a label: {labels}",
    "dialect": "Cannot pass on fields that it does not know",
    "capability": "Cannot carry what the request needs",
    "parameter": "Does not take a parameter of the request",
    "unpriced": "No known price, and a budget applies",
    "context": "Prompt of {tokens} tokens, its context is too short",
    "max_output": "More output asked than it gives",
    "ejected": "Ejected{wait_probe}",
    "probing": "Ejected, being probed",
    "cooling": "Cooling down{wait}",
    "rate_limited": "Rate limit{wait}",
    "headroom": "Vendor's limit nearly used{wait}",
    "parallel": "At its limit of parallel requests",
    "stalled": "Stalled: requests wait there without a token",
    "yields": "Its last places are for requests of higher priority",
    "share": "This team has its share of it",
    QUALITY: "Weaker: a strong model is right {gain} points more often",
}


class Row(Struct, frozen=True, kw_only=True):
    """A candidate: index in the record, its place in the plan from 1 (None = not in it), and what was for or against it."""

    index: int
    backend: str
    group: str  # PLANNED | ASIDE | FILTERED
    place: int | None
    cost: int | None
    ttft95_us: int
    tpot95_us: int
    e2e95_us: int
    in_time: bool
    late: str  # which time is too long: ttft | tpot | deadline, or ""
    verdict: str


class Told(Struct, frozen=True, kw_only=True):
    """rows: in the order in which people read them. headline: why the first was asked, one sentence. limit_us: times to the first token up
    to it are in time, None = no such objective."""

    headline: str
    rows: tuple[Row, ...]
    limit_us: int | None
    differences: tuple[str, ...]


def tell(decision: Decision) -> Told:
    rank = {index: place for place, index in enumerate(decision.order, 1)}
    rest = [index for index in range(len(decision.candidates)) if index not in rank]
    rest.sort(key=lambda index: decision.candidates[index].reason in STATIC)
    rows = tuple(_row(decision, index, rank.get(index)) for index in (*decision.order, *rest))
    return Told(
        headline=headline(decision),
        rows=rows,
        limit_us=None if decision.ttft_ms is None else int(decision.ttft_ms * 1000 * decision.margin),
        differences=tuple(differences(decision)),
    )


def _row(d: Decision, index: int, place: int | None) -> Row:
    c = d.candidates[index]
    ratio, which = overrun(d, c)
    filtered = c.reason in STATIC and place is None
    return Row(
        index=index,
        backend=c.backend,
        group=PLANNED if place is not None else FILTERED if filtered else ASIDE,
        place=place,
        cost=c.cost,
        ttft95_us=c.ttft95_us,
        tpot95_us=c.tpot95_us,
        e2e95_us=c.e2e95_us,
        in_time=ratio <= d.margin,
        late=which if ratio > d.margin else "",
        verdict=verdict(d, index, place),
    )


def overrun(d: Decision, c: Candidate) -> tuple[float, str]:
    """(the worst of the predicted times over its objective, which that is); 0.0 without objectives."""
    goals = (("ttft", c.ttft95_us, d.ttft_ms), ("tpot", c.tpot95_us, d.tpot_ms), ("deadline", c.e2e95_us, d.deadline_ms))
    found = [(us / max(goal * 1000.0, 1e-3), name) for name, us, goal in goals if goal is not None]
    return max(found, key=lambda one: one[0]) if found else (0.0, "")


def headline(d: Decision) -> str:
    """Why the first of the plan was asked."""
    if not d.order:
        return "No backend could be asked."
    first = d.candidates[d.order[0]]
    name = first.backend
    eligible = [c for c in d.candidates if not c.reason]
    if first.reason:
        return f"Every backend was set aside; {name} was the first to be ready."
    if d.explored:
        return f"Sent to {name} to refresh its samples: {percent(d.explore_share)} of traffic that has time explores."
    if len(eligible) == 1:
        return (
            f"{name} was the only one left of {len(d.candidates)} candidates." if len(d.candidates) > 1 else f"{name} is the only backend."
        )
    ratio, _ = overrun(d, first)
    if ratio > d.margin:
        return f"None was predicted in time; {name} had the smallest overrun, {times(ratio)} its objective."
    if d.quality is not None and d.quality.needs_strong and any(_cheaper(c, first) for c in d.candidates if c.reason == QUALITY):
        return (
            f"{name} was the cheapest of those that are strong enough: the prompt is predicted to need more than {listed(d.quality.weak)}."
        )
    timely = sum(overrun(d, c)[0] <= d.margin for c in eligible)
    objective = _objective(d)
    if not objective:
        return f"{name} was the cheapest of {timely} candidates; no objective was set{_spared(d, first)}."
    what = f"cheapest of {timely}" if timely > 1 else f"only one of {len(d.candidates)}"
    return f"{name} was the {what} candidates predicted inside {d.margin:g} of {objective}{_spared(d, first)}."


def _cheaper(c: Candidate, other: Candidate) -> bool:
    return c.cost is not None and (other.cost is None or c.cost < other.cost)


def _spared(d: Decision, first: Candidate) -> str:
    """Engines of one's own that would have been in time for less."""
    passed = [c.backend for c in d.candidates if c.scarcity and not c.reason and _cheaper(c, first) and overrun(d, c)[0] <= d.margin]
    return f"; {listed(passed)} costs less, but the room there is kept for those who would pay more elsewhere" if passed else ""


def _objective(d: Decision) -> str:
    named = [
        f"the {duration(ms * 1000)} {name}"
        for name, ms in (("objective", d.ttft_ms), ("per token", d.tpot_ms), ("deadline", d.deadline_ms))
        if ms is not None
    ]
    return listed(named)


def verdict(d: Decision, index: int, place: int | None) -> str:
    """What was for or against one candidate."""
    c = d.candidates[index]
    if c.reason:
        return _reason(d, c)
    ratio, which = overrun(d, c)
    if place == 1:
        return _why_first(d, c, ratio)
    if ratio > d.margin:
        return _too_slow(d, c, which)
    if c.cost is None:
        return "No known price"
    if not d.order:
        return "In time"
    return _beside(d.candidates[d.order[0]], c, d.explored)


def _why_first(d: Decision, c: Candidate, ratio: float) -> str:
    if d.explored:
        return "Explored: no fresh sample"
    if sum(not one.reason for one in d.candidates) == 1:
        return "Only one left"
    if ratio > d.margin:
        return f"Smallest overrun, {times(ratio)}"
    return "Cheapest in time" if _objective(d) else "Cheapest"


def _too_slow(d: Decision, c: Candidate, which: str) -> str:
    if which == "ttft":
        return f"Too slow: {duration(c.ttft95_us)}, limit is {duration((d.ttft_ms or 0) * 1000 * d.margin)}"
    if which == "tpot":
        return f"Too slow per token: {duration(c.tpot95_us)}, limit is {duration((d.tpot_ms or 0) * 1000 * d.margin)}"
    return f"Deadline: {duration(c.e2e95_us)}, limit is {duration((d.deadline_ms or 0) * 1000 * d.margin)}"


def _beside(first: Candidate, c: Candidate, explored: bool) -> str:
    """Of two in time with known prices."""
    if first.cost is None:
        return "Costs less" if c.cost is not None else "No known price"
    if c.cost == first.cost:
        return "Costs the same"
    if c.cost is not None and c.cost < first.cost:
        return "Costs less, passed over to explore" if explored else "Costs less, its room is scarce" if c.scarcity else "Costs less"
    if first.cost == 0:
        return "Costs more, the first is free"
    return f"Costs {times((c.cost or 0) / first.cost)} as much"


def _reason(d: Decision, c: Candidate) -> str:
    words = FILTER_WORDS.get(c.reason, c.reason.replace("_", " ").capitalize())
    seconds = f"{max(1, round(c.ready_ms / 1000))} s" if c.ready_ms else ""
    gain = "" if d.quality is None else f"{d.quality.gain / 10_000:.1f}"
    return words.format(
        labels=d.labels.replace("=", ": ") or "one that is asked for",
        tokens=figures.tokens(d.input_tokens),
        wait=f", {seconds}" if seconds else "",
        wait_probe=f", probe in {seconds}" if seconds else "",
        gain=gain,
    )


# ---- numbers in sentences
def times(ratio: float) -> str:
    """1.5 ×, 28 ×"""
    if not math.isfinite(ratio):
        return "many ×"
    return f"{ratio:.1f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


def duration(us: float) -> str:
    return figures.duration(us / 1000)


def percent(share: float) -> str:
    return f"{share * 100:g} %"


def listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
