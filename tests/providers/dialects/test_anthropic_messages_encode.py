"""Answers to a client of the messages language: bytes that go on untouched, and answers written from events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.anthropic_messages.answers import NAME, StreamDecoder, decode_answer
from providers.dialects.anthropic_messages.encode import StreamEncoder, encode_answer
from providers.dialects.anthropic_messages.errors import stream_error
from providers.dialects.anthropic_messages.requests import decode_request
from providers.errors import Cut
from providers.types import (
    Event,
    Extra,
    Failed,
    Finished,
    Frame,
    Metered,
    ReasoningDelta,
    Request,
    Started,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from tests.fakes.upstream import FakeUpstream, body_reply, sse_reply

STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def asked(**members: Any) -> Request:
    return decode_request(
        json.dumps({"model": "route", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **members}).encode()
    )


TWO_CALLS: list[Event] = [
    Started("c1", "m", 7),
    ReasoningDelta("hm"),
    ReasoningDelta(signature="s=="),
    TextDelta("I look"),
    ToolCallDelta(0, "", "x", "f"),
    ToolCallDelta(0, '{"a":'),
    ToolCallDelta(0, "1}"),
    ToolCallDelta(1, "", "y", "g"),
    Finished("tool_calls"),
    Metered(Usage(input=3, cache_read=2, output=4, reasoning=1)),
]


def stream(events: list[Event], cost: str | None = None) -> bytes:
    encoder = StreamEncoder(asked(stream=True), "id1")
    return b"".join(encoder.encode(Frame(events=[event])) for event in events) + encoder.end(cost)


def parsed(data: bytes) -> list[Any]:
    found = []
    for block in data.split(b"\n\n")[:-1]:
        if not block.startswith(b":"):
            name, _, body = block.partition(b"\ndata: ")
            found.append(json.loads(body))
            assert name == b"event: " + found[-1]["type"].encode()
    return found


def test_frames_of_the_same_language_go_on_untouched():
    encoder = StreamEncoder(asked(stream=True), "id1")
    assert encoder.encode(Frame(events=[TextDelta("a")], wire=b"event: x\ndata: {}\n\n", dialect=NAME)) == b"event: x\ndata: {}\n\n"
    assert encoder.encode(Frame(events=[], wire=b": ping\n\n", dialect=NAME)) == b": ping\n\n"
    assert encoder.end("0.000123000") == b": tollway-cost-usd 0.000123000\n\n" + STOP
    assert encode_answer([Frame(events=[], wire=b'{"as":"it came"}', dialect=NAME, whole=True)], asked()) == b'{"as":"it came"}'


def test_blocks_have_their_own_indexes_and_one_is_open_at_a_time():
    found = parsed(stream(TWO_CALLS, "0.1"))
    assert [(e["type"], e.get("index")) for e in found] == [
        ("message_start", None),
        *[("content_block_start", 0), ("content_block_delta", 0), ("content_block_delta", 0), ("content_block_stop", 0)],
        *[("content_block_start", 1), ("content_block_delta", 1), ("content_block_stop", 1)],
        *[("content_block_start", 2), ("content_block_delta", 2), ("content_block_delta", 2), ("content_block_stop", 2)],
        *[("content_block_start", 3), ("content_block_stop", 3)],
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert found[0]["message"] | {"usage": None} == {
        "id": "c1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": None,
    }
    assert found[8]["content_block"] == {"type": "tool_use", "id": "x", "name": "f", "input": {}}


def test_real_input_tokens_come_with_the_end():
    found = parsed(stream(TWO_CALLS))
    assert found[0]["message"]["usage"]["input_tokens"] == 0
    assert found[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert found[-2]["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
    }


def test_a_whole_answer_from_events():
    answer = json.loads(encode_answer([Frame(events=TWO_CALLS[:5]), Frame(events=TWO_CALLS[5:])], asked()))
    assert (answer["id"], answer["type"], answer["role"], answer["model"]) == ("c1", "message", "assistant", "m")
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "y", "name": "g", "input": {}},
    ]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("tool_use", None)


@pytest.mark.parametrize(
    ("event", "reason", "sequence"),
    [
        (Finished("stop"), "end_turn", None),
        (Finished("stop", 0, "END"), "stop_sequence", "END"),
        (Finished("length"), "max_tokens", None),
        (Finished("content_filter"), "refusal", None),
        (Finished("pause_turn"), "pause_turn", None),
        (Finished("news"), "end_turn", None),
    ],
)
def test_why_it_ended(event: Finished, reason: str, sequence: str | None):
    answer = json.loads(encode_answer([Frame(events=[TextDelta("a"), event, Finished("length")])], asked()))
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_g35_a_call_without_arguments_is_an_empty_object(arguments: str):
    events: list[Event] = [ToolCallDelta(0, arguments, "x", "f"), Finished("tool_calls")]
    assert json.loads(encode_answer([Frame(events=events)], asked()))["content"][0]["input"] == {}
    assert [e["type"] for e in parsed(stream(events))][1:3] == ["content_block_start", "content_block_stop"]


def test_other_choices_and_other_languages_extras_are_left_out():
    events: list[Event] = [TextDelta("a"), TextDelta("b", 1), Extra("other", "block", "{}"), Finished("length", 1), Finished("stop")]
    answer = json.loads(encode_answer([Frame(events=events)], asked()))
    assert answer["content"] == [{"type": "text", "text": "a"}] and answer["stop_reason"] == "end_turn"


def test_a_failure_writes_nothing_of_its_own_and_ids_are_made():
    assert StreamEncoder(asked(stream=True), "i").encode(Frame(events=[Failed(Cut("gone"))])) == b""
    assert parsed(stream([TextDelta("a")]))[0]["message"]["id"] == "msg_id1"
    answer = json.loads(encode_answer([Frame(events=[ToolCallDelta(0, "{}", None, "f")])], asked()))
    assert answer["id"].startswith("msg_") and answer["content"][0]["id"].startswith("toolu_") and answer["model"] == "route"


async def test_the_official_client_reads_what_is_written_from_events():
    streamed = sse_reply([stream(TWO_CALLS, "0.000123000")], done=False)
    begun = StreamEncoder(asked(stream=True), "i").encode(Frame(events=[TextDelta("part")]))
    failing = sse_reply([begun, stream_error("gone", "upstream_error", None, None)], done=False)
    whole = body_reply(encode_answer([Frame(events=TWO_CALLS)], asked()), headers={"content-type": "application/json"})
    ask: Any = {"model": "route", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        FakeUpstream(streamed, failing, whole) as server,
        AsyncAnthropic(base_url=server.url, api_key="x", max_retries=0) as client,
    ):
        async with client.messages.stream(**ask) as events:
            final = await events.get_final_message()
        texts = []
        with pytest.raises(APIStatusError, match="gone"):
            async for one in await client.messages.create(**ask, stream=True):
                texts += [one.delta.text] if one.type == "content_block_delta" and one.delta.type == "text_delta" else []
        assert texts == ["part"]
        answer = await client.messages.create(**ask)
    for got in (final, answer):
        assert [block.type for block in got.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block.input for block in got.content if block.type == "tool_use"] == [{"a": 1}, {}]
        assert (got.stop_reason, got.usage.input_tokens, got.usage.cache_read_input_tokens, got.usage.output_tokens) == (
            "tool_use",
            3,
            2,
            5,
        )


# ---- decode(encode(x)) == x ---------------------------------------------------------------------------------------------------------
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
blocks = st.just(Extra(NAME, "block", '{"type":"server_tool_use","id":"s","input":{"q":1}}'))
citations = st.just(Extra(NAME, "citation", '{"cited_text":"x"}'))
thoughts = st.tuples(words, words).map(lambda pair: [ReasoningDelta(pair[0]), ReasoningDelta(signature=pair[1])])
pieces = st.one_of(
    words.map(lambda text: [TextDelta(text)]),
    thoughts,
    st.builds(ReasoningDelta, redacted=words).map(lambda event: [event]),
    blocks.map(lambda event: [event]),
    citations.map(lambda event: [TextDelta("x"), event]),
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = [Started("c1", "m")]
    for group in draw(st.lists(pieces, max_size=5)):
        events += group
    for index in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(st.dictionaries(words, words, max_size=2)))
        cut = draw(st.integers(0, len(arguments)))
        events += [
            ToolCallDelta(index, "", f"id{index}", draw(words)),
            ToolCallDelta(index, arguments[:cut]),
            ToolCallDelta(index, arguments[cut:]),
        ]
    events.append(
        draw(
            st.sampled_from(
                [Finished("stop"), Finished("stop", 0, "END"), Finished("length"), Finished("tool_calls"), Finished("pause_turn")]
            )
        )
    )
    counts = st.integers(0, 99)
    return [
        *events,
        Metered(draw(st.builds(Usage, input=counts, cache_read=counts, cache_write_1h=counts, output=counts, reasoning=counts))),
    ]


def gist(events: list[Event]) -> list[Any]:
    """What an answer says, in order, whatever its pieces: neighbours of a kind are one."""
    said: list[Any] = []
    calls: dict[int, list[Any]] = {}
    for event in events:
        last = said[-1] if said else [None]
        if isinstance(event, TextDelta):
            said.append(["text", event.text]) if last[0] != "text" else last.append(last.pop() + event.text)
        elif isinstance(event, ReasoningDelta):
            kind = "signature" if event.signature else "redacted" if event.redacted else "thinking"
            if event.text and event.signature:
                said.append(["thinking", event.text])
            said.append([kind, event.signature or event.redacted or event.text])
        elif isinstance(event, ToolCallDelta):
            if event.index not in calls:
                calls[event.index] = ["call", event.id, event.name, ""]
                said.append(calls[event.index])
            calls[event.index][3] += event.arguments
        elif isinstance(event, Extra):
            said.append([event.kind, json.loads(event.raw)])
        elif isinstance(event, Finished | Started):
            said.append([event])
    for call in calls.values():
        call[3] = json.loads(call[3])
    usage = [event.usage for event in events if isinstance(event, Metered)]
    return [*said, usage[-1]]


@given(answers(), st.integers(1, 50))
def test_streams_survive_encoding_and_decoding_at_any_cut(events, at):
    data = stream(events)
    decoder = StreamDecoder()
    decoded = [one for i in range(0, len(data), at) for one in decoder.feed(data[i : i + at]).events]
    assert gist(decoded + decoder.close().events) == gist(events)


@given(answers())
def test_a_whole_answer_is_its_stream_collected(events):
    body = encode_answer([Frame(events=events)], asked())
    streamed = StreamDecoder().feed(stream(events)).events
    assert json.loads(encode_answer([Frame(events=streamed)], asked())) == json.loads(body)
    assert json.loads(encode_answer([Frame(events=decode_answer(body).events)], asked())) == json.loads(body)
