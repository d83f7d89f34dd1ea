"""Token counts: the shipped vocabularies, bounds that hold, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers import tokens
from providers.dialects import DIALECTS
from providers.tokens import count_input, count_input_now, count_long, count_output, encoding_name, estimate_input, input_upper
from providers.types import Message, Request
from tests.fixtures.waiting import until


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The tokenizers, loaded on their thread as in a worker: one ahead, one because it was missed."""
    tokens.warm()
    count_output(["x"], 0, "gpt-4")
    deadline = time.monotonic() + 30
    while len(tokens._loaded) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def asked(text: str, **members: Any) -> Request:
    return DIALECTS["openai_chat"].decode_request(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **members}).encode()
    )


def test_known_counts_of_both_vocabularies():
    assert count_output(["hello", " world"], 0) == 2
    assert count_output(["tiktoken is great!"], 0, "gpt-4") == 6  # OpenAI's cookbook
    assert count_output([], 0) == 0


def test_every_piece_is_at_least_a_token():
    assert count_output(["a"] * 20, 20) == 20


def test_inputs_of_one_embedding_call_are_each_at_least_a_token():
    body = {"model": "route", "input": ["a", "b", "c", "d"]}
    request = DIALECTS["openai_embeddings"].decode_request(json.dumps(body).encode())
    assert count_input_now(request, "text-embedding-3-small") == 4


def test_long_outputs_are_sampled():
    words = "one two three four five six seven eight nine ten " * 20_000
    begun = time.monotonic()
    found = count_output([words], 1)
    assert time.monotonic() - begun < 5
    assert found == pytest.approx(200_000, rel=0.05)


async def test_a_tight_count_lies_between_the_count_and_the_bound_by_bytes():
    request = asked("The quick brown fox jumps over the lazy dog. " * 50)
    tight = await count_input(request, 1.0)
    assert 500 <= tight <= 530
    assert count_input_now(request) == tight
    assert await count_input(request, 1.5) == pytest.approx(tight * 1.5, abs=1)
    assert await count_input(request, 1000.0) == input_upper(request)
    assert tight < input_upper(request)


async def test_tools_schemas_and_media_count():
    bare = await count_input(asked("hi"), 1.0)
    tool = {"type": "function", "function": {"name": "weather", "description": "d " * 100, "parameters": {"type": "object"}}}
    assert await count_input(asked("hi", tools=[tool]), 1.0) > bare + 100
    assert await count_input(asked("hi", response_format={"type": "json_schema", "json_schema": {"x": "y " * 100}}), 1.0) > bare + 100
    image = {"type": "image_url", "image_url": {"url": "https://x"}}
    request = asked("", messages=[{"role": "user", "content": [image]}])
    assert await count_input(request, 1.0) >= tokens.MEDIA_TOKENS_UPPER
    assert estimate_input(request) >= tokens.MEDIA_TOKENS


async def test_unreadable_messages_count_by_their_bytes():
    request = asked("", messages=[{"role": "user", "content": "x", "name": 7}])
    assert await count_input(request, 1.0) == input_upper(request)
    assert count_input_now(request) == estimate_input(request)


async def test_requests_that_came_as_the_neutral_model_count_too():
    request = Request(dialect="none", fields={}, model="m", prompt_bytes=40, decoded=(Message(role="user", content="hello world"),))
    assert await count_input(request, 1.0) == 2 + tokens.MESSAGE_TOKENS + 3


async def test_g14_long_counts_do_not_block_the_loop():
    request = asked("word and 日本語 " * 100_000)  # 2 MB
    counting = [asyncio.ensure_future(count_input(request, 1.0)) for _ in range(5)]
    longest, last = 0.0, time.monotonic()
    while not all(task.done() for task in counting):
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 0.25
    assert {task.result() for task in counting} != {input_upper(request)}


async def test_a_full_queue_answers_with_the_bound_by_bytes():
    request = asked("word " * 20_000)
    counting = [asyncio.ensure_future(count_input(request, 1.0)) for _ in range(tokens.MAX_WAITING + 8)]
    found = await asyncio.gather(*counting)
    assert found.count(input_upper(request)) == 8


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_has_more_tokens_than_the_bound_by_bytes(text):
    for name in ("", "gpt-4"):
        assert count_input_now(asked(text), name) <= input_upper(asked(text))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4", "cl100k_base"),
        ("openai/gpt-3.5-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("llama-3.1-8b", "o200k_base"),
    ],
)
def test_which_vocabulary(model, name):
    assert encoding_name(model) == name


async def test_a_long_exchange_is_counted_whole_and_off_the_loop():
    words = "one two three four five six seven eight nine ten "
    assert await count_long(asked("short"), ["short"]) is None
    text = words * 4000
    found = await count_long(asked(text), [text])
    assert found is not None
    assert found[0] == pytest.approx(40_000, rel=0.01) and found[1] == pytest.approx(40_000, rel=0.01)
    assert found[0] == await count_input(asked(text), 1.0)


async def test_a_count_for_later_is_told_on_the_loop():
    told: list[int] = []
    request = asked("The quick brown fox. " * 100)
    assert tokens.count_later(request, "m", told.append)
    await until(lambda: bool(told), "the count")
    assert told == [count_input_now(request)]
    await until(lambda: not tokens._later, "its task is let go")


async def test_a_count_for_later_does_not_queue():
    gate = threading.Event()
    busy = asyncio.create_task(tokens._thread.run(gate.wait))
    await until(lambda: tokens._thread.waiting == 1, "the thread is at work")
    assert not tokens.count_later(asked("x"), "m", lambda counted: None)
    gate.set()
    await busy


def test_a_damaged_vocabulary_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "_DATA", tmp_path)
    monkeypatch.setattr(tokens, "_loaded", {})
    (tmp_path / tokens._FILES["o200k_base"][0]).write_bytes(b"x")
    with pytest.raises(RuntimeError, match="SHA-256"):
        tokens._load("o200k_base")


def test_a_schema_is_prompt_text_in_every_language() -> None:
    schema = {"type": "object", "properties": {f"property_{n}": {"type": "string"} for n in range(20)}}
    form = {"type": "json_schema", "name": "n", "schema": schema}
    said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    for dialect, fields, more in (
        ("openai_chat", said, {"response_format": {"type": "json_schema", "json_schema": form}}),
        ("openai_responses", {"input": "hi"}, {"text": {"format": form}}),
        ("anthropic_messages", said, {"output_config": {"format": form}}),
    ):
        plain, formed = (DIALECTS[dialect].decode_request(json.dumps({"model": "m", **fields, **one}).encode()) for one in ({}, more))
        assert count_input_now(formed) > count_input_now(plain) + 100
