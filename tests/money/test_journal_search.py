"""What journals say of one request while their processes write: everything of it, once, and nothing of others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import UUID, uuid4

from gateway.money.journal import Journal, segment_path
from gateway.money.journal_search import CLOCKS_S, told
from gateway.settings import Money
from tests.fixtures.money import end_of, intent_of, record_of


def born(seconds_ago: float = 0.0) -> UUID:
    """A UUIDv7."""
    ms = int((time.time() - seconds_ago) * 1000)
    return UUID(int=ms << 80 | 0x7000 << 64 | 0x8000 << 48 | uuid4().int & 0xFFFF_FFFF_FFFF)


def test_it_tells_what_was_sent_out_and_how_it_ended(tmp_path: Path) -> None:
    mine, others = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18)), Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18))
    asked, quiet, elsewhere = born(), born(), born()
    assert told(tmp_path, asked) == []
    first, second = intent_of(asked, 1, None, 5), intent_of(asked, 1, None, 7, n=2)
    for journal, record in ((mine, first), (mine, intent_of(quiet, 1, None, 5)), (others, intent_of(elsewhere, 1, None, 5))):
        journal.intent(record)
    mine.ended(end_of(asked, 0, 5, outcome="failed"))
    mine.intent(second)
    assert told(tmp_path, asked) == [first, end_of(asked, 0, 5, outcome="failed"), second]
    row = record_of(asked, 1, None, 4)
    mine.settlement(row)
    assert told(tmp_path, asked) == [first, end_of(asked, 0, 5, outcome="failed"), second, row]
    assert [one.request_id for one in told(tmp_path, elsewhere)] == [elsewhere], "any process of this machine"  # type: ignore[union-attr]
    assert told(tmp_path, born()) == []
    for journal in (mine, others):
        journal.close(remove=True)
    assert told(tmp_path, asked) == []


def test_a_new_segment_repeats_what_runs_and_it_is_told_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 16))
    asked = born()
    journal.intent(intent_of(asked, 1, None, 5))
    while not segment_path(journal.directory, 2).exists():
        other = born()
        journal.intent(intent_of(other, 1, None, 5))
        journal.settlement(record_of(other, 1, None, 4))
    assert told(tmp_path, asked) == [intent_of(asked, 1, None, 5)]
    long_ago = time.time() - CLOCKS_S - 60
    for number in (1, 2):
        os.utime(segment_path(journal.directory, number), (long_ago, long_ago))
    assert told(tmp_path, asked) == [], "a file that was left before the request began cannot hold it"
    journal.close(remove=True)


def test_what_is_half_written_or_no_journal_says_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, uuid4(), Money(segment_bytes=1 << 18))
    whole, torn = born(), born()
    journal.intent(intent_of(whole, 1, None, 5))
    journal.intent(intent_of(torn, 1, None, 5))
    path = segment_path(journal.directory, 1)
    data = path.read_bytes()
    at = data.index(torn.bytes)
    path.write_bytes(data[: at + 20] + bytes(len(data) - at - 20))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "000001.log").write_bytes(b"")
    assert told(tmp_path, torn) == [] and len(told(tmp_path, whole)) == 1
    journal.close(remove=False)
