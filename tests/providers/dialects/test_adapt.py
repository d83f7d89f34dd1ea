"""Messages for one target: what it needs is changed, everything else stays byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects.adapt import adapt
from providers.dialects.base import PLAIN, Quirks

STRICT = Quirks(system_first=True)
NINE = Quirks(call_ids="nine")


def adapted(messages: list[dict[str, Any]], quirks: Quirks) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bytes(adapt(Raw(json.dumps(messages).encode()), quirks)[0]))
    return found


def test_a_target_that_takes_everything_gets_the_same_bytes() -> None:
    raw = Raw(b'[{"role": "developer","content":  "x"}, {"role":"system", "content":"y"}]')
    assert adapt(raw, PLAIN) == (raw, ())


def test_a_leading_system_message_is_left_as_it_came() -> None:
    raw = Raw(b'[{"role": "system", "content":  "be brief"}, {"role": "user",  "content": "hi"}]')
    assert adapt(raw, STRICT)[0] is raw
    assert adapt(Raw(b'[{"role":"user","content":"hi"}]'), STRICT)[0] == Raw(b'[{"role":"user","content":"hi"}]')


def test_late_system_messages_are_merged_into_one_leading() -> None:
    found = adapted(
        [
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": "yes?"},
            {"role": "developer", "content": "in English"},
            {"role": "user", "content": "go on"},
        ],
        STRICT,
    )
    assert [message["role"] for message in found] == ["system", "user", "assistant", "user"]
    assert found[0]["content"] == "be brief\n\nin English"


def test_merged_parts_stay_parts() -> None:
    marked = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    found = adapted(
        [{"role": "system", "content": [marked]}, {"role": "user", "content": "x"}, {"role": "system", "content": "short"}], STRICT
    )
    assert found[0]["content"] == [marked, {"type": "text", "text": "short"}]


def test_the_word_in_a_text_changes_nothing() -> None:
    messages = [{"role": "user", "content": 'the word "system" and "developer"'}, {"role": "user", "name": "developer", "content": "x"}]
    assert adapted(messages, Quirks(system_first=True, roles={"developer": "system"})) == messages


def test_roles_are_mapped_and_nothing_else() -> None:
    found = adapted(
        [{"role": "developer", "content": "a", "name": "n"}, {"role": "user", "content": "b"}], Quirks(roles={"developer": "system"})
    )
    assert found == [{"role": "system", "content": "a", "name": "n"}, {"role": "user", "content": "b"}]


def test_ids_of_calls_get_nine_characters_and_stay_pairs() -> None:
    messages = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_abcdef0123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "Ab3dE6gH9", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_abcdef0123456789", "content": "1"},
        {"role": "tool", "tool_call_id": "Ab3dE6gH9", "content": "2"},
    ]
    found = adapted(messages, NINE)
    first, second = (call["id"] for call in found[1]["tool_calls"])
    assert second == "Ab3dE6gH9", "an id of the form is kept"
    assert len(first) == 9 and first.isalnum()
    assert [found[2]["tool_call_id"], found[3]["tool_call_id"]] == [first, second]
    assert adapted(messages, NINE) == found, "the same id is always written the same"


THOUGHT = {"role": "assistant", "content": "a", "reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("quirks", "members", "lost"),
    [
        (PLAIN, THOUGHT, ()),
        (Quirks(thoughts="none"), {"role": "assistant", "content": "a"}, ("messages.reasoning_content", "messages.reasoning_details")),
        (
            Quirks(thoughts="reasoning"),
            {"role": "assistant", "content": "a", "reasoning": "hm"},
            ("messages.reasoning_details",),
        ),
        (
            Quirks(thoughts="reasoning", takes=frozenset({"reasoning_details"})),
            {"role": "assistant", "content": "a", "reasoning_details": THOUGHT["reasoning_details"], "reasoning": "hm"},
            (),
        ),
    ],
)
def test_thinking_goes_by_the_name_that_the_target_knows(quirks: Quirks, members: dict[str, Any], lost: tuple[str, ...]) -> None:
    raw, names = adapt(Raw(json.dumps([THOUGHT]).encode()), quirks)
    assert (json.loads(bytes(raw)), names) == ([members], lost)


def test_thinking_that_says_nothing_is_not_named() -> None:
    raw, names = adapt(Raw(b'[{"role":"assistant","content":"a","reasoning_content":null}]'), Quirks(thoughts="none"))
    assert (json.loads(bytes(raw)), names) == ([{"role": "assistant", "content": "a"}], ())
