from __future__ import annotations

from local_engine.sequence import Sequence
from local_engine.waiting import WaitingLine
from local_engine.wire import Params


def sequence(key: int, salt: str = "", priority: int = 0) -> Sequence:
    made = Sequence(key, [1], Params(), 10, salt)
    made.priority = priority
    return made


def drain(line: WaitingLine, cost: int = 10) -> list[int]:
    order = []
    while (one := line.first()) is not None:
        line.take(one)
        line.charge(one, cost)
        order.append(one.id)
    return order


def test_first_come_first_served_within_a_tenant_and_turns_between_them() -> None:
    line = WaitingLine()
    for key, salt in enumerate(["a", "a", "a", "b", "c", "b"]):
        line.add(sequence(key, salt))
    assert (len(line), [one.id for one in line]) == (6, [0, 1, 2, 3, 5, 4])
    assert drain(line) == [0, 3, 4, 1, 5, 2]
    assert (len(line), line.first()) == (0, None)


def test_who_was_served_more_waits_longer() -> None:
    line = WaitingLine()
    for key, salt in enumerate(["a", "b", "a", "b", "b"]):
        line.add(sequence(key, salt))
    first = line.first()
    assert first is not None
    line.take(first)
    line.charge(first, 25)
    assert drain(line) == [1, 3, 4, 2]


def test_priority_goes_before_all_turns() -> None:
    line = WaitingLine()
    for key, (salt, priority) in enumerate([("a", 1), ("b", 1), ("a", 0), ("a", 0)]):
        line.add(sequence(key, salt, priority))
    assert drain(line) == [2, 3, 1, 0]


def test_who_comes_back_has_no_claim_from_before_and_who_is_put_back_goes_first() -> None:
    line = WaitingLine()
    gone, busy = sequence(0, "gone"), sequence(1, "busy")
    for one in (gone, busy):
        line.add(one)
        line.take(one)
    line.close(gone)
    line.charge(busy, 100)
    back = [sequence(2, "gone"), sequence(3, "gone")]
    for one in back:
        line.add(one)
    line.put_back(busy)
    assert drain(line) == [1, 2, 3]  # at 100 as the busy one, which came first
