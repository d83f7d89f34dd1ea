"""Throughput against both latencies as an SVG: one line per way to run, a point per batch limit. Measures nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INKS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
WIDE, HIGH, GAP, LEFT, TOP = 340, 240, 70, 56, 30


@dataclass(frozen=True)
class Point:
    limit: int
    tokens_s: float
    ttft_s: float
    between_s: float


def draw(path: Path, lines: Mapping[str, Sequence[Point]]) -> None:
    """Two panels, milliseconds across (logarithmic), tokens per second upwards; each point is labelled with its batch limit."""
    most = 1.1 * max(point.tokens_s for points in lines.values() for point in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + 2 * (WIDE + GAP)}" height="{TOP + HIGH + 70 + 18 * (len(lines) // 2)}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for column, (title, field) in enumerate((("time to first token, ms", "ttft_s"), ("time per token, ms", "between_s"))):
        left = LEFT + column * (WIDE + GAP)
        values = [1000 * getattr(point, field) for points in lines.values() for point in points]
        low, high = math.log10(min(values) * 0.8), math.log10(max(values) * 1.25)
        parts += _frame(left, title, most, (low, high))
        for number, points in enumerate(lines.values()):
            places = [_place(left, 1000 * getattr(one, field), one.tokens_s, most, (low, high)) for one in points]
            parts += _line(places, [one.limit for one in points], INKS[number % len(INKS)])
    for number, name in enumerate(lines):
        x, y = LEFT + number % 2 * (WIDE + GAP), TOP + HIGH + 56 + 18 * (number // 2)
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{INKS[number % len(INKS)]}"/><text x="{x + 9}" y="{y}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def _place(left: int, ms: float, tokens_s: float, most: float, decades: tuple[float, float]) -> tuple[float, float]:
    low, high = decades
    return left + WIDE * (math.log10(ms) - low) / (high - low), TOP + HIGH * (1 - tokens_s / most)


def _frame(left: int, title: str, most: float, decades: tuple[float, float]) -> list[str]:
    parts = [
        f'<text x="{left}" y="18" font-weight="bold">tokens/s against {title}, by batch limit</text>',
        f'<rect x="{left}" y="{TOP}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#999"/>',
    ]
    step = 10 ** math.floor(math.log10(most))
    step = step if most / step >= 4 else step / 2 if most / step >= 2 else step / 5
    for number in range(int(most / step) + 1):
        _, y = _place(left, 10 ** decades[0], number * step, most, decades)
        parts.append(f'<line x1="{left}" x2="{left + WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    ticks = [digit * 10**decade for decade in range(-1, 7) for digit in (1, 2, 5)]
    for ms in (tick for tick in ticks if decades[0] <= math.log10(tick) <= decades[1]):
        x, _ = _place(left, ms, 0, most, decades)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + HIGH}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 14}" text-anchor="middle">{ms:g}</text>')
    parts.append(f'<text x="{left + WIDE / 2}" y="{TOP + HIGH + 32}" text-anchor="middle">{title}</text>')
    return parts


def _line(places: Sequence[tuple[float, float]], limits: Sequence[int], ink: str) -> list[str]:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline points="{points}" fill="none" stroke="{ink}"/>']
    for (x, y), limit in zip(places, limits, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{ink}"/><text x="{x + 6:.1f}" y="{y - 5:.1f}">{limit}</text>')
    return parts
