"""One worker's metrics and access log: what a settled request counts, and the state folder in which workers find each other's numbers.

A request costs a few additions on series that are bound once for its kind. Each worker leaves its numbers in the state folder once a
second, so that any worker can answer a scrape for all of them. Knows no metric's help (metrics.py) and no text format (numbers.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from gateway import gen_ai
from gateway.exchange import Exchange
from gateway.log import Line, sink
from gateway.metrics import MAX_SERIES
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.numbers import Gauges, Histogram, Labels, Numbers, Read, exposition
from gateway.routing.decision import hedged

PRESENT_S = 30.0  # what a worker saw this long ago it sees no more: its gauges are left out, its counters never

Total = tuple[str, Labels, int]  # a counter that a part keeps itself: name, label values, count since it was made
Histograms = dict[str, dict[Labels, Read]]


class Served:
    """The series of requests of one route, backend, surface and end."""

    __slots__ = ("cost", "duration", "first", "numbers", "pace", "requests", "saved", "server", "server_labels", "tokens", "ttft", "where")

    def __init__(self, numbers: Numbers, record: UsageRecord) -> None:
        where = self.where = (record.route, record.backend)
        self.numbers = numbers
        self.requests = numbers.counter("tollway_requests_total", (*where, record.outcome))
        self.cost = numbers.counter("tollway_cost_nanousd_total", where)
        self.saved = numbers.counter("tollway_saved_nanousd_total", (record.route,))
        self.tokens = None
        if record.outcome != "cached":
            classes = ("input", "cache_read", "output", "reasoning")
            self.tokens = tuple(numbers.counter("tollway_tokens_total", (*where, name)) for name in classes)
        self.duration = numbers.histogram("tollway_request_duration_seconds", where)
        self.server_labels = (gen_ai.operation(record.surface), gen_ai.provider(record.vendor), record.route, record.model)
        error = gen_ai.error_type(record.outcome, record.error)
        self.server = numbers.histogram("gen_ai_server_request_duration_seconds", (*self.server_labels, error))
        self.ttft: Histogram | None = None
        self.first: Histogram | None = None
        self.pace: Histogram | None = None

    def count(self, record: UsageRecord, choices: int) -> None:
        self.requests.add()
        if record.cost:
            self.cost.add(record.cost)
        if record.saved:
            self.saved.add(record.saved)
        usage = record.usage
        if self.tokens is not None:
            read, cached, written, thought = self.tokens
            read.add(usage.input)
            written.add(usage.output)
            if usage.cache_read:
                cached.add(usage.cache_read)
            if usage.reasoning:
                thought.add(usage.reasoning)
        seconds = record.duration_ms / 1000
        self.duration.observe(seconds)
        self.server.observe(seconds)
        if record.ttft_ms is not None:
            self._streamed(record, seconds, choices)

    def _streamed(self, record: UsageRecord, seconds: float, choices: int) -> None:
        """To the first token and per token after it: of streams alone, since a whole answer does not tell."""
        assert record.ttft_ms is not None
        first_s = record.ttft_ms / 1000
        if self.ttft is None:
            self.ttft = self.numbers.histogram("tollway_time_to_first_token_seconds", self.where)
        self.ttft.observe(first_s)
        if not record.streamed or record.outcome != "completed":
            return
        if self.first is None:
            self.first = self.numbers.histogram("gen_ai_server_time_to_first_token_seconds", self.server_labels)
        self.first.observe(first_s)
        further = record.usage.completion_tokens // choices - 1
        if further > 0:
            if self.pace is None:
                self.pace = self.numbers.histogram("gen_ai_server_time_per_output_token_seconds", self.server_labels)
            self.pace.observe((seconds - first_s) / further)


class Called:
    """The series of calls to one backend that ended alike."""

    __slots__ = ("attempts", "duration", "input", "output")

    def __init__(self, numbers: Numbers, end: AttemptEnd, surface: str) -> None:
        self.attempts = numbers.counter("tollway_attempts_total", (end.backend, end.outcome, end.error))
        labels = (gen_ai.operation(surface), gen_ai.provider(end.vendor), end.model)
        error = gen_ai.error_type(end.outcome, end.error)
        self.duration = numbers.histogram("gen_ai_client_operation_duration_seconds", (*labels, error))
        self.input = numbers.histogram("gen_ai_client_token_usage", (*labels, "input"))
        self.output = numbers.histogram("gen_ai_client_token_usage", (*labels, "output"))

    def count(self, end: AttemptEnd) -> None:
        self.attempts.add()
        self.duration.observe(end.duration_ms / 1000)
        asked, answered = end.usage.prompt_tokens, end.usage.completion_tokens
        if asked:
            self.input.observe(asked)
        if answered:
            self.output.observe(answered)


class Telemetry:
    """A worker's metrics and access log. `gauges`, `totals` and `histograms` are asked once a second for what is read, not counted."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.folder = folder
        self.file = folder / f"worker-{worker}.msgpack"
        self.numbers = self._carried_on()
        self.gauges: Callable[[], Gauges] = dict
        self.totals: Callable[[], Iterable[Total]] = list
        self.histograms: Callable[[], Histograms] = dict
        self.log = structlog.get_logger("tollway")
        self._encode = msgspec.json.Encoder().encode
        self._served: dict[tuple[str, ...], Served] = {}
        self._called: dict[tuple[str, ...], Called] = {}
        self._seen: dict[tuple[str, Labels], int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def _carried_on(self) -> Numbers:
        """What a worker of this number had counted before it was replaced: a sum over workers must not fall."""
        mine = Numbers({}, {}, {}, {})
        before = self._left(self.file)
        if before is not None:
            mine.counted_from(before)
        return mine

    def _left(self, file: Path) -> Numbers | None:
        """What a worker wrote; None where there is nothing, or nothing that this version reads."""
        try:
            return msgspec.msgpack.decode(file.read_bytes(), type=Numbers)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def request(self, x: Exchange, record: UsageRecord) -> None:
        """One settled request: counters and a log line."""
        key = (record.route, record.backend, record.vendor, record.model, record.surface, record.outcome, record.error)
        served = self._served.get(key)
        if served is None:
            served = Served(self.numbers, record)
            if len(self._served) < MAX_SERIES:
                self._served[key] = served
        served.count(record, x.request.n)
        for end in record.attempts:
            self._call(end, record.surface)
        if x.decision is not None and x.decision.hedge is not None:
            self.numbers.add("tollway_hedges_total", (hedged(x.decision.hedge),))
        if x.cache_status:
            self.numbers.add("tollway_cache_total", (x.cache_status,))
        usage = record.usage
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

    def _call(self, end: AttemptEnd, surface: str) -> None:
        key = (end.backend, end.vendor, end.model, surface, end.outcome, end.error)
        called = self._called.get(key)
        if called is None:
            called = Called(self.numbers, end, surface)
            if len(self._called) < MAX_SERIES:
                self._called[key] = called
        called.count(end)
        if end.cost is not None and end.worst is not None and end.cost > end.worst:
            self.numbers.add("tollway_over_reserved_total", (end.backend,))
            self.numbers.add("tollway_over_reserved_nanousd_total", (end.backend,), end.cost - end.worst)

    def refusal(self, code: str) -> None:
        self.numbers.add("tollway_refusals_total", (code,))

    def fault(self, where: str, error: BaseException) -> None:
        """An error of ours: counted and logged with its trace."""
        self.numbers.add("tollway_faults_total", (type(error).__name__,))
        self.log.error("fault", where=where, exc_info=error)

    def tick(self) -> None:
        """Once a second: flush the log, leave the numbers where a scrape of any worker finds them."""
        sink.flush()
        self._look()
        part = self.file.with_suffix(".part")
        part.write_bytes(msgspec.msgpack.encode(self.numbers))
        part.replace(self.file)

    def _look(self) -> None:
        """Take in what parts count themselves and what is read rather than counted."""
        for name, labels, count in self.totals():
            seen = self._seen.get((name, labels), 0)
            self.numbers.add(name, labels, count - seen if count >= seen else count)  # less than before: a part made anew
            self._seen[name, labels] = count
        self.numbers.gauges = self.gauges()
        self.numbers.read = self.histograms()
        self.numbers.at = time.time()

    def exposition(self) -> bytes:
        """All workers' numbers in the Prometheus text format; of workers that are gone what they counted, not what they saw."""
        return self._page(*self._own())

    async def page(self) -> bytes:
        """The same, made beside the event loop: a page of thousands of series takes a while."""
        return await asyncio.to_thread(self._page, *self._own())

    def _own(self) -> tuple[Numbers, float]:
        """A copy of what this worker counted and sees, and when."""
        self._look()
        total = Numbers({}, {}, {}, {})
        total.counted_from(self.numbers)
        total.present_from(self.numbers)
        return total, self.numbers.at

    def _page(self, total: Numbers, at: float) -> bytes:
        for path in self.folder.glob("worker-*.msgpack"):
            one = None if path == self.file else self._left(path)
            if one is not None:
                total.counted_from(one)
                if one.at > at - PRESENT_S:
                    total.present_from(one)
        return exposition(total)
