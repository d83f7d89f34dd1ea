"""Reading a dead journal: a torn tail ends it, damage before that forbids adoption, a newer version is left alone."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.money.journal import PREFIX, SPARE, Header, Journal, framed, segment_path
from gateway.money.journal_reading import Corrupt, Newer, Reading, header, segments, verify
from gateway.settings import Money
from tests.fixtures.money import intent_of, record_of


def written(root: Path, count: int, segment_bytes: int = 1 << 18) -> tuple[Path, list[UUID]]:
    """A journal of a process that is gone, with `count` settled requests."""
    journal = Journal(root, uuid4(), Money(segment_bytes=segment_bytes))
    ids = [uuid4() for _ in range(count)]
    for request_id in ids:
        journal.intent(intent_of(request_id, 1, None, 5))
        journal.settlement(record_of(request_id, 1, None, 4))
    journal.close(remove=False)
    (journal.directory / SPARE).unlink()
    return journal.directory, ids


def test_the_header_names_its_process(tmp_path: Path) -> None:
    directory, _ = written(tmp_path, 1)
    head = header(directory)
    assert head is not None
    assert str(head.process_id) == directory.name
    assert head.fsync == "process"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 4000))
def test_cut_anywhere_a_journal_yields_a_prefix_of_what_was_written(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory, ids = written(tmp_path_factory.mktemp("cut"), 8)
    path = segment_path(directory, 1)
    path.write_bytes(path.read_bytes()[:cut])
    verify(directory)
    reading = Reading(directory)
    found = [row.id for row in reading]
    assert found == ids[: len(found)]
    assert len(reading.unknown(0)) <= 1


def test_damage_in_the_middle_of_an_earlier_segment_forbids_adoption(tmp_path: Path) -> None:
    directory, _ = written(tmp_path, 300, segment_bytes=32 * 1024)
    first = segments(directory)[0]
    data = bytearray(first.read_bytes())
    data[1000] ^= 0xFF
    first.write_bytes(data)
    with pytest.raises(Corrupt):
        verify(directory)


def test_a_missing_segment_forbids_adoption(tmp_path: Path) -> None:
    directory, _ = written(tmp_path, 300, segment_bytes=32 * 1024)
    segments(directory)[1].unlink()
    with pytest.raises(Corrupt, match="missing"):
        verify(directory)


def test_a_checkpoint_that_is_not_whole_is_no_base(tmp_path: Path) -> None:
    directory, _ = written(tmp_path, 300, segment_bytes=32 * 1024)
    *earlier, last = segments(directory)
    for path in earlier:
        path.unlink()
    head_bytes = PREFIX.size + PREFIX.unpack_from(last.read_bytes())[0]
    last.write_bytes(last.read_bytes()[:head_bytes])
    with pytest.raises(Corrupt, match="checkpoint"):
        verify(directory)


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / str(uuid4())
    directory.mkdir()
    segment_path(directory, 1).write_bytes(framed(Header(version=99, process_id=uuid4(), boot_id="", fsync="process")))
    with pytest.raises(Newer, match="99"):
        header(directory)


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    directory = tmp_path / str(uuid4())
    directory.mkdir()
    assert header(directory) is None
    verify(directory)
    reading = Reading(directory)
    assert list(reading) == []
    assert reading.unknown(0) == []


def test_an_attempt_without_price_makes_the_whole_unknown_row_unpriced(tmp_path: Path) -> None:
    journal = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18))
    request_id = uuid4()
    journal.intent(intent_of(request_id, 1, None, 5))
    journal.intent(intent_of(request_id, 1, None, None, n=2))
    reading = Reading(journal.directory)
    assert list(reading) == []
    assert [row.cost for row in reading.unknown(0)] == [None]
    journal.close(remove=True)
