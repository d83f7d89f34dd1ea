"""Every metric, span and log field name in one file; the logging sink that redacts; the counters behind /metrics.

Counters are plain numbers in the worker: a request costs a few dictionary operations. Each worker leaves its numbers in the state
folder once a second, so that any worker can answer a scrape for all of them.
"""

from __future__ import annotations

import logging
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.exchange import Exchange
from gateway.money.records import UsageRecord
from gateway.routing.decision import hedged
from providers.signers import secrets

LATENCY_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

MAX_SERIES = 2000  # per metric and worker; label values that come after them (a vendor's error codes, say) are counted as "other"

# name -> (kind, help, labels). The documentation test reads this table.
METRICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "tollway_requests_total": ("counter", "Accepted requests by how they ended.", ("route", "backend", "outcome")),
    "tollway_refusals_total": ("counter", "Requests answered with an error before they were accepted.", ("code",)),
    "tollway_attempts_total": ("counter", "Calls to backends by how they ended.", ("backend", "outcome", "error")),
    "tollway_hedges_total": ("counter", "Late requests by what came of asking a second backend.", ("result",)),
    "tollway_over_reserved_total": ("counter", "Calls that were billed at more than their worst case.", ("backend",)),
    "tollway_over_reserved_nanousd_total": ("counter", "What they cost beyond it, in nano-USD.", ("backend",)),
    "tollway_cost_nanousd_total": ("counter", "Spend in nano-USD.", ("route", "backend")),
    "tollway_saved_nanousd_total": ("counter", "What cache hits did not cost, in nano-USD.", ("route",)),
    "tollway_tokens_total": ("counter", "Tokens by class.", ("route", "backend", "class")),
    "tollway_cache_total": ("counter", "Cacheable requests by what the response cache said.", ("result",)),
    "tollway_faults_total": ("counter", "Our own errors, each with a trace in the log.", ("kind",)),
    "tollway_budget_alerts_total": ("counter", "Thresholds of budgets that were crossed.", ("scope", "percent")),
    "tollway_alert_deliveries_total": ("counter", "Tries to deliver them to the webhook: delivered, failed, given_up.", ("result",)),
    "tollway_time_to_first_token_seconds": ("histogram", "From admission to the first event that carries something.", ("route", "backend")),
    "tollway_request_duration_seconds": ("histogram", "From admission to the end.", ("route", "backend")),
    "tollway_in_flight": ("gauge", "Requests being served.", ()),
    "tollway_backend_ready": ("gauge", "Workers that have nothing against asking a backend.", ("backend",)),
    "tollway_backend_set_aside": ("gauge", "Workers that ask others before a backend, by their reason.", ("backend", "reason")),
    "tollway_backend_in_flight": ("gauge", "Calls under way to a backend.", ("backend",)),
    "tollway_engine_read": ("gauge", "1 while an engine of one's own says how it is doing.", ("backend",)),
    "tollway_engine_waiting": ("gauge", "Requests that wait in it for a place, of all its clients.", ("backend",)),
    "tollway_engine_running": ("gauge", "Requests that it works on.", ("backend",)),
    "tollway_engine_prefill_tokens": ("gauge", "Tokens of accepted prompts that it has still to compute.", ("backend",)),
    "tollway_engine_kv_share": ("gauge", "Part of its KV cache in use, 0 to 1.", ("backend",)),
    "tollway_engine_kv_bytes_used": ("gauge", "Bytes of it.", ("backend",)),
    "tollway_engine_kv_bytes_cap": ("gauge", "Bytes it may have.", ("backend",)),
    "tollway_engine_kv_blocks_used": ("gauge", "Blocks of it that running requests hold.", ("backend",)),
    "tollway_engine_kv_blocks_free": ("gauge", "Blocks of it that are free, those that hold known tokens included.", ("backend",)),
    "tollway_engine_prompt_tokens": ("gauge", "Prompt tokens since it started.", ("backend",)),
    "tollway_engine_prefix_hit_tokens": ("gauge", "Of them, those found in its prefix cache.", ("backend",)),
    "tollway_ready": ("gauge", "1 when this gateway takes requests.", ()),
    "tollway_journal_bytes": ("gauge", "Size of the journals on disk.", ()),
    "tollway_journal_age_seconds": ("gauge", "Age of the oldest request in a journal that SQL does not have, running ones included.", ()),
    "tollway_ledger_queue_rows": ("gauge", "Settled requests not yet in SQL.", ()),
    "tollway_ledger_lag_seconds": ("gauge", "Age of the oldest settled request not yet in SQL.", ()),
    "tollway_ledger_quarantined_rows": ("gauge", "Settled requests that the database refused, kept in a file.", ()),
    "tollway_leased_nanousd": ("gauge", "Budget money held by leases of the workers.", ()),
    "tollway_snapshot_age_seconds": ("gauge", "Since keys, budgets and prices were last known to be current.", ()),
    "tollway_cache_degraded": ("gauge", "1 while Redis is out of use.", ()),
    "tollway_limits_degraded": ("gauge", "1 while rate limits are not shared because Redis is out of use.", ()),
    "tollway_clock_offset_seconds": ("gauge", "Database clock minus this machine's.", ()),
    "tollway_token_factor": ("gauge", "A vendor's own tokens over our count of them, as learnt.", ("family",)),
}


def _sum(a: float, b: float) -> float:
    return a + b


# how the workers' values of a gauge become one; all others are added up
COMBINED: dict[str, Callable[[float, float], float]] = {
    "tollway_ready": min,
    "tollway_journal_age_seconds": max,
    "tollway_ledger_lag_seconds": max,
    "tollway_ledger_quarantined_rows": max,
    "tollway_snapshot_age_seconds": max,
    "tollway_cache_degraded": max,
    "tollway_limits_degraded": max,
    "tollway_clock_offset_seconds": lambda a, b: max(a, b, key=abs),
    "tollway_token_factor": max,
    **{name: max for name in METRICS if name.startswith("tollway_engine_")},  # all workers read the same engines
}

LOG_FIELDS = (
    "time",
    "event",
    "id",
    "team",
    "key",
    "route",
    "backend",
    "outcome",
    "status",
    "attempts",
    "cache",
    "cost_nanousd",
    "prompt_tokens",
    "completion_tokens",
    "ttft_ms",
    "duration_ms",
    "error",
)


class Line(msgspec.Struct, omit_defaults=False):
    """The access log's line: one per accepted request."""

    time: float
    id: str
    team: str
    key: str
    route: str
    backend: str
    outcome: str
    status: int
    attempts: int
    cache: str
    cost_nanousd: int | None
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: int | None
    duration_ms: int
    error: str
    event: str = "request"


class Sink:
    """The one place where log text leaves the process: buffered, and with every known secret taken out."""

    KEY = re.compile(r"tw-[A-Za-z0-9_]{12}-[A-Za-z0-9_]+")
    MAX_BUFFER = 256 * 1024  # bytes; beyond it a write flushes at once

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.lines: list[str] = []
        self.size = 0

    def write(self, text: str) -> None:
        self.lines.append(text)
        self.size += len(text)
        if self.size > self.MAX_BUFFER:
            self.flush()

    def flush(self) -> None:
        if not self.lines:
            return
        text = "".join(self.lines)
        self.lines.clear()
        self.size = 0
        with suppress(OSError):  # a closed terminal or pipe must not end the service
            self.stream.write(redact(text))
            self.stream.flush()


def redact(text: str) -> str:
    """Text without our keys' secrets and without any provider credential."""
    text = Sink.KEY.sub(lambda match: match[0][:15] + "-***", text)
    for secret in secrets():
        if secret in text:
            text = text.replace(secret, "***")
    return text


sink = Sink(sys.stderr)


class _ToSink(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def setup_logging(level: str, form: str) -> None:
    """Once per process: structlog and the standard library's loggers both write to the sink, one JSON object a line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: Any = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sink),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToSink()]
    root.setLevel(max(number, logging.WARNING))  # libraries speak at warning and above


class Numbers(msgspec.Struct):
    """A worker's counters: name -> label values -> number; histograms keep bin counts and a sum; a gauge with
    labels is `NAME:VALUE:VALUE`, of which the first alone may have a colon in it."""

    counters: dict[str, dict[tuple[str, ...], int]] = {}
    histograms: dict[str, dict[tuple[str, ...], list[float]]] = {}
    gauges: dict[str, float] = {}

    def add(self, name: str, labels: tuple[str, ...], amount: int = 1) -> None:
        series = self.counters.setdefault(name, {})
        if labels not in series and len(series) >= MAX_SERIES:
            labels = ("other",) * len(labels)
        series[labels] = series.get(labels, 0) + amount

    def observe(self, name: str, labels: tuple[str, ...], seconds: float) -> None:
        series = self.histograms.setdefault(name, {})
        bins = series.get(labels)
        if bins is None:
            labels = labels if len(series) < MAX_SERIES else ("other",) * len(labels)
            bins = series.get(labels)
        if bins is None:
            bins = series[labels] = [0.0] * (len(LATENCY_BOUNDS_S) + 2)
        bins[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        bins[-1] += seconds

    def merge(self, other: Numbers) -> None:
        for name, series in other.counters.items():
            for labels, amount in series.items():
                self.add(name, tuple(labels), amount)
        for name, bins_of in other.histograms.items():
            mine = self.histograms.setdefault(name, {})
            for labels, bins in bins_of.items():
                known = mine.get(tuple(labels))
                mine[tuple(labels)] = list(bins) if known is None else [a + b for a, b in zip(known, bins, strict=True)]
        for name, value in other.gauges.items():
            self.gauges[name] = COMBINED.get(name.partition(":")[0], _sum)(self.gauges[name], value) if name in self.gauges else value


class Telemetry:
    """A worker's metrics and access log. `gauges` is asked once a second for values that are read, not counted."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.folder = folder
        self.file = folder / f"worker-{worker}.msgpack"
        self.numbers = self._carried_on()
        self.gauges: Callable[[], dict[str, float]] = dict
        self.log = structlog.get_logger("tollway")
        self._encode = msgspec.json.Encoder().encode
        folder.mkdir(parents=True, exist_ok=True)

    def _carried_on(self) -> Numbers:
        """What a worker of this number had counted before it was replaced: a sum over workers must not fall."""
        before = Numbers({}, {}, {})
        try:
            before.merge(msgspec.msgpack.decode(self.file.read_bytes(), type=Numbers))
        except (FileNotFoundError, msgspec.MsgspecError):
            return before
        before.gauges = {}
        return before

    def request(self, x: Exchange, record: UsageRecord) -> None:
        """One settled request: counters and a log line, about 5 microseconds."""
        numbers = self.numbers
        where = (record.route, record.backend)
        numbers.add("tollway_requests_total", (*where, record.outcome))
        if record.cost:
            numbers.add("tollway_cost_nanousd_total", where, record.cost)
        if record.saved:
            numbers.add("tollway_saved_nanousd_total", (record.route,), record.saved)
        usage = record.usage
        if record.outcome != "cached":
            for name, count in (
                ("input", usage.input),
                ("cache_read", usage.cache_read),
                ("output", usage.output),
                ("reasoning", usage.reasoning),
            ):
                if count:
                    numbers.add("tollway_tokens_total", (*where, name), count)
        self._attempts(x, record)
        if x.cache_status:
            numbers.add("tollway_cache_total", (x.cache_status,))
        if record.ttft_ms is not None:
            numbers.observe("tollway_time_to_first_token_seconds", where, record.ttft_ms / 1000)
        numbers.observe("tollway_request_duration_seconds", where, record.duration_ms / 1000)
        line = Line(
            time=record.ended_at_us / 1e6,
            id=str(record.id),
            team=x.principal.team,
            key=x.principal.key_public,
            route=record.route,
            backend=record.backend,
            outcome=record.outcome,
            status=record.status,
            attempts=len(record.attempts),
            cache=x.cache_status,
            cost_nanousd=record.cost,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            ttft_ms=record.ttft_ms,
            duration_ms=record.duration_ms,
            error=record.error,
        )
        sink.write(self._encode(line).decode() + "\n")

    def _attempts(self, x: Exchange, record: UsageRecord) -> None:
        numbers = self.numbers
        for end in record.attempts:
            numbers.add("tollway_attempts_total", (end.backend, end.outcome, end.error))
            if end.cost is not None and end.worst is not None and end.cost > end.worst:
                numbers.add("tollway_over_reserved_total", (end.backend,))
                numbers.add("tollway_over_reserved_nanousd_total", (end.backend,), end.cost - end.worst)
        if x.decision is not None and x.decision.hedge is not None:
            numbers.add("tollway_hedges_total", (hedged(x.decision.hedge),))

    def refusal(self, code: str) -> None:
        self.numbers.add("tollway_refusals_total", (code,))

    def fault(self, where: str, error: BaseException) -> None:
        """An error of ours: counted and logged with its trace."""
        self.numbers.add("tollway_faults_total", (type(error).__name__,))
        self.log.error("fault", where=where, exc_info=error)

    def tick(self) -> None:
        """Once a second: flush the log, leave the numbers where a scrape of any worker finds them."""
        sink.flush()
        self.numbers.gauges = self.gauges()
        part = self.file.with_suffix(".part")
        part.write_bytes(msgspec.msgpack.encode(self.numbers))
        part.replace(self.file)

    def exposition(self) -> bytes:
        """All workers' numbers in the Prometheus text format."""
        self.numbers.gauges = self.gauges()
        total = Numbers({}, {}, {})
        total.merge(self.numbers)
        for path in self.folder.glob("worker-*.msgpack"):
            if path != self.file:
                total.merge(msgspec.msgpack.decode(path.read_bytes(), type=Numbers))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(total))
        return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def collect(self) -> Iterator[Any]:
        for name, (kind, text, labels) in METRICS.items():
            if kind == "counter":
                yield self._counter(name, text, labels)
            elif kind == "histogram":
                yield self._histogram(name, text, labels)
            elif labels:
                yield self._labelled(name, text, labels)
            elif name in self.numbers.gauges:
                yield GaugeMetricFamily(name, text, value=self.numbers.gauges[name])

    def _labelled(self, name: str, text: str, labels: Iterable[str]) -> GaugeMetricFamily:
        names = list(labels)
        family = GaugeMetricFamily(name, text, labels=names)
        for key, value in self.numbers.gauges.items():
            if key.startswith(name + ":"):
                family.add_metric(key[len(name) + 1 :].rsplit(":", len(names) - 1), value)
        return family

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=list(labels))
        for values, amount in self.numbers.counters.get(name, {}).items():
            family.add_metric(list(values), amount)
        return family

    def _histogram(self, name: str, text: str, labels: Iterable[str]) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, text, labels=list(labels))
        for values, bins in self.numbers.histograms.get(name, {}).items():
            running, buckets = 0.0, []
            for bound, count in zip([*map(str, LATENCY_BOUNDS_S), "+Inf"], bins, strict=False):
                running += count
                buckets.append((bound, running))
            family.add_metric(list(values), buckets=buckets, sum_value=bins[-1])
        return family
