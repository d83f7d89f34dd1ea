"""Ledger rows and roll-ups from usage records: the column lists, the tuples, and how roll-ups add up. Pure; speaks no SQL dialect.

An attempt's cost and tokens stand at its own backend under its own outcome; a request is counted once, at the backend that answered.
The roll-ups of a row add up to the row's cost exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import add
from typing import Any
from uuid import UUID, uuid5

from gateway.db.columns import CLASSES
from gateway.money import latencies
from gateway.money.marks import failed_over, marks
from gateway.money.records import AttemptEnd, UsageRecord
from providers.types import Usage

BUCKET_US = 900_000_000  # a quarter of an hour: every zone's midnight lies on one
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000  # of UTC: the spans of the coarse roll-ups
FOREIGN_CHARACTERS = 256  # of a vendor's id or code, or a client's tag
REPRICE = "reprice"  # the reason of an adjustment: a price that became known late
IDLE, WARM_UP = "idle", "warm_up"
BOOKED = (IDLE, WARM_UP)  # outcomes of rows that are no request: what owned hardware cost that no request paid for

USAGE_COLUMNS = (
    *("id", "started_at_us", "ended_at_us", "org_id", "team_id", "key_id", "route", "backend", "vendor", "model", "price_id", "surface"),
    *("kind", "tag", "provider_id", "error", "outcome", "status", "cost", "saved", *CLASSES),
    *("stated", "estimated", "streamed", "ttft_ms", "duration_ms", "charges", "process_id", "marks"),
)
ATTEMPT_COLUMNS = (
    *("request_id", "n", "backend", "vendor", "model", "price_id", "error", "provider_id", "outcome", "status", "cost", "worst"),
    *(*CLASSES, "estimated", "ttft_ms", "duration_ms", "began_ms"),
)
ROLLUP_KEYS = ("bucket_us", "org_id", "team_id", "key_id", "route", "backend", "vendor", "model", "outcome", "tag")
ROLLUP_SUMS = (
    *("requests", "attempts", "cost", "saved", "unpriced", "estimated", "failovers", "ttft_count", "ttft_ms", "duration_ms"),
    *CLASSES,  # last: a new class moves nothing
)
_FIRST_CLASS = len(ROLLUP_SUMS) - len(CLASSES)
LATENCY_KEYS = (*ROLLUP_KEYS, "metric", "octave")
TYPES = {  # of Postgres arrays; what is not named is BIGINT
    **dict.fromkeys(("id", "request_id", "process_id"), "uuid"),
    **dict.fromkeys(
        (
            "route",
            "backend",
            "vendor",
            "model",
            "price_id",
            "surface",
            "kind",
            "tag",
            "provider_id",
            "error",
            "outcome",
            "charges",
            "metric",
        ),
        "text",
    ),
    **dict.fromkeys(("status", "n", "octave", "marks"), "smallint"),
    "ttft_ms": "int",
    "began_ms": "int",
    "streamed": "bool",
    "estimated": "bool",
}
ROLLUP_TYPES = TYPES | {"ttft_ms": "bigint", "estimated": "bigint"}

Row = tuple[Any, ...]
Key = tuple[int, int, int, int, str, str, str, str, str, str]


def clean(text: str) -> str:
    """Foreign text as both databases take it: Postgres refuses a NUL, and one bad row would hold up all behind it."""
    if not text:
        return text
    return text.replace("\0", "")[:FOREIGN_CHARACTERS] if "\0" in text or len(text) > FOREIGN_CHARACTERS else text


def charged(record: UsageRecord) -> int:
    """What the row's windows are charged; an unpriced row has no figure to charge."""
    return 0 if record.cost is None else record.cost


def reprice_id(usage_id: UUID, n: int, times: int) -> UUID:
    """Of the adjustment that rates attempt n of a row anew for the (times + 1)-th time."""
    return uuid5(usage_id, f"{REPRICE}:{n}:{times}")


def now_priced(record: UsageRecord, adjustments: Collection[UUID]) -> bool:
    """Whether a row without a figure got one: each of its attempts was rated since. adjustments: the ids of those beside the row."""
    return record.cost is None and all(reprice_id(record.id, end.n, 0) in adjustments for end in record.attempts)


def _tokens(usage: Usage) -> Row:
    return (
        usage.input,
        usage.cache_read,
        usage.cache_write_5m,
        usage.cache_write_1h,
        usage.input_audio,
        usage.input_image,
        usage.output,
        usage.reasoning,
        usage.output_audio,
        usage.output_image,
    )


def usage_row(record: UsageRecord, uid: Callable[[UUID], Any], process: Any) -> Row:
    """Values in the order of USAGE_COLUMNS. uid: how this database takes a UUID."""
    usage = record.usage
    return (
        uid(record.id),
        record.started_at_us,
        record.ended_at_us,
        record.org_id,
        record.team_id,
        record.key_id,
        record.route,
        record.backend,
        record.vendor,
        record.model,
        record.price_id,
        record.surface,
        record.kind,
        clean(record.tag),
        clean(record.provider_id),
        clean(record.error),
        record.outcome,
        record.status,
        record.cost,
        record.saved,
        *_tokens(usage),
        usage.stated_nanousd,
        usage.estimated,
        record.streamed,
        record.ttft_ms,
        record.duration_ms,
        f"[{','.join(map(str, record.charges))}]",
        process,
        marks(record, BOOKED),
    )


def attempt_row(end: AttemptEnd, uid: Callable[[UUID], Any]) -> Row:
    return (
        uid(end.request_id),
        end.n,
        end.backend,
        end.vendor,
        end.model,
        end.price_id,
        clean(end.error),
        clean(end.provider_id),
        end.outcome,
        end.status,
        end.cost,
        end.worst,
        *_tokens(end.usage),
        end.usage.estimated,
        end.ttft_ms,
        end.duration_ms,
        end.began_ms,
    )


class _Sums:
    """What belongs to one key: sums in the order of ROLLUP_SUMS, and bin -> count of the latencies."""

    __slots__ = ("duration", "sums", "ttft")

    def __init__(self) -> None:
        self.sums = [0] * len(ROLLUP_SUMS)
        self.duration: dict[int, int] = {}
        self.ttft: dict[int, int] = {}

    def latencies(self) -> Iterator[Row]:
        """(metric, octave, n0, n1, n2, n3)"""
        for metric, bins in (("duration", self.duration), ("ttft", self.ttft)):
            if bins:
                yield from ((metric, *octave) for octave in latencies.octaves(bins))


class Rollup:
    """Sums of one batch by key, and how many requests fell into which latency bin."""

    def __init__(self) -> None:
        self._by_key: dict[Key, _Sums] = {}

    def add(self, record: UsageRecord) -> None:
        usage = record.usage
        own = self._at(record, record.backend, record.vendor, record.model, record.outcome)
        sums = own.sums
        if record.outcome in BOOKED:
            sums[2] += charged(record)
            return
        sums[0] += 1
        sums[3] += record.saved
        sums[4] += record.cost is None
        sums[5] += usage.estimated
        sums[9] += record.duration_ms
        latencies.count(own.duration, record.duration_ms)
        if record.ttft_ms is not None:
            sums[7] += 1
            sums[8] += record.ttft_ms
            latencies.count(own.ttft, record.ttft_ms)
        rest = charged(record)
        for end in record.attempts:
            if (
                end.backend == record.backend
                and end.outcome == record.outcome
                and end.model == record.model
                and end.vendor == record.vendor
            ):
                there = sums  # the usual case: its key need not be made again
            else:
                there = self._at(record, end.backend, end.vendor, end.model, end.outcome).sums
            there[1] += 1
            if record.cost is not None and end.cost is not None:
                there[2] += end.cost
                rest -= end.cost
            _add_tokens(there, end.usage)
        sums[2] += rest  # 0 unless a cost was booked that no attempt carries
        if len(record.attempts) > 1:
            sums[6] += failed_over(record.backend, record.attempts)
        if not record.attempts:
            _add_tokens(sums, usage)

    def adjust(self, record: UsageRecord, delta: int, *, priced: bool = False) -> None:
        """A row that was booked before at another cost: the difference, without another request. priced: it had no figure until now."""
        self._at(record, record.backend, record.vendor, record.model, "adjusted").sums[2] += delta
        if priced:
            self._at(record, record.backend, record.vendor, record.model, record.outcome).sums[4] -= 1

    def _at(self, record: UsageRecord, backend: str, vendor: str, model: str, outcome: str) -> _Sums:
        started = record.started_at_us
        bucket = started - started % BUCKET_US
        key = (bucket, record.org_id, record.team_id, record.key_id, record.route, backend, vendor, model, outcome, clean(record.tag))
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = _Sums()
        return found

    def rows(self) -> list[Row]:
        """Sorted by the full key: every process writes in the same order, so none waits in a circle."""
        return [(*key, *self._by_key[key].sums) for key in sorted(self._by_key)]

    def latency_rows(self) -> list[Row]:
        return [(*key, *row) for key in sorted(self._by_key) for row in self._by_key[key].latencies()]

    def hours(self) -> set[int]:
        """The hours of UTC that it adds to, by their start."""
        return {key[0] - key[0] % HOUR_US for key in self._by_key}


def _add_tokens(sums: list[int], usage: Usage) -> None:
    sums[_FIRST_CLASS:] = map(add, sums[_FIRST_CLASS:], _tokens(usage))


def charges_of(records: Iterable[UsageRecord]) -> dict[int, int]:
    """Window id -> the sum of what these rows charge it."""
    found: dict[int, int] = {}
    for record in records:
        cost = charged(record)
        for window in record.charges:
            found[window] = found.get(window, 0) + cost
    return found
