"""The decision, drawn: bars of cost and time for every candidate as per cents of their boxes, which a template writes as SVG. Pure.

Times lie on 0 to 1.6 times the objective; costs on six times the cheapest that would be in time. What is longer is cut at the edge, says
so, and has its figure beside it. Numbers become text in the template alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.routing.decision import Decision
from gateway.views import figures
from gateway.views.decided import FILTERED, PLANNED, Row, Told

COST_SCALE = 6  # times the cheapest in time
TIME_SCALE = 1.6  # times the objective
HEADROOM = 1.25  # of the longest, where there is no objective
CUT_AT = 88.0  # per cent: where the double slash of a bar that is cut stands


class Bar(Struct, frozen=True, kw_only=True):
    """Per cents of the box from 0 to 100. width: of the bar; cut: it would be longer than the box; late: it is over what is in time; safe
    and goal: lines of what is in time and of the objective; seen: what came, seen_cut: beyond the box. label: the same in words."""

    width: float
    cut: bool = False
    late: bool = False
    safe: float | None = None
    goal: float | None = None
    seen: float | None = None
    seen_cut: bool = False
    label: str = ""


class Drawn(Struct, frozen=True, kw_only=True):
    """One candidate. tags: chosen, answered. cost and ttft: None where nothing was predicted."""

    row: Row
    tags: tuple[str, ...]
    cost: Bar | None
    ttft: Bar | None


class Drawing(Struct, frozen=True, kw_only=True):
    """planned, then those set aside with a prediction, then those that were filtered out before. scale_us: of the times' box."""

    planned: tuple[Drawn, ...]
    aside: tuple[Drawn, ...]
    filtered: tuple[Drawn, ...]
    scale_us: int
    objective_us: int | None


def draw(decision: Decision, told: Told, seen_ms: Mapping[str, int] = {}, answered: str = "") -> Drawing:
    """seen_ms: to the first token, of backends that were asked and answered. answered: the backend whose answer it was."""
    objective = None if decision.ttft_ms is None else int(decision.ttft_ms * 1000)
    scale = time_scale(objective, [row.ttft95_us for row in told.rows if row.group != FILTERED], list(seen_ms.values()))
    cheapest = [row.cost for row in told.rows if row.group == PLANNED and row.cost is not None and row.in_time]
    cheapest = cheapest or [row.cost for row in told.rows if row.group != FILTERED and row.cost is not None]
    cost_scale = COST_SCALE * min(cheapest, default=0) or max((row.cost or 0 for row in told.rows), default=0)

    def drawn(row: Row) -> Drawn:
        tags = (*(("chosen",) if row.place == 1 else ()), *(("answered",) if row.backend == answered and row.place != 1 else ()))
        if row.group == FILTERED:
            return Drawn(row=row, tags=tags, cost=None, ttft=None)
        time = time_bar(row, (scale, told.limit_us, objective), seen_ms.get(row.backend))
        return Drawn(row=row, tags=tags, cost=None if row.cost is None else cost_bar(row.cost, cost_scale), ttft=time)

    groups = {name: tuple(drawn(row) for row in told.rows if row.group == name) for name in ("planned", "aside", "filtered")}
    return Drawing(**groups, scale_us=scale, objective_us=objective)


def time_scale(objective_us: int | None, predicted_us: Sequence[int], seen_ms: Sequence[int]) -> int:
    """Microseconds of the whole box; never 0."""
    if objective_us is not None and objective_us > 0:
        return max(1, int(objective_us * TIME_SCALE))
    return max(1, int(max([*predicted_us, *(ms * 1000 for ms in seen_ms)], default=0) * HEADROOM))


def part(value: float, whole: float) -> float:
    """Per cent of a box, within it, with one decimal."""
    return 0.0 if whole <= 0 else round(min(100.0, max(0.0, 100.0 * value / whole)), 1)


def cost_bar(cost: int, scale: int) -> Bar:
    return Bar(width=part(cost, scale), cut=scale > 0 and cost > scale)


def time_bar(row: Row, scales: tuple[int, int | None, int | None], seen_ms: int | None) -> Bar:
    """scales: microseconds of the box, of what is in time and of the objective."""
    scale, limit, objective = scales
    words = [f"Predicted {figures.duration(row.ttft95_us / 1000)}"]
    if seen_ms is not None:
        words.append(f"seen {figures.duration(seen_ms)}")
    if objective is not None:
        words.append(f"objective {figures.duration(objective / 1000)}")
    return Bar(
        width=part(row.ttft95_us, scale),
        cut=row.ttft95_us > scale,
        late=limit is not None and row.ttft95_us > limit,
        safe=None if limit is None else part(limit, scale),
        goal=None if objective is None else part(objective, scale),
        seen=None if seen_ms is None else part(seen_ms * 1000, scale),
        seen_cut=seen_ms is not None and seen_ms * 1000 > scale,
        label=", ".join(words),
    )
