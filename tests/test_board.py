"""Workers of one gateway see each other's word in the state folder, and not that of one that is gone."""

from __future__ import annotations

from pathlib import Path

from gateway.backend_watch import BackendWatch
from gateway.board import STALE_S, Board, Told
from tests.test_backend_watch import NOON, end, record, view


def told(worker: str, at: float) -> Told:
    return Told(worker=worker, at=at, settings="h", since=at, catalog="c", views=[view("ready")])


def test_each_reads_the_others_and_its_own_past(tmp_path: Path) -> None:
    one, two = Board(tmp_path, "0"), Board(tmp_path, "1")
    watch = BackendWatch()
    watch.settled(record(end()), None, NOON)
    watch.look([view("ejected")], NOON)
    word = told("1", NOON)
    word.minutes, word.events = watch.recent(), watch.events()
    two.leave(word, watch)
    assert one.others(NOON + 1) == [word] and two.others(NOON + 1) == []
    assert one.hours()["1"]["a"][0].attempts == 1 and two.hours() == {}
    assert one.others(NOON + STALE_S + 1) == []
    after = BackendWatch()
    two.carried_on(after, NOON + 30)
    assert after.hour()["a"][0].attempts == 1 and after.events()["a"][0].until == NOON
    one.carried_on(BackendWatch(), NOON)  # has no past


def test_a_word_of_another_version_is_no_word(tmp_path: Path) -> None:
    board = Board(tmp_path, "0")
    (tmp_path / "worker-9.now.msgpack").write_bytes(b"\x00nonsense")
    assert board.others(NOON) == []


def test_the_hour_is_written_once_a_minute(tmp_path: Path) -> None:
    board, watch = Board(tmp_path, "0"), BackendWatch()
    board.leave(told("0", NOON), watch)
    watch.settled(record(end()), None, NOON)
    board.leave(told("0", NOON + 1), watch)
    assert Board(tmp_path, "1").hours() == {"0": {}}
    board.leave(told("0", NOON + 60), watch)
    assert Board(tmp_path, "1").hours()["0"]["a"][0].attempts == 1
