"""Settled requests on their way to SQL, in order, each once. Beyond a bound only the place in the journal is kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from msgspec import Struct

from gateway.money.journal import Journal, Place
from gateway.money.records import UsageRecord


class _Entry(Struct):
    record: UsageRecord | None
    place: Place | None
    queued_us: int


class SettledQueue:
    """Keyed by request id. rows_in_memory: beyond it records that stand in the journal leave memory and are read again."""

    def __init__(self, rows_in_memory: int) -> None:
        self._rows_in_memory = rows_in_memory
        self._entries: dict[int, _Entry] = {}  # by the number that the id is: a UUID hashes in Python
        self.unwritten = 0  # entries that stand in memory only, because the journal could not be written

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: UUID) -> bool:
        return request_id.int in self._entries

    def put(self, record: UsageRecord, place: Place | None, now_us: int) -> None:
        """Queue a settlement; a request that is queued already stays as it is."""
        number = record.id.int
        if number in self._entries:
            return
        if place is None:
            self.unwritten += 1
        kept = None if place is not None and len(self._entries) >= self._rows_in_memory else record
        self._entries[number] = _Entry(kept, place, now_us)

    def oldest_us(self) -> int | None:
        entry = next(iter(self._entries.values()), None)
        return None if entry is None else entry.queued_us

    def get(self, request_id: UUID, journal: Journal) -> UsageRecord | None:
        entry = self._entries.get(request_id.int)
        return None if entry is None else _read(entry, journal)

    def batch(self, limit: int, journal: Journal) -> tuple[UsageRecord, ...]:
        """The oldest `limit` records; they stay queued until confirmed."""
        return tuple(_read(entry, journal) for entry in islice(self._entries.values(), limit))

    def confirm(self, records: Iterable[UsageRecord], journal: Journal) -> None:
        """SQL has these."""
        for record in records:
            entry = self._entries.pop(record.id.int, None)
            if entry is None:
                continue
            if entry.place is None:
                self.unwritten -= 1
            else:
                journal.confirm(entry.place)

    def move(self, old: Journal, heir: Journal) -> None:
        """Copy what is queued, and the open requests, into the journal of a new identity."""
        entries = list(self._entries.values())
        places = old.hand_over(heir, (_read(entry, old) for entry in entries))
        for entry, place in zip(entries, places, strict=True):
            self.unwritten += (place is None) - (entry.place is None)
            if entry.record is None and place is None:
                entry.record = _read(entry, old)
            entry.place = place


def _read(entry: _Entry, journal: Journal) -> UsageRecord:
    if entry.record is not None:
        return entry.record
    if entry.place is None:
        raise ValueError("a queued settlement has neither a record nor a place")
    return journal.read(entry.place)
