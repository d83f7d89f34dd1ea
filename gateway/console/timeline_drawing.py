"""A request's timeline: its attempts one under the other on one axis from admission to the end, as per cents for SVG. Pure.

When an attempt began stands in its row; of rows that were written before it did, it follows from what is known: the one that answered by
the two times to its first token, the others one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.console.decision_drawing import part
from gateway.views import figures

GATEWAY, WAITING, STREAMING, FAILED = "gateway", "waiting", "streaming", "failed"
LEAST = 0.4  # per cent: what is shorter would not be seen
STEPS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000)
TICKS_MOST = 5


class Piece(Struct, frozen=True, kw_only=True):
    """kind: GATEWAY | WAITING | STREAMING | FAILED. left, width: per cents of the box."""

    kind: str
    left: float
    width: float


class Lane(Struct, frozen=True, kw_only=True):
    """One row. n: of the attempt, 0 = the gateway's own. tag: what it ended with, where that was no answer. took: in words. label: all of
    the row in words."""

    n: int
    name: str
    tag: str
    pieces: tuple[Piece, ...]
    took: str
    label: str


class Tick(Struct, frozen=True):
    at: float
    word: str


class Timeline(Struct, frozen=True, kw_only=True):
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    total_ms: int


def draw(row: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> Timeline:
    """row: of the usage table; tried: of the attempts table, in their order."""
    begun = begins_ms(row, tried)
    total = max([1, row["duration_ms"], *(at + one["duration_ms"] for at, one in zip(begun, tried, strict=True))])
    lanes = [_attempt(one, at, total) for at, one in zip(begun, tried, strict=True)]
    first = min(begun, default=row["duration_ms"])
    admitted = "Admit, decide, reserve" if tried else "Answer from the cache" if row["outcome"] == "cached" else "Admit and refuse"
    before = _lane(0, admitted, "", ((GATEWAY, 0, first),), total, first)
    return Timeline(lanes=(before, *lanes), ticks=ticks(total), total_ms=row["duration_ms"])


def begins_ms(row: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> list[int]:
    """When each attempt began, from the admission."""
    known = [one["began_ms"] for one in tried]
    if None not in known:
        return [max(0, at) for at in known]
    found: list[int] = []
    end = 0
    for one in tried:
        at = end
        answered = one["outcome"] != "failed" and one["ttft_ms"] is not None and row["ttft_ms"] is not None
        if answered and one["backend"] == row["backend"]:
            at = max(0, row["ttft_ms"] - one["ttft_ms"])
        found.append(at)
        end = max(end, at + one["duration_ms"])
    return found


def _attempt(one: Mapping[str, Any], at: int, total: int) -> Lane:
    took, first = one["duration_ms"], one["ttft_ms"]
    tag = ""
    if one["outcome"] == "failed":
        tag = str(one["status"] or one["error"] or "failed")
        pieces = [(FAILED, at, took)]
    elif one["error"] == "lost_race":
        tag = "lost the race"
        pieces = [(WAITING, at, took)]
    elif first is None or first > took:
        tag = "" if one["outcome"] == "completed" else one["outcome"]
        pieces = [(WAITING, at, took)]
    else:
        tag = "" if one["outcome"] == "completed" else one["outcome"]
        pieces = [(WAITING, at, first), (STREAMING, at + first, took - first)]
    return _lane(one["n"], one["backend"], tag, tuple(pieces), total, took)


def _lane(n: int, name: str, tag: str, pieces: tuple[tuple[str, int, int], ...], total: int, took: int) -> Lane:
    told = [f"{kind} from {figures.duration(at)} to {figures.duration(at + width)}" for kind, at, width in pieces]
    words = figures.duration(took) if took else "under 1 ms"
    return Lane(n=n, name=name, tag=tag, pieces=tuple(_piece(*one, total) for one in pieces), took=words, label=", ".join(told))


def _piece(kind: str, at: int, width: int, total: int) -> Piece:
    """Within the box, and wide enough to be seen."""
    wide = max(LEAST, part(width, total))
    left = min(part(at, total), round(100.0 - wide, 1))
    return Piece(kind=kind, left=max(0.0, left), width=round(min(wide, 100.0 - max(0.0, left)), 1))


def ticks(total_ms: int) -> tuple[Tick, ...]:
    """The axis: round times from 0, at most TICKS_MOST, none so near to the end that its word would leave the box."""
    step = next((step for step in STEPS_MS if total_ms / step <= TICKS_MOST), STEPS_MS[-1] * -(-total_ms // (STEPS_MS[-1] * TICKS_MOST)))
    found = [at for at in range(0, total_ms + 1, step) if at <= total_ms * 0.92]
    return tuple(Tick(part(at, total_ms), "0" if at == 0 else _round(at)) for at in found)


def _round(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms // 1000} s" if ms < 60_000 else f"{ms // 60_000} min"
