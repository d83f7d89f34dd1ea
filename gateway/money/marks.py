"""What is remarkable about a ledger row, as bits of one small column, so that the few such rows are found among a million.

Set once, with the row. Knows no table and no objective but the numbers it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.money.records import AttemptEnd, UsageRecord

FAILED_OVER = 1  # an attempt failed at another backend than the one that answered
HEDGED = 2  # a second backend was asked beside the first
MISSED = 4  # an objective was not met
UNPRICED = 8  # an attempt has no known price
FAILED = 16  # it ended otherwise than answered or from the cache
ANSWERED = ("completed", "cached")


def marks(record: UsageRecord, booked: Collection[str]) -> int:
    """The bits of a row: those it was settled with, and what its end and its attempts say. booked: outcomes of rows that are no request."""
    found = record.marks
    if record.cost is None:
        found |= UNPRICED
    if record.outcome not in ANSWERED and record.outcome not in booked:
        found |= FAILED
    if len(record.attempts) > 1 and failed_over(record.backend, record.attempts):
        found |= FAILED_OVER
    return found


def failed_over(backend: str, ends: Sequence[AttemptEnd]) -> bool:
    """Whether another backend than the one that stands in the row had failed."""
    return any(end.outcome == "failed" and end.backend != backend for end in ends)


def late(seen_ms: tuple[int | None, int], tokens: int, objectives: tuple[float | None, float | None, float | None]) -> bool:
    """Whether a request missed one of its objectives. seen_ms: to the first token, None where none came, and to the end; tokens: of output;
    objectives: ms to the first token, ms for each token after it, ms to the end; None = no such objective."""
    first_ms, end_ms = seen_ms
    first, pace, end = objectives
    if end is not None and end_ms > end:
        return True
    if first_ms is None:
        return False
    if first is not None and first_ms > first:
        return True
    return pace is not None and tokens > 1 and end_ms - first_ms > pace * (tokens - 1)
