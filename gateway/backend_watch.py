"""What one worker saw of its backends in the last hour, minute by minute: attempts, tokens, cost, predicted and seen first tokens, and how
long each was up, waited, was ejected or drained. Adds up over workers. Knows no SQL; the wall clock (seconds) is passed in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.money.records import UsageRecord
from gateway.routing.decision import Decision
from gateway.routing.router import BackendView

MINUTE_S = 60
HOUR = 60  # minutes that are kept
RECENT = 5  # minutes that "now" is about
EVENTS_KEPT = 32  # of each backend
ERRORS_KEPT = 16  # kinds of error in one minute; others are counted as "other"
PER_OCTAVE = 16  # bins of a doubling: a time is told to 2 %
ABSENT_S = 30  # a worker that did not look for so long was not there

UP, WAITS, EJECTED, DRAINED = "up", "waits", "ejected", "drained"
KINDS = {"ejected": EJECTED, "probing": EJECTED, "stalled": EJECTED, "rate_limited": WAITS, "cooling": WAITS, "drained": DRAINED}
"""What a state of a backend is to who looks at availability; all others are up."""

Bins = dict[int, int]


class Minute(Struct, array_like=True):
    """Of one backend. at: minutes since 1970. predicted, seen: first tokens of streams by bin; inside: of them, seen within what was
    predicted. states: seconds by UP, WAITS, EJECTED, DRAINED. cost in nano-USD, of `tokens`; unpriced: attempts that are not in it."""

    at: int
    attempts: int = 0
    failed: int = 0
    output: int = 0
    tokens: int = 0
    cost: int = 0
    unpriced: int = 0
    judged: int = 0
    inside: int = 0
    errors: dict[str, int] = {}
    predicted: Bins = {}
    seen: Bins = {}
    states: dict[str, float] = {}


class Event(Struct, array_like=True):
    """A backend was not up. kind: WAITS, EJECTED or DRAINED. until: None = it still is not. why: the error before it, "" = none."""

    kind: str
    since: float
    until: float | None = None
    why: str = ""


class Seen(Struct):
    """One backend's last hour and its last events, the oldest first."""

    minutes: deque[Minute]
    events: deque[Event]
    looked: float = 0.0
    last_error: str = ""


class BackendWatch:
    """One per worker. `settled` on the end of each request, `look` once a second."""

    def __init__(self) -> None:
        self.backends: dict[str, Seen] = {}

    def settled(self, record: UsageRecord, decision: Decision | None, now: float) -> None:
        """One request is over: its attempts, and how the first token of each compares with what was predicted of it."""
        for end in record.attempts:
            minute = self._minute(end.backend, now)
            usage = end.usage
            minute.attempts += 1
            minute.output += usage.completion_tokens
            if end.cost is None:
                minute.unpriced += 1
            else:
                minute.cost += end.cost
                minute.tokens += usage.prompt_tokens + usage.completion_tokens
            if end.outcome == "failed":
                minute.failed += 1
                kind = end.error or "error"
                if kind not in minute.errors and len(minute.errors) >= ERRORS_KEPT:
                    kind = "other"
                minute.errors[kind] = minute.errors.get(kind, 0) + 1
                self.backends[end.backend].last_error = kind
            if end.ttft_ms is None or decision is None or not record.streamed:
                continue
            expected = next((c.ttft95_us for c in decision.candidates if c.backend == end.backend), 0)
            if expected:
                us = end.ttft_ms * 1000
                minute.judged += 1
                minute.inside += us <= expected
                _count(minute.seen, us)
                _count(minute.predicted, expected)

    def look(self, views: Iterable[BackendView], now: float) -> None:
        """Note how each backend is; those that are no longer there are forgotten."""
        there = set()
        for view in views:
            there.add(view.backend)
            minute = self._minute(view.backend, now)
            seen = self.backends[view.backend]
            kind = KINDS.get(view.state, UP)
            passed = now - seen.looked
            if 0 < passed < ABSENT_S:
                minute.states[kind] = minute.states.get(kind, 0.0) + passed
            seen.looked = now
            _follow(seen, kind, now)
        for name in self.backends.keys() - there:
            del self.backends[name]

    def recent(self) -> dict[str, list[Minute]]:
        """The last minutes of each backend, the running one included."""
        return {name: list(seen.minutes)[-RECENT - 1 :] for name, seen in self.backends.items()}

    def events(self) -> dict[str, list[Event]]:
        return {name: list(seen.events) for name, seen in self.backends.items()}

    def hour(self) -> dict[str, list[Minute]]:
        return {name: list(seen.minutes) for name, seen in self.backends.items()}

    def carry_on(self, hour: Mapping[str, Sequence[Minute]], events: Mapping[str, Sequence[Event]], ended: float, now: float) -> None:
        """What the worker before this one had seen until it ended."""
        for name, minutes in hour.items():
            kept = [event for event in events.get(name, ()) if now - event.since < HOUR * MINUTE_S]
            for event in kept:
                event.until = ended if event.until is None else event.until
            self.backends[name] = Seen(deque(minutes, maxlen=HOUR), deque(kept, maxlen=EVENTS_KEPT))

    def _minute(self, backend: str, now: float) -> Minute:
        at = int(now) // MINUTE_S
        seen = self.backends.get(backend)
        if seen is None:
            seen = self.backends[backend] = Seen(deque(maxlen=HOUR), deque(maxlen=EVENTS_KEPT))
        if not seen.minutes or seen.minutes[-1].at < at:
            seen.minutes.append(Minute(at))
        return seen.minutes[-1]


def _follow(seen: Seen, kind: str, now: float) -> None:
    last = seen.events[-1] if seen.events and seen.events[-1].until is None else None
    if last is not None and last.kind == kind:
        return
    if last is not None:
        last.until = now
    if kind != UP:
        seen.events.append(Event(kind, now, why=seen.last_error if kind == EJECTED else ""))


def _count(bins: Bins, us: int) -> None:
    number = int(PER_OCTAVE * math.log2(us)) if us > 1 else 0
    bins[number] = bins.get(number, 0) + 1


def quantile_ms(bins: Mapping[int, int], share: float) -> float | None:
    """The time that this share of them does not pass, by the nearest rank, as its bin's geometric middle. None without any."""
    rank, seen = max(1, math.ceil(share * sum(bins.values()))), 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            return float(2 ** ((number + 0.5) / PER_OCTAVE) / 1000)
    return None


def added(parts: Iterable[Minute], at: int = 0) -> Minute:
    """Several minutes, or one minute of several workers, as one."""
    total = Minute(at)
    for one in parts:
        for name in ("attempts", "failed", "output", "tokens", "cost", "unpriced", "judged", "inside"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        for name in ("errors", "predicted", "seen", "states"):
            into = getattr(total, name)
            for key, value in getattr(one, name).items():
                into[key] = into.get(key, 0) + value
    return total


def by_minute(workers: Iterable[Sequence[Minute]], now: float, minutes: int) -> list[Minute]:
    """The last `minutes` minutes, the running one last, each over all workers; minutes that nobody saw are empty."""
    last = int(now) // MINUTE_S
    found: dict[int, list[Minute]] = {at: [] for at in range(last - minutes + 1, last + 1)}
    for seen in workers:
        for one in seen:
            if one.at in found:
                found[one.at].append(one)
    return [added(parts, at) for at, parts in found.items()]
