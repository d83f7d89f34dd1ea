"""What came of runs: shares, dollars and quantiles, the clairvoyant's curve, a Markdown table and an SVG. Knows no policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from tests.bench.sim.run import Result

INKS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#d62728", "#111111")


class Figures(Struct, frozen=True):
    """Of one policy in one scenario: the mean over seeds. usd: of the whole run."""

    met: float
    usd: float
    ttft50_s: float
    ttft95_s: float
    e2e50_s: float
    e2e95_s: float
    hedges: float
    attempts: float


def figures(results: Sequence[Result]) -> Figures:
    count = len(results)
    ttft = sorted(one.ttft_s for one in results)
    e2e = sorted(one.e2e_s for one in results)
    return Figures(
        sum(one.met for one in results) / count,
        sum(one.cost for one in results) / 1e9,
        ttft[count // 2],
        ttft[count * 95 // 100],
        e2e[count // 2],
        e2e[count * 95 // 100],
        sum(one.hedged for one in results) / count,
        sum(one.attempts for one in results) / count,
    )


def mean(several: Sequence[Figures]) -> Figures:
    values = [[getattr(one, name) for one in several] for name in Figures.__struct_fields__]
    return Figures(*(sum(column) / len(column) for column in values))


def at_attainment(curve: Sequence[tuple[float, float]], met: float) -> float:
    """The clairvoyant's cost at this attainment. curve: (met, usd) by margin. Between two points a line; past its end, its best point;
    below its beginning, its cheapest."""
    best: list[tuple[float, float]] = []
    for point in sorted(curve, key=lambda one: (one[1], -one[0])):  # the frontier: each dearer point must attain more
        if not best or point[0] > best[-1][0]:
            best.append(point)
    if met <= best[0][0]:
        return best[0][1]
    for (low, cheap), (high, dear) in pairwise(best):
        if met <= high:
            return cheap + (dear - cheap) * (met - low) / (high - low)
    return best[-1][1]


def table(scenario: str, rows: dict[str, Figures], curve: Sequence[tuple[float, float]]) -> str:
    lines = [
        f"**{scenario}**",
        "",
        "| policy | objectives met | USD | of clairvoyant | TTFT p50 / p95 s | end p50 / p95 s | hedges | attempts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, f in rows.items():
        ratio = f.usd / at_attainment(curve, f.met) if curve else 0.0
        lines.append(
            f"| {name} | {100 * f.met:.2f} % | {f.usd:.3f} | {ratio:.2f} | {f.ttft50_s:.2f} / {f.ttft95_s:.2f} "
            f"| {f.e2e50_s:.1f} / {f.e2e95_s:.1f} | {100 * f.hedges:.1f} % | {f.attempts:.2f} |"
        )
    return "\n".join(lines)


def plot(path: Path, scenarios: dict[str, dict[str, Figures]], curves: dict[str, list[tuple[float, float]]]) -> None:
    """One panel per scenario: dollars across, objectives met upwards; the line is the clairvoyant's curve."""
    wide, high, gap = 250, 230, 46
    names = list(dict.fromkeys(name for rows in scenarios.values() for name in rows))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{(wide + gap) * len(scenarios) + 20}" height="{high + 96}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    most = max(f.usd for rows in scenarios.values() for f in rows.values()) * 1.05
    least = 0.85
    for column, (scenario, rows) in enumerate(scenarios.items()):
        left, top = 44 + column * (wide + gap), 26

        def place(usd: float, met: float, left: int = left, top: int = top) -> tuple[float, float]:
            return left + wide * usd / most, top + high * (1.0 - (max(met, least) - least) / (1.0 - least))

        parts.append(f'<text x="{left}" y="16" font-weight="bold">{scenario}</text>')
        parts.append(f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" fill="none" stroke="#999"/>')
        for met in (0.85, 0.9, 0.95, 0.985, 1.0):
            _, y = place(0, met)
            parts.append(f'<line x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{100 * met:g}</text>')
        for usd in range(int(most) + 1):
            x, _ = place(usd, least)
            parts.append(f'<text x="{x:.1f}" y="{top + high + 14}" text-anchor="middle">${usd}</text>')
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(usd, met) for met, usd in sorted(curves.get(scenario, []))))
        parts.append(f'<polyline points="{line}" fill="none" stroke="#111" stroke-dasharray="4 3"/>')
        for name, f in rows.items():
            x, y = place(f.usd, f.met)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{INKS[names.index(name) % len(INKS)]}"/>')
    for number, name in enumerate(names):
        x, y = 44 + (number % 6) * 230, high + 66 + 18 * (number // 6)
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4.5" fill="{INKS[number % len(INKS)]}"/><text x="{x + 9}" y="{y}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")
