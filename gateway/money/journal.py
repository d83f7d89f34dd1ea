"""The journal of one process: what it sent out and what came of it, in preallocated segments under a kernel lock. Writing side.

Order: reserve, write the intent, (power: fsync), dispatch; at the end write the settlement. One pwrite() per record, no buffer: a
buffer loses records on kill -9. Knows no SQL and no budget. Reading is journal_reading.py.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from gateway.errors import NotReady
from gateway.money.records import AttemptEnd, Intent, UsageRecord
from gateway.settings import Money

VERSION = 1
PREFIX = struct.Struct("<II")  # length and crc32 of the payload; length 0 ends a segment
SETTLEMENT_BYTES = 1024  # room kept for the end of each open attempt
SLACK_BYTES = 8192  # header, checkpoint marks, one record that did not fit at the end of a segment
RECORD_BYTES = 1 << 20  # a longer record is none of ours
LOCK, SPARE, UNBORN = "lock", "spare", ".new-"

log = logging.getLogger("tollway.money")


class Header(Struct, frozen=True, kw_only=True, tag="H", array_like=True):
    version: int
    process_id: UUID
    boot_id: str
    fsync: str  # process | power
    previous_bytes: int = 0  # where the segment before this one ends: what lies behind was torn off and is no corruption


class Checkpoint(Struct, frozen=True, tag="C", array_like=True):
    """The open intents follow, until CheckpointEnd."""


class CheckpointEnd(Struct, frozen=True, tag="E", array_like=True):
    pass


Record = Header | Intent | AttemptEnd | UsageRecord | Checkpoint | CheckpointEnd
encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Place(Struct, frozen=True):
    """Where a settlement stands: segment number, offset and length of its payload."""

    segment: int
    offset: int
    length: int


def boot_id() -> str:
    """Changes at every boot of this kernel; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def framed(record: Record) -> bytes:
    payload = encoder.encode(record)
    return PREFIX.pack(len(payload), zlib.crc32(payload)) + payload


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.log"


def take_lock(directory: Path) -> int | None:
    """The descriptor that holds a journal's lock, or None: its owner lives, or the folder has gone. Close it to let go."""
    path = directory / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def remove_directory(directory: Path) -> None:
    """Delete a journal: records first, the lock last, so that nobody adopts half of it. The caller holds the lock."""
    for path in [*sorted(directory.glob("*.log")), directory / SPARE, directory / LOCK]:
        path.unlink(missing_ok=True)
    directory.rmdir()


class _Segment:
    """Bookkeeping of one segment file: how many of its settlements SQL has not confirmed, and when it was left."""

    __slots__ = ("closed_at", "number", "pending")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pending = 0
        self.closed_at = 0.0


class Journal:
    """Owner's side. Created with its lock held; `close` deletes it when everything in it has reached SQL."""

    def __init__(self, root: Path, process_id: UUID, settings: Money) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory = root / str(process_id)
        self.process_id = process_id
        self.settings = settings
        self.broken = ""  # why nothing may be admitted, empty when all is well
        self.unwritten = 0  # settlements that could not be written: in memory only until SQL has them
        # framed intents and attempt ends of requests that run, by the number that their id is: a UUID hashes in Python, at a third of a µs
        self._open: dict[int, list[bytes]] = {}
        self._open_bytes = 0
        self._open_records = 0
        self._segments: list[_Segment] = []
        self._descriptor = -1
        self._offset = 0
        self._spare = False
        self._flush: asyncio.Future[None] | None = None
        self._flush_next: asyncio.Future[None] | None = None
        unborn = root / f"{UNBORN}{process_id}"  # siblings look at a folder only once its lock is held
        unborn.mkdir(mode=0o700)
        self._lock = os.open(unborn / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unborn.rename(self.directory)
        self._make_spare()
        self._rotate()

    # ---- writing
    def intent(self, intent: Intent) -> None:
        """Written before the attempt is dispatched. NotReady when there is no room for it and for its end."""
        data = framed(intent)
        if self.broken:
            raise NotReady(f"The journal takes no more requests: {self.broken}.", code="journal_full", retry_after_s=1.0)
        held = self._open_bytes + len(data) + SETTLEMENT_BYTES * (self._open_records + 1) + SLACK_BYTES
        if held > self.settings.segment_bytes:
            raise NotReady("The journal takes no more requests at once: too many are running.", code="journal_full", retry_after_s=1.0)
        if not self._append(data):
            raise NotReady("The journal cannot be written.", code="journal_full", retry_after_s=1.0)
        self._remember(intent.request_id.int, data)

    async def intent_durable(self, intent: Intent) -> None:
        """The same; under fsync = "power" it returns when the record is on the disk."""
        self.intent(intent)
        if self.settings.fsync == "power":
            await self.durable()

    def ended(self, end: AttemptEnd) -> None:
        """An attempt is over and its request goes on. If it cannot be written the attempt counts as unknown after a crash."""
        data = framed(end)
        if self._append(data):
            self._remember(end.request_id.int, data)

    def settlement(self, record: UsageRecord) -> Place | None:
        """The end of a request. None when it could not be written: then it is in memory only, and admission has stopped."""
        data = framed(record)
        written = self._append(data)
        opened = self._open.pop(record.id.int, None)
        if opened is not None:
            self._open_bytes -= sum(map(len, opened))
            self._open_records -= len(opened)
        if not written:
            self.unwritten += 1
            return None
        segment = self._segments[-1]
        segment.pending += 1
        return Place(segment.number, self._offset - len(data) + PREFIX.size, len(data) - PREFIX.size)

    def _remember(self, request_id: int, data: bytes) -> None:
        self._open.setdefault(request_id, []).append(data)
        self._open_bytes += len(data)
        self._open_records += 1

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def oldest_open_us(self, now_us: int) -> int:
        """The age of the request that has run for longest; 0 when none runs. A UUIDv7 begins with its milliseconds."""
        oldest = next(iter(self._open), None)
        return 0 if oldest is None else max(0, now_us - (oldest >> 80) * 1000)

    @property
    def size_bytes(self) -> int:
        return (len(self._segments) + self._spare) * self.settings.segment_bytes

    def _append(self, data: bytes) -> bool:
        if self._offset + len(data) > self.settings.segment_bytes and not self._rotate():
            return False
        return self._write(data)

    def _write(self, data: bytes) -> bool:
        """All of it or nothing: a torn record would make every later one unreadable."""
        try:
            written = os.pwrite(self._descriptor, data, self._offset)
        except OSError as error:
            written = 0
            self._break(f"write failed: {error.strerror}")
        if written == len(data):
            self._offset += written
            return True
        if not self.broken:
            self._break("short write")
        try:
            os.ftruncate(self._descriptor, self._offset)
        except OSError as error:
            log.error("journal %s: segment abandoned: %s", self.directory, error)
            self._rotate()
        return False

    def _break(self, why: str) -> None:
        if not self.broken:
            log.error("journal %s takes no new requests: %s", self.directory, why)
        self.broken = why

    # ---- segments
    def _make_spare(self) -> bool:
        """Space first: a settlement always has room when its intent had."""
        path = self.directory / SPARE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.settings.segment_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            path.unlink(missing_ok=True)
            self._break(f"no space for the next segment: {error.strerror}")
            return False
        self._spare = True
        return True

    def _rotate(self) -> bool:
        """Go on in the spare: header, checkpoint of all open intents, its end. Then make a new spare."""
        if not self._spare:
            self._break("segment full and no spare")
            return False
        number = self._segments[-1].number + 1 if self._segments else 1
        path = segment_path(self.directory, number)
        (self.directory / SPARE).rename(path)
        self._spare = False
        before, ended = self._descriptor, self._offset
        if before >= 0:
            if self.settings.fsync == "power":
                os.fdatasync(before)  # once in some fifty thousand requests
            os.close(before)
            self._segments[-1].closed_at = time.monotonic()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._offset = 0
        self._segments.append(_Segment(number))
        head = Header(version=VERSION, process_id=self.process_id, boot_id=boot_id(), fsync=self.settings.fsync, previous_bytes=ended)
        opened = [data for records in self._open.values() for data in records]
        good = self._write(b"".join([framed(head), framed(Checkpoint()), *opened, framed(CheckpointEnd())]))
        if good and self.settings.fsync == "power":
            os.fdatasync(self._descriptor)
            self._sync_directory()
        if self.size_bytes + self.settings.segment_bytes > self.settings.journal_max_bytes:
            self.prune(keep_s=0.0)
        if self.size_bytes + self.settings.segment_bytes > self.settings.journal_max_bytes:
            self._break(f"it holds {self.size_bytes} bytes, its maximum (money.journal_max_bytes)")
        else:
            self._make_spare()
        return good

    def _sync_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def confirm(self, place: Place) -> None:
        """SQL has this settlement."""
        for segment in self._segments:
            if segment.number == place.segment:
                segment.pending -= 1
                return

    def prune(self, keep_s: float) -> None:
        """Delete the oldest segments that SQL has wholly confirmed and that were left keep_s ago."""
        now = time.monotonic()
        while len(self._segments) > 1:
            oldest = self._segments[0]
            if oldest.pending > 0 or now - oldest.closed_at < keep_s:
                return
            segment_path(self.directory, oldest.number).unlink(missing_ok=True)
            del self._segments[0]

    def repair(self) -> None:
        """Try again what failed before: called at every tick while `broken`."""
        self.prune(self.settings.retain_s if not self.broken else 0.0)
        if not self.broken:
            return
        if self._descriptor < 0 and not (self._make_spare() and self._rotate()):  # there was no space from the start
            return
        try:
            os.posix_fallocate(self._descriptor, 0, self.settings.segment_bytes)
        except OSError:
            return
        full = self.size_bytes + self.settings.segment_bytes > self.settings.journal_max_bytes
        if self._spare or (not full and self._make_spare()):
            log.warning("journal %s takes requests again", self.directory)
            self.broken = ""

    def read(self, place: Place) -> UsageRecord:
        """A settlement that was written here and left memory."""
        descriptor = os.open(segment_path(self.directory, place.segment), os.O_RDONLY | os.O_CLOEXEC)
        try:
            record = decoder.decode(os.pread(descriptor, place.length, place.offset))
        finally:
            os.close(descriptor)
        if not isinstance(record, UsageRecord):
            raise ValueError(f"no settlement at {place}")
        return record

    # ---- power: one fsync for all that wait
    async def durable(self) -> None:
        """Return when all that is written now is on the disk. It starts at once when idle; later callers share the next one."""
        loop = asyncio.get_running_loop()
        if self._flush is None:
            self._flush = loop.create_future()
            self._start_flush(loop, self._flush)
            await asyncio.shield(self._flush)
            return
        if self._flush_next is None:
            self._flush_next = loop.create_future()
        await asyncio.shield(self._flush_next)

    def _start_flush(self, loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None]) -> None:
        descriptor = os.dup(self._descriptor)

        def flush() -> None:
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

        def done(job: asyncio.Future[None]) -> None:
            error = job.exception()
            if error is None:
                waiting.set_result(None)
            else:
                self._break(f"fsync failed: {error}")
                waiting.set_exception(NotReady("The journal cannot be written.", code="journal_full", retry_after_s=1.0))
                waiting.exception()  # nobody may be left to look at it
            self._flush, self._flush_next = self._flush_next, None
            if self._flush is not None:
                self._start_flush(loop, self._flush)

        loop.run_in_executor(None, flush).add_done_callback(done)

    # ---- ends
    def hand_over(self, heir: Journal, settled: Iterable[UsageRecord]) -> list[Place | None]:
        """Copy open requests and unconfirmed settlements into another journal of this process: its identity has changed."""
        for request_id, records in self._open.items():
            for data in records:
                heir._append(data)
                heir._remember(request_id, data)
        return [heir.settlement(record) for record in settled]

    def close(self, *, remove: bool) -> None:
        """Let go of the lock. remove: everything has reached SQL; otherwise the folder stays for its adopter."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if remove:
            remove_directory(self.directory)
        os.close(self._lock)


_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "lustre", "fuse.sshfs", "fuse.glusterfs"}


def journal_fs(path: Path) -> str:
    """What a journal would lie on: "local", "memory" (lost at a reboot) or "network: TYPE" (refused: no kernel lock to trust)."""
    target = path.resolve()
    while not target.exists():
        target = target.parent
    best, kind = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "local"
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if (target == Path(point) or Path(point) in target.parents) and len(point) >= len(best):
            best, kind = point, found
    if kind in _NETWORK or kind.startswith("fuse"):
        return f"network: {kind}"
    return "memory" if kind in ("tmpfs", "ramfs") else "local"
