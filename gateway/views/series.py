"""Spend and its companions over time, from the roll-ups: one read for a chart and its sums. Knows no page."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.money.latencies import quantile_ms
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US, ROLLUP_SUMS
from gateway.money.report_query import Bins, Sums, Wanted, read
from gateway.money.windows import bounds, to_datetime, zone

POINTS_MAX = 60
DAYS_FROM_US, DAYS_MAX = 14 * DAY_US, 100  # longer stretches are told per day, much longer ones per week
GROUPS_MAX = 10_000
FINE_US = 12 * HOUR_US  # stretches up to which steps are finer than an hour, the grain of the coarse roll-ups
STEPS = (BUCKET_US, HOUR_US, 3 * HOUR_US, 6 * HOUR_US, 12 * HOUR_US)
_AT = {name: place for place, name in enumerate(ROLLUP_SUMS)}


class Steps(Struct, frozen=True):
    """Where the points of a chart begin, µs; the last ends at until_us. step_us: of each; days and weeks are local, so some differ."""

    step_us: int
    starts: tuple[int, ...]
    until_us: int
    tz: str


def steps(since_us: int, until_us: int, tz: str) -> Steps:
    """The finest steps that make no more than POINTS_MAX points, or days, or weeks."""
    long = until_us - since_us
    least_us = BUCKET_US if long <= FINE_US else HOUR_US
    step_us = next((step for step in STEPS if step >= least_us and long <= step * POINTS_MAX), DAY_US)
    if long > DAYS_FROM_US:
        step_us = DAY_US if long <= DAYS_MAX * DAY_US else 7 * DAY_US
    if step_us < DAY_US:
        return Steps(step_us, tuple(range(since_us, until_us, step_us)), until_us, tz)
    starts, period = [since_us], "day" if step_us == DAY_US else "week"
    while (after := bounds(period, tz, starts[-1])[1]) is not None and after < until_us:
        starts.append(after)
    return Steps(step_us, tuple(starts), until_us, tz)


def word(step_us: int) -> str:
    """per 30 minutes, per day."""
    return {
        BUCKET_US: "per 15 minutes",
        HOUR_US: "per hour",
        DAY_US: "per day",
        7 * DAY_US: "per week",
    }.get(step_us, f"per {step_us // HOUR_US} hours")


class Part:
    """What one group comes to in one stretch: sums by name, requests by outcome, bins of latencies by metric."""

    __slots__ = ("bins", "outcomes", "sums")

    def __init__(self) -> None:
        self.sums = [0] * len(ROLLUP_SUMS)
        self.outcomes: dict[str, int] = {}
        self.bins: dict[str, dict[int, int]] = {}

    def add(self, outcome: str, sums: Sequence[int]) -> None:
        self.sums = list(map(add, self.sums, sums))
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + sums[_AT["requests"]]

    def add_bins(self, metrics: Mapping[str, Mapping[int, int]]) -> None:
        for metric, bins in metrics.items():
            mine = self.bins.setdefault(metric, {})
            for number, times in bins.items():
                mine[number] = mine.get(number, 0) + times

    def merge(self, other: Part) -> None:
        self.sums = list(map(add, self.sums, other.sums))
        for outcome, requests in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + requests
        self.add_bins(other.bins)

    def of(self, name: str) -> int:
        return self.sums[_AT[name]]

    @property
    def tokens(self) -> int:
        """All classes: they are disjoint."""
        return sum(self.sums[len(ROLLUP_SUMS) - 10 :])

    def quantile(self, metric: str, share: float) -> int | None:
        return quantile_ms(self.bins.get(metric, {}), share)


class Series(Struct, frozen=True):
    """by: group -> its parts, one per step. points: all groups together. total: of all."""

    steps: Steps
    by: dict[tuple[Any, ...], dict[int, Part]]
    points: tuple[Part, ...]
    total: Part

    def group(self, group: tuple[Any, ...]) -> Part:
        return joined(self.by[group].values())


READ_MAX = 60_000  # requests of a stretch that are read by quarters of an hour, where no coarser roll-up has what is asked


def tail(points: Sequence[Part], at: Steps, most: int = READ_MAX) -> Steps:
    """The end of a stretch that has at most so many requests, its last step at least: those of its steps."""
    first, seen = len(points) - 1, points[-1].of("requests")
    while first > 0 and seen + points[first - 1].of("requests") <= most:
        first -= 1
        seen += points[first].of("requests")
    return at if first == 0 else steps(at.starts[first], at.until_us, at.tz)


def joined(parts: Any) -> Part:
    whole = Part()
    for part in parts:
        whole.merge(part)
    return whole


async def series(
    connection: AsyncConnection,
    keys: tuple[str, ...],
    where: Mapping[str, Any],
    at: Steps,
    *,
    latencies: bool = False,
    sums: tuple[str, ...] = ROLLUP_SUMS,
) -> Series:
    """keys: columns to group by. sums: those that are read, the others are 0."""
    wanted = Wanted(
        keys=keys,
        since_us=at.starts[0],
        until_us=at.until_us,
        label=_label(at),
        where=where,
        rows_max=GROUPS_MAX * 10,
        latencies=latencies,
        sums=sums,
    )
    return await asyncio.to_thread(_made, at, *await read(connection, wanted))


def _made(at: Steps, sums: Sequence[Sums], bins: Bins) -> Series:
    by: dict[tuple[Any, ...], dict[int, Part]] = {}
    for one in sums:
        by.setdefault(one.group, {}).setdefault(int(one.label), Part()).add(one.outcome, one.sums)
    for (label, group), metrics in bins.items():
        by.setdefault(group, {}).setdefault(int(label), Part()).add_bins(metrics)
    points = tuple(joined(group[place] for group in by.values() if place in group) for place in range(len(at.starts)))
    return Series(at, by, points, joined(points))


async def before(connection: AsyncConnection, where: Mapping[str, Any], since_us: int, until_us: int) -> Part:
    """What the stretch of the same length came to that ends where this one begins."""
    first_us = since_us - (until_us - since_us)
    return (await series(connection, (), where, Steps(since_us - first_us, (first_us,), since_us, "UTC"))).total


def _label(at: Steps) -> Callable[[int], str]:
    first, step_us, starts = at.starts[0], at.step_us, at.starts
    if step_us < DAY_US:
        return lambda bucket_us: str((bucket_us - first) // step_us)
    return lambda bucket_us: str(bisect.bisect_right(starts, bucket_us) - 1)


def month_name(at_us: int, tz: str) -> str:
    """November."""
    return to_datetime(at_us).astimezone(zone(tz)).strftime("%B")
