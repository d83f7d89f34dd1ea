"""Results as messages of their own, and as parts of what the user says."""

from __future__ import annotations

from typing import Any

from providers.dialects.turns import messages_of, turns_of
from providers.types import Call, Message, Text

RESULT = Message(role="tool", call_id="a", content="x")
CALL = Call("a", "f", "{}")


def test_a_turn_becomes_messages():
    assert messages_of("user", [RESULT, Text("go on")]) == [RESULT, Message(role="user", content=(Text("go on"),))]
    assert messages_of("user", [Text("first"), RESULT]) == [Message(role="user", content=(Text("first"),)), RESULT]
    assert messages_of("assistant", [CALL, Text("I look")]) == [Message(role="assistant", content=(Text("I look"),), calls=(CALL,))]
    assert messages_of("assistant", [CALL]) == [Message(role="assistant", calls=(CALL,))]
    assert messages_of("user", []) == [Message(role="user", content=())]


def test_messages_become_turns():
    def content(message: Message, path: str) -> str | list[Any]:
        return message.content if isinstance(message.content, str) else [path, *(message.content or ())]

    turns = [
        Message(role="system", content="s"),
        Message(role="user", content="hi"),
        Message(role="assistant", content=(), calls=(CALL,)),
        RESULT,
        RESULT,
        Message(role="user", content=(Text("go on"),)),
        Message(role="developer", content="d"),
        Message(role="assistant", content=""),
    ]
    system, found = turns_of(turns, lambda message, path: (path, message.content), content)
    assert system == [turns[0], turns[6]]
    assert found == [
        ("user", "hi"),
        ("assistant", ["messages[2]"]),
        ("user", [("messages[3]", "x"), ("messages[4]", "x"), "messages[5]", Text("go on")]),
    ]
