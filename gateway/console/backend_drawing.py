"""Backends, drawn: predicted against seen, availability, the blocks of a KV cache, as per cents and squares that a template writes as SVG;
and a backend's state in words. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from gateway.backend_watch import EJECTED
from gateway.routing.engine_load import LastHour
from gateway.routing.router import EngineView
from gateway.views import figures
from gateway.views.backends import READY, BackendRow, FirstToken, OwnedView, Slot
from providers.figures import Figures

OVER = 1.15  # times the prediction: from here on what was seen is red
SQUARES = 160
PER_ROW = 20
LEAST_WIDTH = 0.5  # per cent: what was short is still seen
WHOLE_S = 3540.0  # of an hour: samples are a minute apart
SCALES_MS = (250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 600_000)


class Dumbbell(Struct, frozen=True, kw_only=True):
    """Per cents of the scale; None = no samples, or no objective."""

    predicted: float | None
    seen: float | None
    objective: float | None
    over: bool
    label: str


class Piece(Struct, frozen=True, kw_only=True):
    """A stretch of the strip. kind: of console.css, up | wt | dn | dr. x and width in per cent; y and height in pixels."""

    kind: str
    x: float
    width: float
    y: int
    height: int


class Square(Struct, frozen=True, kw_only=True):
    """kind: of console.css, s shared | u in use | e free."""

    kind: str
    x: float
    y: float


class Blocks(Struct, frozen=True, kw_only=True):
    """told: in words. label: the same, with what is shared. rows: of the drawing. shared: None = it does not say."""

    squares: tuple[Square, ...]
    rows: int
    told: str
    label: str
    shared: int | None = None


class Engine(Struct, frozen=True, kw_only=True):
    """An engine's card: figures by their titles, in words, its cache drawn, and rows on its GPU."""

    stats: tuple[tuple[str, str], ...]
    blocks: Blocks | None
    device: tuple[tuple[str, str], ...]


class State(Struct, frozen=True, kw_only=True):
    """kind: ok | warn | bad | "". icon "": the kind's own."""

    kind: str
    words: str
    icon: str = ""


def scale_ms(rows: Sequence[tuple[FirstToken, float | None]]) -> float:
    """One scale for all dumbbells: the first round number that holds every figure and objective, with room behind it."""
    shown = [ms for first, objective in rows for ms in (first.predicted_ms, first.seen_ms, objective) if ms is not None]
    most = max(shown, default=1000.0) * 1.15
    return float(next((scale for scale in SCALES_MS if scale >= most), math.ceil(most)))


def scale_words(ms: float) -> str:
    """250 ms, 2 s."""
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def dumbbell(first: FirstToken, objective_ms: float | None, scale: float) -> Dumbbell:
    """A hollow ring for what was predicted, a dot for what was seen."""
    predicted, seen = first.predicted_ms, first.seen_ms
    words = f"Predicted {figures.duration(predicted)}, seen {figures.duration(seen)}"
    return Dumbbell(
        predicted=_place(predicted, scale),
        seen=_place(seen, scale),
        objective=_place(objective_ms, scale),
        over=predicted is not None and seen is not None and seen > OVER * predicted,
        label=words if objective_ms is None else f"{words}, objective {figures.duration(objective_ms)}",
    )


def _place(ms: float | None, scale: float) -> float | None:
    return None if ms is None else round(min(100.0, 100.0 * ms / scale), 2)


def strip(slots: Sequence[Slot]) -> tuple[Piece, ...]:
    """A thin green line where somebody watched, and over it what was not up: taller the worse it was."""
    width = 100.0 / max(1, len(slots))
    pieces = [Piece(kind="up", x=round(a * width, 2), width=round((b - a) * width, 2), y=6, height=6) for a, b in _watched(slots)]
    for place, slot in enumerate(slots):
        for kind, share, y, height in (("wt", slot.waits, 2, 14), ("dr", slot.drained, 4, 10), ("dn", slot.ejected, 0, 18)):
            if share:
                pieces.append(
                    Piece(kind=kind, x=round(place * width, 2), width=round(max(LEAST_WIDTH, width * share), 2), y=y, height=height)
                )
    return tuple(pieces)


def _watched(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """Runs of minutes in which somebody was there: from, to (not included)."""
    runs: list[tuple[int, int]] = []
    for place, slot in enumerate(slots):
        if slot.ejected is None:
            continue
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs


def up(slots: Sequence[Slot]) -> float | None:
    """The share of the watched time in which it was neither waited for, ejected nor drained. None: nobody was there."""
    watched = [slot for slot in slots if slot.ejected is not None]
    if not watched:
        return None
    return sum(1.0 - (slot.waits or 0.0) - (slot.ejected or 0.0) - (slot.drained or 0.0) for slot in watched) / len(watched)


def blocks(seen: Figures) -> Blocks | None:
    """One square for each 160th of the cache; None where the engine does not say how full it is."""
    used, free, shared = seen.kv_blocks_used, seen.kv_blocks_free, None
    if used is not None and free is not None and used + free > 0:
        share, told = used / (used + free), f"{figures.count(used)} of {figures.count(used + free)} in use"
        shared = None if seen.kv_blocks_shared is None else min(seen.kv_blocks_shared, used)
    elif seen.kv_share is not None:
        share, told = seen.kv_share, f"{figures.share(seen.kv_share)} in use"
    else:
        return None
    filled = min(SQUARES, math.ceil(share * SQUARES)) if share > 0 else 0
    common = math.ceil(filled * shared / used) if shared and used else 0
    squares = (
        Square(
            kind="s" if place < common else "u" if place < filled else "e",
            x=10 * (place % PER_ROW) + 0.75,
            y=10 * (place // PER_ROW) + 0.75,
        )
        for place in range(SQUARES)
    )
    label = told if shared is None else f"{told}, {figures.count(shared)} of them shared"
    return Blocks(squares=tuple(squares), rows=SQUARES // PER_ROW, told=told, label=label, shared=shared)


def engine(vendor: str, view: EngineView) -> Engine | None:
    """What an engine says of itself now and said in its last hour; None while that is not known."""
    seen = view.figures
    if seen is None:
        return None
    stats = (
        ("Running", _told(seen.running)),
        ("Waiting", _told(seen.waiting)),
        ("Batch", _told(seen.batch)),
        ("Prefix hits", _hits(seen, view.lately)),
        ("Preempted", _preempted(seen, view.lately)),
    )
    return Engine(stats=stats, blocks=blocks(seen), device=_device(vendor, seen))


def _told(number: int | None) -> str:
    return "not told" if number is None else figures.count(number)


def _hits(seen: Figures, lately: LastHour | None) -> str:
    """Of the last hour's prompts; before there is one, of all."""
    if lately is not None and lately.prefix_hits is not None:
        return figures.share(lately.prefix_hits)
    if seen.prefix_hit_tokens is None:
        return "not told"
    return figures.share(seen.prefix_hit_tokens / seen.prompt_tokens) if seen.prompt_tokens else "no prompts"


def _preempted(seen: Figures, lately: LastHour | None) -> str:
    """Of the last hour; of as much as was watched where that is less, and of all before a minute was."""
    if seen.preemptions is None:
        return "not told"
    if lately is None or lately.preemptions is None:
        return f"{figures.count(seen.preemptions)} in all"
    return (
        f"{figures.count(lately.preemptions)} / h" if lately.over_s >= WHOLE_S else f"{lately.preemptions} in {lately.over_s / 60:.0f} min"
    )


def _device(vendor: str, seen: Figures) -> tuple[tuple[str, str], ...]:
    if seen.device_memory_bytes is None and seen.device_busy_share is None:
        return (("GPU", "none, CPU alone" if vendor == "local" else "not told"),)
    used, memory = seen.device_memory_used_bytes, seen.device_memory_bytes
    held = "not told" if used is None or memory is None else f"{used / 1e9:.1f} of {memory / 1e9:.1f} GB"
    busy = "not told" if seen.device_busy_share is None else figures.share(seen.device_busy_share)
    return (("GPU utilisation", busy), ("GPU memory", held))


def state(row: BackendRow, now_us: int) -> State:
    """A backend's state with its reason and what is waited for."""
    against = [worker for worker in row.workers if worker.state != READY]
    where = f" on {len(against)} of {len(row.workers)} workers" if against and len(against) < len(row.workers) else ""
    found = _state(row, now_us)
    return found if not where or row.state == "drained" else State(kind=found.kind, words=found.words + where, icon=found.icon)


def _state(row: BackendRow, now_us: int) -> State:
    if row.state == "drained":
        left = f", {figures.count(row.in_flight)} left" if row.in_flight else ""
        return State(kind="", words=f"Drained{left}", icon="pause")
    wait = f" {_seconds(row.ready_in_s)}" if row.ready_in_s > 0 else ""
    if row.state == "ejected":
        since = [event.since_us for event in row.events if event.kind == EJECTED and event.until_us is None]
        for_ = f" {_seconds(max(0, now_us - min(since)) // 1_000_000)}" if since else ""
        return State(kind="bad", words=f"Ejected{for_}{f', probe in{wait}' if wait else ''}")
    return {
        "probing": State(kind="bad", words="Ejected, a probe runs"),
        "stalled": State(kind="bad", words="Silent, nothing answers"),
        "rate_limited": State(kind="warn", words=f"Waits{wait}, Retry-After", icon="hourglass"),
        "headroom": State(kind="warn", words=f"Rate limit used up{wait and f', {wait.strip()}'}", icon="hourglass"),
        "cooling": State(kind="warn", words=f"Cools down{wait}", icon="hourglass"),
        "parallel": State(kind="warn", words="At its limit of requests", icon="hourglass"),
    }.get(row.state, State(kind="ok", words="Healthy"))


def _seconds(seconds: float) -> str:
    """Whole ones: what counts down has no decimals."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 60 else figures.duration(1000 * whole)


def break_even(owned: OwnedView) -> str:
    """Whether the machine is worth its money, in a sentence or two."""
    if owned.utilisation is None:
        return "No hour of it is closed yet: what it comes to is known after the first."
    busy = f"It was busy {figures.share(float(owned.utilisation))} of the last {owned.hours} closed hour{'' if owned.hours == 1 else 's'}."
    if owned.cheaper is None:
        return f"No hosted backend with a known price would be cheaper for the same tokens. {busy}"
    if owned.below is None:
        return f"{owned.cheaper} is cheaper for the same tokens, however busy it is. {busy}"
    return f"Below {figures.share(float(Decimal(owned.below)))} busy, {owned.cheaper} would be cheaper. {busy}"


def counts(states: Sequence[State], rows: Sequence[BackendRow]) -> str:
    """4 healthy, 1 waits, 1 ejected · 87 in flight · 2,914 tokens/s out."""
    names = (("ok", "healthy"), ("warn", "waiting"), ("bad", "ejected"), ("", "drained"))
    told = [f"{n} {word}" for kind, word in names if (n := sum(one.kind == kind for one in states))]
    flight, rate = sum(row.in_flight for row in rows), sum(row.output_tokens_per_s for row in rows)
    return f"{', '.join(told) or 'none'} · {figures.count(flight)} in flight · {figures.count(round(rate))} tokens/s out"
