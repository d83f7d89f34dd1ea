"""Rows that the database will not store, for what their values are: found one by one, kept in a file, and charged to budgets all the same.

One such row must not hold up those behind it. The file lies in the state folder, a line of JSON per row. Knows no queue and no journal.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from gateway.db.session import Refused, Session, Transaction
from gateway.money import sync
from gateway.money.records import UsageRecord

FILE = "quarantine.jsonl"


class SetAside(Struct, frozen=True, kw_only=True):
    """One line of the file. why: what the database said. process: whose row it was."""

    at_us: int
    process: UUID
    why: str
    record: UsageRecord


class _Stored(Exception):
    """A trial went through; raised so that it is rolled back."""


def _trial(session: Session, payload: sync.Payload) -> Transaction[None]:
    yield from sync.sync(session.dialect, payload)
    raise _Stored


async def _refusal(session: Session, payload: sync.Payload) -> str:
    """Why the database refuses these rows; empty where it takes them. Nothing is kept of the trial."""
    try:
        await session.run(_trial(session, payload))
    except _Stored:
        return ""
    except Refused as error:
        return str(error)
    return ""


async def unstorable(session: Session, payload: sync.Payload, at_us: int) -> list[SetAside]:
    """Which rows of a refused payload the database does not take, found by halving: one bad row of 500 costs some 18 trials."""
    found: list[SetAside] = []
    waiting: list[Sequence[UsageRecord]] = [payload.rows]
    while waiting:
        rows = waiting.pop()
        why = await _refusal(session, structs.replace(payload, rows=tuple(rows), asks=(), aside=())) if rows else ""
        if not why:
            continue
        if len(rows) == 1:
            found.append(SetAside(at_us=at_us, process=payload.process, why=why[:1000], record=rows[0]))
        else:
            waiting += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return found


def without(payload: sync.Payload, bad: Iterable[SetAside]) -> sync.Payload:
    """The payload that leaves those rows out and charges their budgets by adjustments."""
    aside = {one.record.id: one.record for one in bad}
    rows = tuple(record for record in payload.rows if record.id not in aside)
    return structs.replace(payload, rows=rows, aside=(*payload.aside, *aside.values()))


class Quarantine:
    """The file, shared by the workers of a gateway and by `tollway ledger quarantine`."""

    def __init__(self, journal_root: Path) -> None:
        self.path = journal_root.parent / FILE
        self._counted = (-1, 0)  # size of the file when its rows were counted, and how many there were

    def _open(self) -> int:
        """A descriptor of the file under its lock."""
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self.path.exists() and os.fstat(descriptor).st_ino == self.path.stat().st_ino:
                return descriptor
            os.close(descriptor)  # it was replaced in between

    def add(self, rows: Iterable[SetAside]) -> None:
        """On the disk when this returns. OSError where it cannot be written: then nothing of it counts."""
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        descriptor = self._open()
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, data) != len(data):
                os.ftruncate(descriptor, before)
                raise OSError("short write")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[SetAside]:
        """Every row once, oldest first; a row that was set aside again after a crash stands as it came last."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        rows = [msgspec.json.decode(line, type=SetAside) for line in lines]
        return list({row.record.id: row for row in rows}.values())

    def count(self) -> int:
        """How many there are; the file is read again only when its size has changed."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return 0
        if self._counted[0] != size:
            self._counted = (size, len(self.read()))
        return self._counted[1]

    def remove(self, ids: set[UUID]) -> None:
        """Take rows out that the ledger has by now."""
        descriptor = self._open()
        try:
            kept = [row for row in self.read() if row.record.id not in ids]
            fresh = self.path.with_suffix(".new")
            fresh.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))
            fresh.chmod(0o600)
            if kept:
                fresh.rename(self.path)
            else:
                fresh.unlink()
                self.path.unlink()
        finally:
            os.close(descriptor)


async def retry(session: Session, quarantine: Quarantine) -> tuple[int, int]:
    """Try every row again; returns how many the ledger has now and how many are still refused."""
    stored: set[UUID] = set()
    rows = quarantine.read()
    for row in rows:
        try:
            await session.run(sync.bring_back(session.dialect, row.process, row.record))
        except Refused:
            continue
        stored.add(row.record.id)
    if stored:
        quarantine.remove(stored)
    return len(stored), len(rows) - len(stored)
