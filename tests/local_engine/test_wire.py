from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine import wire
from local_engine.errors import EngineError

MESSAGES = [
    wire.Hello(),
    wire.Submit(id=3, text="é", params=wire.Params(temperature=0.5, stop=("a",), logit_bias={7: -1.0}), salt="t"),
    wire.Cancel(9),
    wire.StatsQuery(),
    wire.Ping(4),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.data())
@settings(max_examples=50, deadline=None)
def test_messages_survive_any_cut_of_the_stream(messages: list[wire.ToEngine], data: st.DataObject) -> None:
    stream = b"".join(map(wire.frame, messages))
    reader, at, seen = wire.FrameReader(), 0, []
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        seen += [wire.decode_to_engine(body) for body in reader.feed(stream[at : at + size])]
        at += size
    assert seen == messages


def test_answers_survive() -> None:
    answers = [
        wire.Welcome(state="ready", model="m", context_tokens=5),
        wire.Batch([wire.Piece(1, "x", [4], 2, 1), wire.Piece(2, "", [], 2, 1, "stop")]),
        wire.Refused(id=1, kind="context", message="m", param="p"),
        wire.Stats(running=1),
        wire.Pong(2),
    ]
    reader = wire.FrameReader()
    assert [wire.decode_to_client(body) for body in reader.feed(b"".join(map(wire.frame, answers)))] == answers


def test_a_length_over_the_limit_is_refused() -> None:
    with pytest.raises(EngineError, match="over the limit"):
        list(wire.FrameReader().feed(wire.LENGTH.pack(wire.MAX_MESSAGE_BYTES + 1)))
