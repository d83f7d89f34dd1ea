"""The journal's writing side: one record per write, space first, rotation with a checkpoint, a lock that says who lives."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from gateway.errors import NotReady
from gateway.money import journal as module
from gateway.money.journal import LOCK, Journal, journal_fs, segment_path, take_lock
from gateway.money.journal_reading import Reading, segments, verify
from gateway.settings import Money
from tests.fixtures.money import end_of, intent_of, record_of

SMALL = Money(segment_bytes=32 * 1024, retain_s=0.0)


def open_journal(root: Path, settings: Money = SMALL) -> Journal:
    return Journal(root, uuid4(), settings)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    done, lost, third = uuid4(), uuid4(), uuid4()
    journal.intent(intent_of(done, 1, None, 50))
    journal.intent(intent_of(lost, 2, None, 70))
    journal.ended(end_of(lost, 0, 70, outcome="failed"))
    journal.intent(intent_of(lost, 2, None, 90, n=2))
    record = record_of(done, 1, None, 40)
    place = journal.settlement(record)
    journal.settlement(record_of(third, 1, None, 0))
    assert place is not None
    assert journal.read(place) == record
    assert journal.open_requests == 1
    reading = Reading(journal.directory)
    assert [settled.id for settled in reading] == [done, third]
    (unknown,) = reading.unknown(now_us=10)
    assert (unknown.id, unknown.outcome, unknown.cost) == (lost, "unknown", 90)
    assert [(attempt.n, attempt.outcome, attempt.cost) for attempt in unknown.attempts] == [(1, "failed", 0), (2, "unknown", 90)]
    journal.close(remove=True)
    assert not journal.directory.exists()


def test_segments_rotate_with_the_open_intents_and_leave_when_confirmed(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    opened = uuid4()
    journal.intent(intent_of(opened, 1, None, 11))
    places = []
    for _ in range(400):
        request_id = uuid4()
        journal.intent(intent_of(request_id, 1, None, 5))
        places.append(journal.settlement(record_of(request_id, 1, None, 4)))
    assert len(segments(journal.directory)) > 3
    verify(journal.directory)
    for place in places:
        assert place is not None
        journal.confirm(place)
    journal.prune(keep_s=0.0)
    assert len(segments(journal.directory)) == 1
    verify(journal.directory)
    reading = Reading(journal.directory)
    assert len(list(reading)) < 400
    assert [row.id for row in reading.unknown(0)] == [opened], "the checkpoint carries what is still open"
    journal.close(remove=True)


def test_unconfirmed_segments_stay(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for _ in range(300):
        journal.settlement(record_of(uuid4(), 1, None, 4))
    before = len(segments(journal.directory))
    journal.prune(keep_s=0.0)
    assert len(segments(journal.directory)) == before > 1
    journal.close(remove=True)


def test_a_full_journal_takes_no_intent_but_every_settlement(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, Money(segment_bytes=32 * 1024, journal_max_bytes=96 * 1024))
    admitted = []
    with pytest.raises(NotReady) as refused:
        for number in range(10_000):
            request_id = uuid4()
            journal.intent(intent_of(request_id, 1, None, 5))
            if number % 20 == 0:
                admitted.append(request_id)
            else:
                journal.settlement(record_of(request_id, 1, None, 4))
    assert refused.value.code == "journal_full"
    assert refused.value.retry_after_s is not None
    assert admitted
    for request_id in admitted:
        assert journal.settlement(record_of(request_id, 1, None, 4)) is not None
    journal.close(remove=True)


def test_too_many_open_requests_are_refused_before_their_ends_would_not_fit(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    opened = []
    with pytest.raises(NotReady):
        while True:
            request_id = uuid4()
            journal.intent(intent_of(request_id, 1, None, 5))
            opened.append(request_id)
    assert len(opened) >= 10
    for request_id in opened:
        assert journal.settlement(record_of(request_id, 1, None, 4)) is not None
    assert journal.unwritten == 0
    journal.close(remove=True)


def test_a_torn_write_is_taken_back_and_admission_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes 40 bytes of a record: what follows must stay readable."""
    journal = open_journal(tmp_path)
    first, torn, last = uuid4(), uuid4(), uuid4()
    journal.intent(intent_of(first, 1, None, 5))
    whole = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pwrite", lambda descriptor, data, offset: whole(descriptor, data[:40], offset))
        with pytest.raises(NotReady):
            journal.intent(intent_of(torn, 1, None, 5))
    with pytest.raises(NotReady):
        journal.intent(intent_of(last, 1, None, 5))
    assert journal.settlement(record_of(first, 1, None, 3)) is not None
    journal.repair()
    journal.intent(intent_of(last, 1, None, 5))
    reading = Reading(journal.directory)
    assert [row.id for row in reading] == [first]
    assert [row.id for row in reading.unknown(0)] == [last]
    journal.close(remove=True)


def test_a_segment_that_cannot_be_mended_is_left_and_reads_to_its_last_whole_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path)
    first, second = uuid4(), uuid4()
    journal.intent(intent_of(first, 1, None, 5))
    whole = os.pwrite

    def failing(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "ftruncate", failing)
        calls = iter([40])
        patch.setattr(module.os, "pwrite", lambda descriptor, data, offset: whole(descriptor, data[: next(calls, len(data))], offset))
        assert journal.settlement(record_of(second, 1, None, 3)) is None
    assert journal.unwritten == 1
    assert len(segments(journal.directory)) == 2
    verify(journal.directory)
    reading = Reading(journal.directory)
    assert list(reading) == []
    assert [row.id for row in reading.unknown(0)] == [first]
    journal.close(remove=True)


def test_no_space_for_a_spare_stops_admission_until_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path)

    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "posix_fallocate", full)
        with pytest.raises(NotReady, match="No space left"):
            for _ in range(1000):
                request_id = uuid4()
                journal.intent(intent_of(request_id, 1, None, 5))
                assert journal.settlement(record_of(request_id, 1, None, 4)) is not None
        journal.repair()
        assert journal.broken
    journal.repair()
    assert not journal.broken
    journal.intent(intent_of(uuid4(), 1, None, 5))
    journal.close(remove=True)


def test_a_start_on_a_full_disk_takes_nothing_until_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", full)
        journal = open_journal(tmp_path)
        assert "No space left" in journal.broken or "no spare" in journal.broken
        request_id = uuid4()
        with pytest.raises(NotReady, match="takes no more requests"):
            journal.intent(intent_of(request_id, 1, None, 1))
        assert journal.settlement(record_of(request_id, 1, None, 1)) is None
        journal.repair()
        assert journal.broken
        assert segments(journal.directory) == []
    journal.repair()
    assert not journal.broken
    journal.intent(intent_of(request_id, 1, None, 1))
    assert journal.settlement(record_of(request_id, 1, None, 1)) is not None
    journal.close(remove=False)
    verify(journal.directory)
    assert [record.id for record in Reading(journal.directory)] == [request_id]


def test_the_lock_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    assert take_lock(journal.directory) is None
    journal.close(remove=False)
    lock = take_lock(journal.directory)
    assert lock is not None
    assert take_lock(journal.directory) is None
    os.close(lock)
    assert (journal.directory / LOCK).exists()
    assert segment_path(journal.directory, 1).exists()


async def test_power_mode_waits_for_the_disk_and_shares_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    real = os.fdatasync

    def counting(descriptor: int) -> None:
        flushed.append(descriptor)
        real(descriptor)

    journal = open_journal(tmp_path, Money(segment_bytes=1 << 18, fsync="power"))
    monkeypatch.setattr(module.os, "fdatasync", counting)
    await asyncio.gather(*(journal.intent_durable(intent_of(uuid4(), 1, None, 5)) for _ in range(50)))
    assert 1 <= len(flushed) <= 3, "fifty intents share few flushes"
    await journal.intent_durable(intent_of(uuid4(), 1, None, 5))
    journal.close(remove=True)


async def test_power_mode_dispatches_nothing_that_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path, Money(segment_bytes=1 << 18, fsync="power"))

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module.os, "fdatasync", failing)
    with pytest.raises(NotReady):
        await journal.intent_durable(intent_of(uuid4(), 1, None, 5))
    assert journal.broken
    journal.close(remove=True)


def test_the_file_system_is_named(tmp_path: Path) -> None:
    assert journal_fs(tmp_path / "not" / "yet") in ("local", "memory")
    assert journal_fs(Path("/dev/shm")) == "memory"


def test_the_oldest_request_that_runs_is_told(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    assert journal.oldest_open_us(10) == 0
    first, second = (UUID(int=ms << 80 | 0x7000 << 64 | ms) for ms in (1_000, 5_000))
    for request_id in (first, second):
        journal.intent(intent_of(request_id, 1, None, 1))
    assert journal.oldest_open_us(9_000_000) == 8_000_000
    journal.settlement(record_of(first, 1, None, 1))
    assert journal.oldest_open_us(9_000_000) == 4_000_000
    journal.close(remove=True)
