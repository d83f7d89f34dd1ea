"""Answers to a client of the chat language: bytes that go on untouched, and answers written from events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai import APIError, AsyncOpenAI

from providers.dialects.openai_chat.answers import StreamDecoder, decode_answer
from providers.dialects.openai_chat.content import decode_messages
from providers.dialects.openai_chat.encode import StreamEncoder, encode_answer
from providers.dialects.openai_chat.errors import stream_error
from providers.dialects.openai_chat.requests import decode_request
from providers.errors import Cut
from providers.types import (
    Event,
    Failed,
    Finished,
    Frame,
    Metered,
    ReasoningDelta,
    RedactedThinking,
    Request,
    Started,
    Text,
    TextDelta,
    Thinking,
    ToolCallDelta,
    Usage,
)
from tests.fakes.upstream import FakeUpstream, body_reply, sse_reply


def asked(**members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "messages": [{"role": "user", "content": "hi"}], **members}).encode())


WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
TWO_CALLS: list[Event] = [
    Started("c1", "m", 7),
    TextDelta("I look"),
    ToolCallDelta(0, "", "x", "f"),
    ToolCallDelta(0, '{"a":'),
    ToolCallDelta(0, "1}"),
    ToolCallDelta(1, "", "y", "g"),
    Finished("tool_calls"),
    Metered(Usage(input=3, cache_read=2, output=4, reasoning=1)),
]


def stream(request: Request, events: list[Event], cost: str | None = None) -> bytes:
    encoder = StreamEncoder(request, "id1")
    return b"".join(encoder.encode(Frame(events=[event])) for event in events) + encoder.end(cost)


def chunks(data: bytes) -> list[Any]:
    pieces = [piece.removeprefix(b"data: ") for piece in data.split(b"\n\n") if piece.startswith(b"data: ")]
    assert pieces.pop() == b"[DONE]"
    return [json.loads(piece) for piece in pieces]


def test_frames_of_the_same_language_go_on_untouched():
    encoder = StreamEncoder(asked(stream=True), "id1")
    assert encoder.encode(Frame(events=[TextDelta("a")], wire=b"data: x\n\n", dialect="openai_chat")) == b"data: x\n\n"
    assert encoder.encode(Frame(events=[], wire=b": ping\n\n", dialect="openai_chat")) == b": ping\n\n"
    assert encoder.encode(Frame(events=[], dialect="openai_chat")) == b""


def test_g05_a_usage_chunk_goes_to_those_who_asked():
    frame = Frame(events=[Metered(Usage(input=1))], usage_wire=b"data: usage\n\n", dialect="openai_chat")
    assert StreamEncoder(asked(stream=True), "i").encode(frame) == b""
    encoder = StreamEncoder(asked(**WITH_USAGE), "i")
    assert encoder.encode(frame) == b"data: usage\n\n"
    assert encoder.end(None) == b"data: [DONE]\n\n"


def test_the_end_says_the_cost_in_a_comment():
    assert StreamEncoder(asked(stream=True), "i").end("0.000123000") == b": tollway-cost-usd 0.000123000\n\ndata: [DONE]\n\n"


def test_a_failure_writes_nothing_of_its_own():
    encoder = StreamEncoder(asked(stream=True), "i")
    assert encoder.encode(Frame(events=[Failed(Cut("gone"))])) == b""


def test_g15_two_calls_from_events():
    found = chunks(stream(asked(**WITH_USAGE), TWO_CALLS))
    assert {(c["id"], c["model"], c["created"], c["object"]) for c in found} == {("c1", "m", 7, "chat.completion.chunk")}
    deltas = [c["choices"][0]["delta"] for c in found if c["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [(c["index"], c.get("id"), c["function"].get("name"), c["function"]["arguments"]) for c in calls] == [
        (0, "x", "f", ""),
        (0, None, None, '{"a":'),
        (0, None, None, "1}"),
        (1, "y", "g", ""),
        (1, None, None, "{}"),
    ]
    assert [c["choices"][0]["finish_reason"] for c in found if c["choices"] and c["choices"][0]["finish_reason"]] == ["tool_calls"]
    assert (found[-1]["choices"], found[-1]["usage"]["prompt_tokens"], found[-1]["usage"]["completion_tokens"]) == ([], 5, 5)
    assert all(c["usage"] is None for c in found[:-1])


def test_usage_is_not_sent_unasked():
    assert all("usage" not in c for c in chunks(stream(asked(stream=True), TWO_CALLS)))


def test_a_whole_answer_of_the_same_language_goes_on_untouched():
    frame = Frame(events=[], wire=b'{"as":"it came"}', dialect="openai_chat", whole=True)
    assert encode_answer([frame], asked()) == b'{"as":"it came"}'


def test_a_whole_answer_from_events():
    answer = json.loads(encode_answer([Frame(events=TWO_CALLS[:3]), Frame(events=TWO_CALLS[3:])], asked()))
    assert (answer["id"], answer["object"], answer["created"], answer["model"]) == ("c1", "chat.completion", 7, "m")
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look"
    assert choice["message"]["tool_calls"] == [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "y", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0},
    }


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_g35_a_call_without_arguments_parses_to_an_empty_object(arguments):
    events: list[Event] = [ToolCallDelta(0, arguments, "x", "f"), Finished("tool_calls")]
    answer = json.loads(encode_answer([Frame(events=events)], asked()))
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    deltas = [c["choices"][0]["delta"] for c in chunks(stream(asked(stream=True), events))]
    said = "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", []))
    assert json.loads(said) == {}


def test_missing_ids_and_names_are_made():
    answer = json.loads(encode_answer([Frame(events=[ToolCallDelta(0, "{}", None, "f"), TextDelta("b", 1), Finished("stop", 1)])], asked()))
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "route"
    assert answer["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    found = chunks(stream(asked(stream=True), [TextDelta("a")]))
    assert {c["id"] for c in found} == {"chatcmpl-id1"}


def test_legacy_clients_get_a_function_call():
    request = asked(functions=[{"name": "f", "parameters": {}}])
    events: list[Event] = [ToolCallDelta(0, "", None, "f"), Finished("tool_calls")]
    choice = json.loads(encode_answer([Frame(events=events)], request))["choices"][0]
    assert (choice["finish_reason"], choice["message"]["function_call"]) == ("function_call", {"name": "f", "arguments": "{}"})
    found = [c["choices"][0] for c in chunks(stream(request, events))]
    assert [c["delta"].get("function_call") for c in found] == [None, {"name": "f", "arguments": ""}, {"arguments": "{}"}, None]
    assert found[-1]["finish_reason"] == "function_call"


def test_logprobs_of_all_pieces_are_joined():
    events: list[Event] = [
        TextDelta("a", 0, '{"content":[{"token":"a"}],"refusal":null}'),
        TextDelta("b", 0, '{"content":[{"token":"b"}],"refusal":null}'),
        Finished("stop"),
    ]
    choice = json.loads(encode_answer([Frame(events=events)], asked()))["choices"][0]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}
    found = chunks(stream(asked(stream=True), events))
    assert [c["choices"][0].get("logprobs") for c in found][1] == {"content": [{"token": "a"}], "refusal": None}


async def test_the_official_client_reads_what_is_written_from_events():
    request = asked(**WITH_USAGE)
    streamed = sse_reply([stream(request, TWO_CALLS, "0.000123000")], done=False)
    failing = sse_reply(
        [StreamEncoder(request, "i").encode(Frame(events=[TextDelta("part")])), stream_error("gone", "upstream_error", None, None)]
    )
    whole = body_reply(encode_answer([Frame(events=TWO_CALLS)], asked()), headers={"content-type": "application/json"})
    async with (
        FakeUpstream(streamed, failing, whole) as server,
        AsyncOpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hi"}]
        async with client.chat.completions.stream(model="route", messages=messages) as events:
            final = await events.get_final_completion()
        assert [(c.id, c.function.name, c.function.arguments) for c in final.choices[0].message.tool_calls or []] == [
            ("x", "f", '{"a":1}'),
            ("y", "g", "{}"),
        ]
        assert (final.choices[0].finish_reason, final.usage and final.usage.total_tokens) == ("tool_calls", 10)
        texts = []
        with pytest.raises(APIError, match="gone"):
            async for chunk in await client.chat.completions.create(model="route", messages=messages, stream=True):
                texts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
        assert texts == ["part"]
        answer = await client.chat.completions.create(model="route", messages=messages)
        assert answer.choices[0].message.content == "I look"
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 2


async def test_the_official_client_joins_streamed_thinking_and_gives_it_back():
    events: list[Event] = [
        Started("c1", "m", 7),
        ReasoningDelta("I "),
        ReasoningDelta("think"),
        ReasoningDelta("", 0, "sig"),
        ReasoningDelta("", 0, None, "hidden"),
        ReasoningDelta("", 0, None, "more"),
        TextDelta("a"),
        Finished("stop"),
    ]
    async with (
        FakeUpstream(sse_reply([stream(asked(stream=True), events)], done=False)) as server,
        AsyncOpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hi"}]
        async with client.chat.completions.stream(model="route", messages=messages) as opened:
            final = await opened.get_final_completion()
    said = final.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
    (again,) = decode_messages(Raw(json.dumps([said]).encode()))
    assert again.content == (Thinking("I think", "sig"), RedactedThinking("hidden"), RedactedThinking("more"), Text("a"))


# ---- decode(encode(x)) == x ---------------------------------------------------------------------------------------------------------
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
choice = st.integers(0, 1)
pieces = st.one_of(
    st.builds(TextDelta, words, choice, st.none(), st.booleans()),
    st.builds(ReasoningDelta, words, choice, st.none() | words, st.none() | words),
    st.builds(TextDelta, words, choice, st.just('{"content":[]}')),
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """An answer with two choices: text, reasoning and calls in any order, each finished, then the usage."""
    events: list[Event] = [Started("c1", "m", 7), *draw(st.lists(pieces, max_size=8))]
    for number in (0, 1):
        for index in range(draw(st.integers(0, 2))):
            events.append(ToolCallDelta(index, draw(words.filter(str.strip)), f"id{index}", draw(words), number))
            events += [ToolCallDelta(index, more, choice=number) for more in draw(st.lists(words, max_size=2))]
        events.append(Finished(draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter", "odd"])), number))
    return [*events, Metered(draw(st.builds(Usage, input=st.integers(0, 99), cache_read=st.integers(0, 9), output=st.integers(0, 99))))]


def gist(events: list[Event]) -> dict[str, Any]:
    """What an answer says, whatever its pieces."""
    said: dict[str, Any] = {}
    for event in events:
        if isinstance(event, TextDelta):
            name = f"{'refusal' if event.refusal else 'text'}{event.choice}"
            said[name] = said.get(name, "") + event.text
        elif isinstance(event, ReasoningDelta):
            for member, name in ((event.text, "reasoning"), (event.redacted or "", "redacted")):
                said[name, event.choice] = said.get((name, event.choice), "") + member
            if event.signature:
                said["signature", event.choice] = event.signature
        elif isinstance(event, ToolCallDelta):
            call = said.setdefault(("call", event.choice, event.index), [event.id, event.name, ""])
            call[2] += event.arguments
        elif isinstance(event, Finished):
            said["finish", event.choice] = event.reason
        elif isinstance(event, Metered):
            said["usage"] = event.usage
        elif isinstance(event, Started):
            said["started"] = event
    return {name: value for name, value in said.items() if value}


@given(answers())
def test_streams_survive_encoding_and_decoding(events):
    decoder = StreamDecoder()
    decoded = decoder.feed(stream(asked(**WITH_USAGE), events)).events
    assert gist(decoded + decoder.close().events) == gist(events)


@given(answers())
def test_whole_answers_survive_encoding_and_decoding(events):
    decoded = decode_answer(encode_answer([Frame(events=events)], asked())).events
    expected = gist(events)
    for name, value in expected.items():
        if name[0] == "call":
            value[2] = value[2].strip() or "{}"  # arguments are JSON; white space around them is not kept
    assert gist(decoded) == expected
