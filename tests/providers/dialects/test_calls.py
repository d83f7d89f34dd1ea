"""Tool calls of an answer are numbered by us, whatever their server counts."""

from __future__ import annotations

import pytest

from providers.dialects.calls import ChoiceState, plain_id
from providers.types import Event, ToolCallDelta

Piece = tuple[int | None, str, str, str]  # the server's index, id, name, arguments


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, "x", "f", "1"), (1, "y", "g", "2")],
        [(4, "x", "f", "1"), (9, "y", "g", "2")],
        [(0, "x", "f", "1"), (0, "y", "g", "2")],  # all at one index
        [(None, "x", "f", "1"), (None, "y", "g", "2")],  # no index at all
        [(None, "", "f", "1"), (None, "", "g", "2")],
    ],
)
def test_two_calls_are_0_and_1(pieces: list[Piece]):
    events: list[Event] = []
    state = ChoiceState(3)
    for piece in pieces:
        state.piece(*piece, events)
    ids = [piece[1] or None for piece in pieces]
    assert events == [ToolCallDelta(0, "1", ids[0], "f", 3), ToolCallDelta(1, "2", ids[1], "g", 3)]


def test_pieces_follow_their_call():
    events: list[Event] = []
    state = ChoiceState()
    for piece in [(5, "x", "f", ""), (7, "y", "g", ""), (5, "", "", "a"), (7, "other", "", "b"), (5, "x", "f", "c"), (5, "", "", "")]:
        state.piece(*piece, events)
    assert [(event.index, event.arguments) for event in events if isinstance(event, ToolCallDelta)][2:] == [(0, "a"), (1, "b"), (0, "c")]


def test_the_one_call_of_an_old_form():
    events: list[Event] = []
    state = ChoiceState()
    state.only("f", "", events)
    state.only("", "{}", events)
    assert events == [ToolCallDelta(0, "", None, "f"), ToolCallDelta(0, "{}")]


@pytest.mark.parametrize(
    ("given", "plain"), [("call_aB-9", "call_aB-9"), ("functions.f:0", "functions_f_0"), ("\u00e9", "_"), ("", "call")]
)
def test_an_id_of_few_letters(given: str, plain: str):
    assert plain_id(given) == plain
