"""What the journals on this machine say of one request: that it was sent out, and how it ended. For somebody who looks at it now.

Reads files that others write to and changes nothing; knows no SQL. What cannot be read yet says nothing.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from gateway.money.journal import PREFIX, RECORD_BYTES, decoder
from gateway.money.journal_reading import segments
from gateway.money.records import AttemptEnd, Intent, UsageRecord

Told = Intent | AttemptEnd | UsageRecord
SEGMENTS_MOST = 64  # of all processes, those that were written to last
CLOCKS_S = 60.0  # so far the clocks of files and of ids may be apart


def told(root: Path, request_id: UUID) -> list[Told]:
    """The records of one request (a UUIDv7, whose time says which segments can hold it), each once, as they were written. Blocks."""
    begun_s = (request_id.int >> 80) / 1000 - CLOCKS_S
    found: list[Told] = []
    for path in _written_since(root, begun_s):
        for record in _records(path, request_id.bytes):
            if record not in found:  # a new segment repeats what runs
                found.append(record)
    return found


def _written_since(root: Path, begun_s: float) -> list[Path]:
    times: dict[Path, float] = {}
    for directory in root.glob("[!.]*"):
        for path in segments(directory):
            try:
                times[path] = path.stat().st_mtime
            except OSError:  # SQL has all of it: it was deleted
                continue
    newest = sorted((path for path in times if times[path] >= begun_s), key=times.__getitem__)
    return sorted(newest[-SEGMENTS_MOST:])


def _records(path: Path, sought: bytes) -> Iterator[Told]:
    """Those of a segment that hold these bytes of an id."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            payloads = list(_payloads(data, sought))
    except (OSError, ValueError):  # deleted, or empty
        return
    for payload in payloads:
        try:
            record = decoder.decode(payload)
        except msgspec.MsgspecError:
            return
        if isinstance(record, Told) and _of(record).bytes == sought:
            yield record


def _payloads(data: mmap.mmap, sought: bytes) -> Iterator[bytes]:
    """Of whole records; the one that is being written ends it."""
    hit, at = data.find(sought), 0
    while hit >= 0 and at + PREFIX.size <= len(data):
        length, crc = PREFIX.unpack_from(data, at)
        begin, end = at + PREFIX.size, at + PREFIX.size + length
        if length == 0 or length > RECORD_BYTES or end > len(data):
            return
        if begin <= hit < end:
            payload = data[begin:end]
            if zlib.crc32(payload) != crc:
                return
            yield payload
            hit = data.find(sought, end)
        at = end


def _of(record: Told) -> UUID:
    return record.id if isinstance(record, UsageRecord) else record.request_id
