"""What a backend's own events leave behind for an end that it does not write."""

from __future__ import annotations

from providers.dialects.passed import Passed
from providers.types import Frame, TextDelta
from tests.fakes.responses import call, event, stream, text


def test_items_numbers_and_events() -> None:
    passed = Passed()
    assert (passed.next_number(), passed.items()) == (0, ([], set()))
    came = stream(text("Hello"), call("c1", "f", "{}"), end=None)[:-2]
    for wire in came:
        passed.keep(Frame(events=[TextDelta("x")], wire=wire))
    passed.keep(Frame(events=[], wire=b": ping\n\n"))
    assert passed.next_number() == len(came)
    assert passed.items() == ([(0, "msg_1", "message"), (1, "fc_c1", "function_call")], {0})
    assert len(passed.events) == len(came)


def test_several_events_in_one_read_and_events_without_numbers() -> None:
    passed = Passed()
    passed.keep(Frame(events=[], wire=event(6, type="a") + event(7, type="b") + b"data: [DONE]\n\n"))
    assert passed.next_number() == 8
    passed.keep(Frame(events=[], wire=b'data: {"type":"a"}\n\n'))
    assert passed.next_number() == 0
