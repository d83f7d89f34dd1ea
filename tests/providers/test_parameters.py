"""What may be told of a request's parameters: numbers and words of fixed lists, whatever a client writes, and never a text of its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects import DIALECTS
from providers.parameters import CHOICES, EFFORTS, FORMATS, LOOKED_AT, MEMBERS, RAW_MOST, TOLD_MOST, WORDS, note, read, told_names
from providers.types import Request

SECRET = "my mother's maiden name"
TOOL = {"type": "function", "function": {"name": SECRET, "parameters": {"type": "object"}}}


def chat(**fields: Any) -> Request:
    body = {"model": "assistant", "messages": [{"role": "user", "content": SECRET}], **fields}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body))


def told(request: Request) -> dict[str, Any]:
    return dict(read(note(request))[0])


def test_numbers_words_kinds_and_counts() -> None:
    assert told(chat()) == {}, "what was left out is not told"
    assert told(chat(temperature=0, max_completion_tokens=1024, n=2, tools=[TOOL, TOOL])) == {
        "temperature": 0,
        "max_tokens": 1024,
        "n": 2,
        "tools": 2,
    }
    asked = chat(top_p=0.9, seed=2**63 - 1, reasoning_effort="low", tool_choice="auto", stop=[SECRET, "b"], logit_bias={"5": 1}, top_k=4)
    assert told(asked) == {
        "top_p": 0.9,
        "seed": 2**63 - 1,
        "reasoning_effort": "low",
        "tool_choice": "auto",
        "stop": 2,
        "logit_bias": 1,
        "top_k": 4,
    }
    named = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": SECRET}}, logprobs=None, parallel_tool_calls=False)
    assert told(named) == {"tools": 1, "tool_choice": "function", "parallel_tool_calls": False}
    assert told(chat(reasoning_effort=SECRET, verbosity=SECRET, user=SECRET, metadata={"a": SECRET})) == {
        "reasoning_effort": "other",
        "verbosity": "other",
    }


def test_a_schema_is_long_and_told_by_its_kind() -> None:
    schema = {"name": "s", "schema": {"type": "object", "description": SECRET * 20}}
    assert told(chat(response_format={"type": "json_schema", "json_schema": schema})) == {"response_format": "json_schema"}
    assert told(chat(response_format={"type": "json_object"})) == {"response_format": "json_object"}
    assert told(chat(stop=[SECRET * 20])) == {"stop": "set"}
    noted = note(chat(stop=[SECRET * 20], tools=[TOOL]))
    assert all(len(raw) <= RAW_MOST for _, raw in noted.raws) and SECRET not in repr(noted)


def test_other_languages_say_it_in_their_words() -> None:
    body = {"model": "m", "input": SECRET, "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}, "verbosity": "low"}}
    asked = DIALECTS["openai_responses"].decode_request(msgspec.json.encode(body | {"max_output_tokens": 9}))
    assert told(asked) == {"max_tokens": 9, "reasoning.effort": "high", "text": "text", "text.verbosity": "low"}
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": SECRET}], "top_k": 3, "stop_sequences": [SECRET]}
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "any"}}
    asked = DIALECTS["anthropic_messages"].decode_request(msgspec.json.encode(body | more))
    assert told(asked) == {
        "max_tokens": 5,
        "top_k": 3,
        "stop_sequences": 1,
        "thinking": "enabled",
        "thinking.budget_tokens": 1024,
        "tool_choice": "any",
    }


def test_names_of_what_was_dropped_are_those_of_a_language() -> None:
    assert told_names(("logit_bias", "messages.name", "tools.cache_control", "messages.image_url.detail", "logit_bias")) == (
        *("logit_bias", "messages.name", "tools.cache_control", "messages.image_url.detail"),
    )
    assert told_names((f"messages.{SECRET}", f"reasoning.{SECRET}", SECRET, f"{SECRET}.name", f"messages.{SECRET}.x")) == (
        *("messages.…", "reasoning.…", "…"),
    )
    assert len(told_names(tuple(f"messages.{n}" for n in range(500)) + tuple(LOOKED_AT))) <= TOLD_MOST


WORDS_TOLD = {"other", "set", *EFFORTS, *FORMATS, *CHOICES, *MEMBERS["thinking"][0][1]} | {word for some in WORDS.values() for word in some}  # type: ignore[misc]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "effort", "format", "verbosity", "x"]), inner),
    max_leaves=6,
)


@given(fields=st.dictionaries(st.sampled_from(sorted(LOOKED_AT)), anything, max_size=5))
def test_whatever_a_client_writes_only_words_of_ours_are_told(fields: dict[str, Any]) -> None:
    raws = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    parameters, _ = read(note(Request(dialect="openai_chat", fields=raws, model="m")))
    assert all(isinstance(value, int | float) or value in WORDS_TOLD for _, value in parameters)
    assert all(name.partition(".")[0] in LOOKED_AT for name, _ in parameters)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(parameters), type=tuple[tuple[str, bool | int | float | str], ...]) == parameters


@pytest.mark.parametrize("raw", [b"1e999", b"99999999999999999999999", b"[", b"\xff", b"-"])
def test_what_is_no_number_of_ours_is_other(raw: bytes) -> None:
    assert told(Request(dialect="openai_chat", fields={"top_k": msgspec.Raw(raw)}, model="m")) == {"top_k": "other"}
