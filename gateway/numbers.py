"""The counters of a worker and their sum over workers, as plain numbers; Prometheus' text is made of them by its own library.

A counter or histogram that is asked for often is bound once to its series: then counting is one addition. Knows no request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.metrics import BOUNDS, COMBINED, MAX_SERIES, METRICS

Labels = tuple[str, ...]
Gauges = dict[tuple[str, ...], float]  # (name, label values…) -> value


class Counter:
    """One series of a counter."""

    __slots__ = ("labels", "series")

    def __init__(self, series: dict[Labels, int], labels: Labels) -> None:
        self.series = series
        self.labels = labels

    def add(self, amount: int = 1) -> None:
        self.series[self.labels] += amount


class Histogram:
    """One series of a histogram: a count per bin, the last one beyond all bounds, and the sum."""

    __slots__ = ("bins", "bounds")

    def __init__(self, bins: list[float], bounds: tuple[float, ...]) -> None:
        self.bins = bins
        self.bounds = bounds

    def observe(self, value: float) -> None:
        bins = self.bins
        bins[bisect_left(self.bounds, value)] += 1
        bins[-1] += value


class Read(msgspec.Struct, frozen=True):
    """A histogram that somebody else keeps, as it was read: counts has one more than bounds, for what is beyond them."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float


class Numbers(msgspec.Struct):
    """name -> label values -> number. read: histograms that all workers read of the same engine. at: seconds since 1970."""

    counters: dict[str, dict[Labels, int]] = {}
    histograms: dict[str, dict[Labels, list[float]]] = {}
    gauges: Gauges = {}
    read: dict[str, dict[Labels, Read]] = {}
    at: float = 0.0

    def counter(self, name: str, labels: Labels) -> Counter:
        """Bound to its series, which begins at 0."""
        series = self.counters.setdefault(name, {})
        if labels not in series and len(series) >= MAX_SERIES:
            labels = ("other",) * len(labels)
        series.setdefault(labels, 0)
        return Counter(series, labels)

    def histogram(self, name: str, labels: Labels) -> Histogram:
        series = self.histograms.setdefault(name, {})
        if labels not in series and len(series) >= MAX_SERIES:
            labels = ("other",) * len(labels)
        bounds = BOUNDS[name]
        bins = series.get(labels)
        if bins is None:
            bins = series[labels] = [0.0] * (len(bounds) + 2)
        return Histogram(bins, bounds)

    def add(self, name: str, labels: Labels, amount: int = 1) -> None:
        self.counter(name, labels).add(amount)

    def observe(self, name: str, labels: Labels, value: float) -> None:
        self.histogram(name, labels).observe(value)

    def counted_from(self, other: Numbers) -> None:
        """Add what another counted."""
        for name, series in other.counters.items():
            for labels, amount in series.items():
                self.add(name, tuple(labels), amount)
        for name, bins_of in other.histograms.items():
            mine = self.histograms.setdefault(name, {})
            for labels, bins in bins_of.items():
                known = mine.get(tuple(labels))
                fits = name in BOUNDS and len(bins) == len(BOUNDS[name]) + 2  # else it is of a version with other bounds
                if fits:
                    mine[tuple(labels)] = list(bins) if known is None else [a + b for a, b in zip(known, bins, strict=True)]

    def present_from(self, other: Numbers) -> None:
        """Join what another sees now."""
        for key, value in other.gauges.items():
            self.gauges[key] = COMBINED.get(key[0], _sum)(self.gauges[key], value) if key in self.gauges else value
        for name, found in other.read.items():
            mine = self.read.setdefault(name, {})
            for labels, read in found.items():
                if labels not in mine or sum(read.counts) > sum(mine[labels].counts):
                    mine[labels] = read


def _sum(a: float, b: float) -> float:
    return a + b


def exposition(numbers: Numbers) -> bytes:
    """The Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(numbers))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.present: dict[str, list[tuple[Labels, float]]] = {}
        for key, value in numbers.gauges.items():
            self.present.setdefault(key[0], []).append((key[1:], value))

    def collect(self) -> Iterator[Any]:
        for name, (kind, text, labels) in METRICS.items():
            if kind == "counter":
                yield self._counter(name, text, labels)
            elif kind == "histogram":
                yield self._histogram(name, text, labels)
            else:
                family = GaugeMetricFamily(name, text, labels=list(labels))
                for values, value in self.present.get(name, ()):
                    family.add_metric(values, value)
                yield family

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=list(labels))
        for values, amount in self.numbers.counters.get(name, {}).items():
            family.add_metric(list(values), amount)
        for values, value in self.present.get(name, ()):  # an engine's own total
            family.add_metric(values, value)
        return family

    def _histogram(self, name: str, text: str, labels: Iterable[str]) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, text, labels=list(labels))
        for values, bins in self.numbers.histograms.get(name, {}).items():
            _add(family, values, BOUNDS[name], bins[:-1], bins[-1])
        for values, read in self.numbers.read.get(name, {}).items():
            _add(family, values, read.bounds, read.counts, read.sum)
        return family


def _add(family: HistogramMetricFamily, values: Labels, bounds: Iterable[float], counts: Iterable[float], total: float) -> None:
    running, buckets = 0.0, []
    for bound, count in zip([*(str(float(bound)) for bound in bounds), "+Inf"], counts, strict=True):
        running += count
        buckets.append((bound, running))
    family.add_metric(list(values), buckets=buckets, sum_value=total)
