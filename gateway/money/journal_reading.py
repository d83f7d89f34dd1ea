"""Reads the journal of a process that has ended. Knows no SQL: it yields settlements and, at the end, what was left open."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from gateway.money.journal import PREFIX, RECORD_BYTES, VERSION, CheckpointEnd, Header, Record, decoder
from gateway.money.records import AttemptEnd, Intent, UsageRecord
from providers.types import Usage

log = logging.getLogger("tollway.money")


class Corrupt(Exception):
    """A record that is not the last one cannot be read: leases of this journal stay held until an operator looks."""


class Newer(Exception):
    """Written by a newer program: left to it."""


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.log"))


def records(path: Path, *, last: bool = False, end: int | None = None) -> Iterator[Record]:
    """The records of one segment. A bad record ends the last segment (a torn tail); in an earlier one it is Corrupt.

    end: where the segment ends, as the next one says; what lies behind is a write that failed.
    """
    data = memoryview(path.read_bytes())[:end]
    at = 0
    while at + PREFIX.size <= len(data):
        length, crc = PREFIX.unpack_from(data, at)
        if length == 0:
            return
        payload = data[at + PREFIX.size : at + PREFIX.size + length]
        good = length <= RECORD_BYTES and len(payload) == length and zlib.crc32(payload) == crc
        if not good:
            if last:
                log.warning("journal %s: torn record at %d, the rest is ignored", path, at)
                return
            raise Corrupt(f"{path}: bad record at byte {at}")
        try:
            record = decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise Newer(f"{path}: unknown record at byte {at}: {error}") from error
        yield record
        at += PREFIX.size + length


def every(directory: Path) -> Iterator[tuple[Path, Iterator[Record]]]:
    """Each segment with its records, oldest first."""
    paths = segments(directory)
    for index, path in enumerate(paths):
        following = paths[index + 1] if index + 1 < len(paths) else None
        if following is None:
            yield path, records(path, last=True)
            continue
        head = next(records(following, last=True), None)
        if isinstance(head, Header):
            yield path, records(path, end=head.previous_bytes)
        else:  # the process died while it began the next segment, in which nothing can stand yet
            yield path, records(path, last=True)


def header(directory: Path) -> Header | None:
    """The first record of the journal; None when nothing was ever written. Newer when it is not our version."""
    for path in segments(directory):
        for record in records(path, last=True):
            if not isinstance(record, Header):
                raise Corrupt(f"{path}: no header")
            if record.version != VERSION:
                raise Newer(f"{path}: version {record.version}")
            return record
        return None
    return None


def verify(directory: Path) -> None:
    """Corrupt or Newer when this journal must not be adopted. A first segment without a whole checkpoint is no base."""
    paths = segments(directory)
    numbers = [int(path.stem) for path in paths]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Corrupt(f"{directory}: a segment is missing among {numbers}")
    for index, (path, found) in enumerate(every(directory)):
        based = False
        for record in found:
            based = based or isinstance(record, CheckpointEnd)
        if index == 0 and not based and numbers != [1]:
            raise Corrupt(f"{path}: its checkpoint is not whole")


class Reading:
    """One pass over a journal: iterate for the settlements, then ask `unknown` for what had no end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._intents: dict[UUID, dict[int, Intent]] = {}
        self._ends: dict[UUID, dict[int, AttemptEnd]] = {}

    def __iter__(self) -> Iterator[UsageRecord]:
        for _, found in every(self.directory):
            for record in found:
                if isinstance(record, Intent):
                    self._intents.setdefault(record.request_id, {})[record.n] = record
                elif isinstance(record, AttemptEnd):
                    self._ends.setdefault(record.request_id, {})[record.n] = record
                elif isinstance(record, UsageRecord):
                    self._intents.pop(record.id, None)
                    self._ends.pop(record.id, None)
                    yield record

    def unknown(self, now_us: int) -> list[UsageRecord]:
        """A row for each request without a settlement: attempts that ended at their cost, the others at their worst case."""
        return [unknown_row(intents, self._ends.get(request_id, {}), now_us) for request_id, intents in self._intents.items()]


def unknown_row(intents: dict[int, Intent], ends: dict[int, AttemptEnd], now_us: int) -> UsageRecord:
    """What can be said of a request whose process died: outcome unknown, at the most it may have cost."""
    attempts = tuple(ends.get(n) or _lost(intent) for n, intent in sorted(intents.items()))
    last = intents[max(intents)]
    costs = [attempt.cost for attempt in attempts]
    return UsageRecord(
        id=last.request_id,
        started_at_us=last.started_at_us,
        ended_at_us=now_us,
        team_id=last.team_id,
        key_id=last.key_id,
        org_id=last.org_id,
        route=last.route,
        backend=last.backend,
        vendor=last.vendor,
        model=last.model,
        price_id=last.price_id,
        outcome="unknown",
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        usage=Usage(estimated=True),
        charges=tuple(sorted({window for intent in intents.values() for window in intent.charges})),
        attempts=attempts,
        tag=last.tag,
        error="process_lost",
        status=0,
        duration_ms=max(0, (now_us - last.started_at_us) // 1000),
    )


def _lost(intent: Intent) -> AttemptEnd:
    return AttemptEnd(
        request_id=intent.request_id,
        n=intent.n,
        backend=intent.backend,
        vendor=intent.vendor,
        model=intent.model,
        price_id=intent.price_id,
        outcome="unknown",
        cost=intent.worst,
        worst=intent.worst,
        usage=Usage(estimated=True),
        error="process_lost",
    )
