"""What choices would have cost had something been otherwise: recomputed from their records, by the same `rank` that made them.

Pure, off the request path. Tells only what a record can answer: backends that were set aside for good (labels, allow-lists, what a request
needs) have no prediction in it, and of prompts that repeat it knows nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field, structs

from gateway.routing.choose import rank
from gateway.routing.decision import Candidate, Decision
from gateway.routing.filters import QUALITY

TTFT, TPOT, DEADLINE, ROOM = "ttft", "tpot", "deadline", "room"
TIMES = {TTFT: ("ttft_ms", "ttft95_us"), TPOT: ("tpot_ms", "tpot95_us"), DEADLINE: ("deadline_ms", "e2e95_us")}
LOOSER = (150, 200, 300)  # per cent of an objective that are tried
GAIN_STEP = 20_000  # millionths: a weak backend may be right so much less often than now
FULL = ("rate_limited", "headroom", "parallel")  # set aside because it had no room, for no lasting fault
ENOUGH = 0.9  # of what the loosest brings: the least loose that brings so much is told


class Way(Struct, frozen=True):
    """What is otherwise. kind: ttft | tpot | deadline: an objective of the route, percent of itself; quality: its floor is GAIN_STEP lower;
    room: the backend has some."""

    kind: str
    route: str
    backend: str = ""
    percent: int = 100


class Effect(Struct):
    """What choices come to under a way: nano-USD less than predicted, and how many would have gone where. gain: sum over those of how much
    likelier a strong model is right, millionths. goals: the objectives as they were, ms."""

    saved: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    gain: int = 0
    goals: frozenset[float] = frozenset()

    @property
    def requests(self) -> int:
        return self.moved.total()


class Base(Struct):
    """What the choices of a route come to as they were: how many had a price, and nano-USD predicted of the first asked."""

    requests: int = 0
    cost: int = 0


class WhatIf:
    """Adds up choices; `best` tells the ways."""

    __slots__ = ("routes", "seen", "ways")

    def __init__(self) -> None:
        self.seen = 0
        self.routes: dict[str, Base] = {}
        self.ways: dict[Way, Effect] = {}

    def add(self, decisions: Iterable[Decision]) -> None:
        for d in decisions:
            self.seen += 1
            if not d.order or (cost := d.candidates[d.order[0]].cost) is None:
                continue
            base = self.routes.setdefault(d.route, Base())
            base.requests += 1
            base.cost += cost
            for way, other in _others(d, d.candidates[d.order[0]], cost):
                self._compare(d, cost, way, other)

    def _compare(self, d: Decision, cost: int, way: Way, other: Decision) -> None:
        order, _, _ = rank(other)
        if not order or order[0] == d.order[0]:
            return
        there = other.candidates[order[0]]
        if there.cost is None:
            return
        effect = self.ways.setdefault(way, Effect())
        effect.saved += cost - there.cost
        effect.moved[there.backend] += 1
        if way.kind in TIMES:
            effect.goals |= {getattr(d, TIMES[way.kind][0])}
        elif way.kind == QUALITY and d.quality is not None:
            effect.gain += d.quality.gain

    def best(self) -> dict[Way, Effect]:
        """Ways that save something; of several values of one objective the one that is least loose and brings nearly all there is."""
        best: dict[tuple[str, str, str], int] = {}
        for way, effect in self.ways.items():
            what = (way.kind, way.route, way.backend)
            best[what] = max(best.get(what, 0), effect.saved)
        found: dict[tuple[str, str, str], Way] = {}
        for way in sorted(self.ways, key=lambda way: way.percent):
            what = (way.kind, way.route, way.backend)
            if self.ways[way].saved > 0 and self.ways[way].saved >= ENOUGH * best[what]:
                found.setdefault(what, way)
        return {way: self.ways[way] for way in found.values()}


def _others(d: Decision, first: Candidate, cost: int) -> Iterator[tuple[Way, Decision]]:
    """The same choice under each way that could change it."""
    cheaper = [c for c in d.candidates if c.cost is not None and c.cost < cost]
    for kind, (goal, predicted) in TIMES.items():
        ms: float | None = getattr(d, goal)
        if ms is None:
            continue
        limit_us = 1000.0 * d.margin * ms
        if getattr(first, predicted) > limit_us or any(not c.reason and getattr(c, predicted) > limit_us for c in cheaper):
            for percent in LOOSER:
                yield Way(kind, d.route, percent=percent), structs.replace(d, **{goal: ms * percent / 100})
    full = [c for c in cheaper if c.reason in FULL]
    for candidate in full:
        yield Way(ROOM, d.route, candidate.backend), _without_reason(d, {candidate.backend})
    quality = d.quality
    weak = {c.backend for c in cheaper if c.reason == QUALITY}
    if weak and quality is not None and quality.unseen <= quality.unseen_most and quality.gain <= quality.limit + GAIN_STEP:
        lowered = structs.replace(quality, limit=quality.limit + GAIN_STEP)
        yield Way(QUALITY, d.route), structs.replace(_without_reason(d, weak), quality=lowered)


def _without_reason(d: Decision, backends: set[str]) -> Decision:
    candidates = tuple(structs.replace(c, reason="", ready_ms=0) if c.backend in backends else c for c in d.candidates)
    return structs.replace(d, candidates=candidates)
