"""A whole answer from events."""

from __future__ import annotations

from providers.dialects.collect import Answer, own_bytes
from providers.types import (
    Event,
    Finished,
    Frame,
    Metered,
    ReasoningDelta,
    RedactedThinking,
    Request,
    Started,
    TextDelta,
    Thinking,
    ToolCallDelta,
    Usage,
)

REQUEST = Request(dialect="d", fields={}, model="route")


def collected(*events: Event) -> Answer:
    return Answer([Frame(events=[event]) for event in events], REQUEST)


def test_pieces_are_joined_choice_by_choice():
    answer = collected(
        Started("i", "m", 7),
        TextDelta("a", 1, '{"content":[1],"x":null}'),
        TextDelta("b", 0, refusal=True),
        TextDelta("c", 1, '{"content":[2],"x":3}'),
        ToolCallDelta(1, "", "y", "g"),
        ToolCallDelta(0, '{"a"', "x", "f"),
        ToolCallDelta(0, ":1}"),
        Finished("stop"),
        Finished("length"),
        Metered(Usage(input=1)),
        Metered(Usage(input=2)),
    )
    assert (answer.id, answer.model, answer.created, answer.usage) == ("i", "m", 7, Usage(input=2))
    (zero, first), (one, second) = answer.choices
    assert (zero, one) == (0, 1)
    assert (first.text, first.refusal, first.reason) == (None, "b", "stop")
    assert [(call.id, call.name, call.arguments) for call in first.calls] == [("x", "f", '{"a":1}'), ("y", "g", "{}")]
    assert (second.text, second.refusal, second.reason, second.logprobs) == ("ac", None, None, {"content": [1, 2], "x": 3})


def test_thinking_ends_with_its_signature():
    answer = collected(ReasoningDelta("a"), ReasoningDelta("b", signature="s"), ReasoningDelta(redacted="x"), ReasoningDelta("c"))
    ((_, choice),) = answer.choices
    assert choice.reasoning == "abc"
    assert choice.thoughts == [Thinking("ab", "s"), RedactedThinking("x")]


def test_nothing_is_nothing():
    answer = collected()
    assert (answer.id, answer.model, answer.created, answer.usage, answer.choices) == ("", "route", 0, None, [])


def test_only_a_lone_whole_answer_of_the_language_passes_as_it_is():
    own = Frame(events=[], wire=b"{}", dialect="d", whole=True)
    assert own_bytes([own], "d") == b"{}"
    for frames in ([own, own], [], [Frame(events=[], wire=b"x", dialect="d")], [Frame(events=[], wire=b"{}", dialect="e", whole=True)]):
        assert own_bytes(frames, "d") == b""
