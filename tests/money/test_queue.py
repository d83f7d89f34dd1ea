"""The queue to SQL: in order, each once, and beyond its bound from the journal."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from gateway.money.journal import Journal
from gateway.money.journal_reading import Reading
from gateway.money.queue import SettledQueue
from gateway.settings import Money
from tests.fixtures.money import intent_of, record_of


def test_what_does_not_fit_in_memory_is_read_from_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18))
    queue = SettledQueue(rows_in_memory=3)
    records = [record_of(uuid4(), 1, None, number) for number in range(8)]
    for number, record in enumerate(records):
        queue.put(record, journal.settlement(record), number)
        queue.put(record, None, number)
    assert len(queue) == 8
    assert queue.batch(100, journal) == tuple(records)
    assert queue.batch(2, journal) == tuple(records[:2])
    assert queue.get(records[7].id, journal) == records[7]
    assert queue.oldest_us() == 0
    queue.confirm(records[:2], journal)
    assert queue.batch(100, journal) == tuple(records[2:])
    assert records[0].id not in queue
    assert queue.get(records[0].id, journal) is None
    journal.close(remove=True)


def test_a_record_that_could_not_be_journalled_stays_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18))
    queue = SettledQueue(rows_in_memory=0)
    record = record_of(uuid4(), 1, None, 5)
    queue.put(record, None, 1)
    assert queue.unwritten == 1
    assert queue.batch(5, journal) == (record,)
    queue.confirm([record], journal)
    assert (queue.unwritten, len(queue), queue.oldest_us()) == (0, 0, None)
    journal.close(remove=True)


def test_a_new_identity_takes_over_rows_and_open_requests(tmp_path: Path) -> None:
    old, heir = (Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18)) for _ in range(2))
    queue = SettledQueue(rows_in_memory=1)
    records = [record_of(uuid4(), 1, None, number) for number in range(3)]
    for record in records:
        queue.put(record, old.settlement(record), 1)
    opened = uuid4()
    old.intent(intent_of(opened, 1, None, 5))
    queue.move(old, heir)
    old.close(remove=True)
    assert queue.batch(10, heir) == tuple(records)
    reading = Reading(heir.directory)
    assert list(reading) == records
    assert [row.id for row in reading.unknown(0)] == [opened]
    assert heir.open_requests == 1
    heir.close(remove=True)
