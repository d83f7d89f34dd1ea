"""The tables of roll-ups: by every name and quarter of an hour, and by fewer names per hour and day."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, SmallInteger, Table, Text

from gateway.db.columns import Uid, count, metadata, usage_classes


def _rollup_keys() -> list[Column[Any]]:
    return [
        Column("bucket_us", BigInteger, primary_key=True),  # start of a quarter of an hour
        *(Column(name, BigInteger, primary_key=True) for name in ("org_id", "team_id", "key_id")),
        *(Column(name, Text, primary_key=True) for name in ("route", "backend", "vendor", "model", "outcome", "tag")),
    ]


def _coarse_keys() -> list[Column[Any]]:
    """Names that a cut does not keep are 0 or empty."""
    return [
        Column("cut", Text, primary_key=True),  # name of one of money/cuts.py
        *(Column(name, BigInteger, primary_key=True) for name in ("span_us", "bucket_us", "org_id", "team_id", "key_id")),
        *(Column(name, Text, primary_key=True) for name in ("route", "backend", "vendor", "model", "tag", "outcome")),
    ]


def _latency_keys() -> list[Column[Any]]:
    return [Column("metric", Text, primary_key=True), Column("octave", SmallInteger, primary_key=True)]  # metric: ttft | duration


def _rollup_sums() -> list[Column[int]]:
    return [
        *(count(name) for name in ("requests", "attempts", "cost", "saved", "unpriced", "estimated")),
        *usage_classes(),
        *(count(name) for name in ("ttft_count", "ttft_ms", "duration_ms", "failovers")),
    ]


def _octave() -> list[Column[int]]:
    return [count(name) for name in ("n0", "n1", "n2", "n3")]


rollups = Table("rollups", metadata, *_rollup_keys(), *_rollup_sums(), Index(None, "team_id", "bucket_us"), sqlite_with_rowid=False)

# how many requests fell into which bin of a latency, the four bins of a doubling in one row: money/latencies.py. Apart from rollups, so
# that both add up by upsert
latency_rollups = Table("latency_rollups", metadata, *_rollup_keys(), *_latency_keys(), *_octave(), sqlite_with_rowid=False)

# the same by fewer names, per hour and per day of UTC: what a month is read from. Added up by money/settling.py when the time is over
coarse_rollups = Table("coarse_rollups", metadata, *_coarse_keys(), *_rollup_sums(), sqlite_with_rowid=False)
coarse_latency_rollups = Table("coarse_latency_rollups", metadata, *_coarse_keys(), *_latency_keys(), *_octave(), sqlite_with_rowid=False)

# one row: up to where the coarse roll-ups stand
settled = Table(
    "settled",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("until_us", BigInteger, nullable=False),  # start of an hour
)

# hours that somebody added to when they were over: their coarse roll-ups are to be made again, and nobody reads them until then
stale_hours = Table(
    "stale_hours",
    metadata,
    Column("hour_us", BigInteger, primary_key=True),
    Column("mark", Uid, primary_key=True),  # of one writer: who makes the hour again takes away the marks it had seen, no later one
)
