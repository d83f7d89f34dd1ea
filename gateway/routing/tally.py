"""What many decisions come to: why the first of each was taken, who was passed over and why, what the quality model said.

Pure, over Decision records, off the request path: the decision log counts a batch of them before it writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gateway.routing.decision import Decision, late

Tally = Counter[tuple[str, tuple[str, ...]]]  # (metric, label values) -> how often


def tally(decisions: Iterable[Decision]) -> Tally:
    """By the names of gateway/metrics.py."""
    found: Tally = Counter()
    for decision in decisions:
        found["tollway_decisions_total", (decision.route, why(decision))] += 1
        for candidate in decision.candidates:
            if candidate.reason:
                found["tollway_set_aside_total", (candidate.backend, candidate.reason)] += 1
        if decision.quality is not None:
            found["tollway_quality_total", (decision.route, verdict(decision))] += 1
    return found


def why(d: Decision) -> str:
    """Why the first was taken: `explored`; `only` one was left; the `cheapest` in time; the least `late`; `last_resort`, though it had been
    set aside; or `none` could be asked."""
    if not d.order:
        return "none"
    first = d.candidates[d.order[0]]
    if d.explored:
        return "explored"
    if first.reason:
        return "last_resort"
    if sum(not one.reason for one in d.candidates) == 1:
        return "only"
    return "late" if late(d, first) else "cheapest"


def verdict(d: Decision) -> str:
    """weak: a weak backend would do; strong: it would not; unseen: the prompt is unlike what was learnt from, so a strong one is asked."""
    assert d.quality is not None
    if d.quality.unseen > d.quality.unseen_most:
        return "unseen"
    return "strong" if d.quality.needs_strong else "weak"
