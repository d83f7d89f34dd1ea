"""Sealed reasoning goes back to those who can read it, unchanged, and to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DIALECTS, PLAIN
from providers.dialects.sealed import is_sealed, open_members, seal, seal_members, unseal, without_sealed
from providers.errors import Rejected
from providers.types import Target


@given(st.text())
def test_what_was_sealed_comes_out_unchanged_for_its_own_kind_alone(text: str) -> None:
    sealed = seal("mine", text)
    assert unseal(sealed, "mine") == text
    assert unseal(sealed, "others") is None
    assert is_sealed(sealed)
    assert unseal(seal("others", sealed), "others") == sealed  # in a language that seals what is sealed


def test_what_nobody_sealed() -> None:
    for text in (None, "", "EqQBCkgIARABGAIiQ==", "gAAAA"):
        assert not is_sealed(text)
        assert unseal(text, "mine") is None


def test_members_go_in_and_out_and_a_broken_seal_is_told() -> None:
    sealed = seal_members("mine", {"encrypted_content": Raw(b'"gA"'), "format": Raw(b'"x"')})
    assert open_members(sealed, "mine") == {"encrypted_content": "gA", "format": "x"}
    assert open_members(sealed, "others") is None
    for broken in ("{", "7", ""):
        with pytest.raises(Rejected, match="send it back unchanged"):
            open_members(seal("mine", broken), "mine")


SEALED = "tollway:openai_responses:{}"


def test_what_was_sealed_for_another_language_is_taken_out_and_nothing_else() -> None:
    text, call = {"type": "text", "text": SEALED}, {"type": "tool_use", "id": "t", "name": "f", "input": {"data": SEALED}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": SEALED}, text, call]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": SEALED}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}], "reasoning_details": [{"data": SEALED}]},
        {"role": "assistant", "content": "x", "reasoning_details": [{"data": SEALED}, {"signature": "EqQB"}]},
        {"type": "reasoning", "encrypted_content": SEALED, "summary": []},
        {"type": "reasoning", "encrypted_content": "gAAA", "summary": []},
    ]
    assert json.loads(bytes(without_sealed(Raw(json.dumps(messages).encode())))) == [
        messages[0],
        {"role": "assistant", "content": [text, call]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "assistant", "content": "x", "reasoning_details": [{"signature": "EqQB"}]},
        messages[6],
    ]


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("openai_chat", {"reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": SEALED}]}),
        ("anthropic_messages", {"content": [{"type": "thinking", "thinking": "hm", "signature": SEALED}, {"type": "text", "text": "a"}]}),
        ("openai_responses", {"type": "reasoning", "summary": [], "encrypted_content": "tollway:signature:EqQB"}),
    ],
)
def test_a_backend_of_the_clients_own_language_never_sees_it(language: str, said: dict[str, Any]) -> None:
    """As where a route has backends of two languages, and another answered the turn before."""
    turns = [
        {"role": "user", "content": "hi"},
        said if "type" in said else {"role": "assistant", "content": "a", **said},
        {"role": "user", "content": "b"},
    ]
    fields = {"input": turns} if language == "openai_responses" else {"messages": turns, "max_tokens": 3000}
    request = DIALECTS[language].decode_request(json.dumps({"model": "m", **fields}).encode())
    body = DIALECTS[language].encode_request(request, Target(backend="b", model="m"), PLAIN)
    assert request.sealed and b"tollway:" not in body
    assert request.dropped == (("messages.reasoning_details",) if language == "openai_chat" else ("messages.thinking",))


def test_a_turn_that_a_sealed_thought_began_goes_on_without_thinking() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": SEALED}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]},
    ]
    asked = {"model": "m", "messages": turns, "max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    request = DIALECTS["anthropic_messages"].decode_request(json.dumps(asked).encode())
    body = json.loads(DIALECTS["anthropic_messages"].encode_request(request, Target(backend="b", model="m"), PLAIN))
    assert "thinking" not in body and body["messages"][1]["content"] == [call]
    assert request.dropped == ("messages.thinking", "thinking")
