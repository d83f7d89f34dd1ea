"""What charts.js draws, made of series: specs, legends and the same numbers as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.money.ledger import DAY_US
from gateway.money.windows import zone
from gateway.views import figures
from gateway.views.series import Steps

TOP = 7  # things with a colour of their own; the rest is one
OTHER = "Other"
TEXTS: dict[str, Callable[[Any], str]] = {"usd": figures.money, "n": figures.count, "tokens": figures.tokens, "ms": figures.duration}
_SECOND = 1_000_000


class Named(Struct, frozen=True):
    """An entry of a legend. value: what it comes to, ready to be shown, or None."""

    label: str
    slot: int
    value: Any
    dash: bool = False


class Chart(Struct, frozen=True):
    """spec: for charts.js. head, rows: the same as a table. label: in a sentence."""

    spec: dict[str, Any]
    legend: tuple[Named, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    label: str


def stacked(series: Mapping[str, Sequence[int]], order: Mapping[str, int], at: Steps, unit: str, what: str) -> Chart:
    """The largest at the bottom; beyond TOP the rest as one. order: place of birth of each thing, which gives its colour. what: "Spend by
    team per hour"."""
    ranked = sorted((name for name in series if any(series[name])), key=lambda name: (-sum(series[name]), name))
    kept, rest = ranked[:TOP], ranked[TOP:]
    slots = figures.slots(kept, order)
    drawn = [(name, slots[name], list(series[name])) for name in kept]
    if rest:
        drawn.append(
            (f"{OTHER} ({len(rest)})", figures.REST, [sum(values) for values in zip(*(series[name] for name in rest), strict=True)])
        )
    text = TEXTS[unit]
    total = sum(sum(values) for _, _, values in drawn)
    biggest = f" The largest is {drawn[0][0]} with {text(sum(drawn[0][2]))}." if drawn else ""
    return Chart(
        spec=_spec(at, unit, [{"label": name, "color": f"c{slot}", "data": values} for name, slot, values in drawn]),
        legend=tuple(Named(name, slot, text(sum(values))) for name, slot, values in drawn),
        head=("Time", *(name for name, _, _ in drawn)),
        rows=_rows(at, [values for _, _, values in drawn], text),
        label=f"{what}, stacked. Total {text(total)}.{biggest}",
    )


def quantiles(lines: Mapping[str, Sequence[int | None]], whole: Mapping[str, int | None], at: Steps, objective_ms: float | None) -> Chart:
    """Time to first token: p50 grey, p95 in the accent, p99 dashed, and the objective where there is one."""
    look: dict[str, dict[str, Any]] = {
        "p50": {"color": "c8"},
        "p95": {"color": "c1", "width": 2.25},
        "p99": {"color": "c7", "dash": [5, 3]},
    }
    spec = _spec(at, "ms", [{"label": name, "data": list(values), **look[name]} for name, values in lines.items()])
    told = ""
    if objective_ms is not None:
        spec["lines"] = [{"y": objective_ms, "label": f"objective {figures.duration(objective_ms)}"}]
        told = f" The objective is {figures.duration(objective_ms)}."
    return Chart(
        spec=spec,
        legend=tuple(Named(name, int(look[name]["color"][1:]), figures.duration(whole[name]), "dash" in look[name]) for name in lines),
        head=("Time", *lines),
        rows=_rows(at, list(lines.values()), figures.duration),
        label=f"Time to first token: {', '.join(f'{name} {figures.duration(whole[name])}' for name in lines)}.{told}",
    )


def _spec(at: Steps, unit: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "x": [start // _SECOND for start in at.starts],
        "step": at.step_us // _SECOND,
        "zone": at.tz,
        "unit": unit,
        "zoom": at.step_us < DAY_US,
        "series": series,
    }


def _rows(at: Steps, columns: Sequence[Sequence[Any]], text: Callable[[Any], str]) -> tuple[tuple[str, ...], ...]:
    local = zone(at.tz)

    def called(start: int) -> str:
        return figures.day(start, local) if at.step_us >= DAY_US else f"{figures.day(start, local)} {figures.clock(start, local)}"

    return tuple((called(start), *(text(column[place]) for column in columns)) for place, start in enumerate(at.starts))
