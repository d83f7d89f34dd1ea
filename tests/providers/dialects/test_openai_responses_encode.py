"""Answers to a client of the responses language: bytes that go on untouched, and answers written from events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_responses.answers import NAME, StreamDecoder, decode_answer
from providers.dialects.openai_responses.encode import StreamEncoder, encode_answer
from providers.dialects.openai_responses.errors import stream_error
from providers.dialects.openai_responses.requests import decode_request
from providers.types import (
    Event,
    Extra,
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
from tests.fakes.responses import call as vendor_call
from tests.fakes.responses import reasoning as vendor_reasoning
from tests.fakes.responses import stream as vendor_stream
from tests.fakes.responses import text as vendor_text
from tests.fakes.upstream import FakeUpstream, body_reply, sse_reply

TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]


def asked(**members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "input": "hi", **members}, separators=(",", ":")).encode())


EVENTS: list[Event] = [
    Started("resp_1", "m", 7),
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    ReasoningDelta(signature='tollway:openai_responses:{"encrypted_content":"gAAA"}'),
    TextDelta("I "),
    TextDelta("look"),
    ToolCallDelta(0, "", "x", "f"),
    ToolCallDelta(0, '{"a":'),
    ToolCallDelta(0, "1}"),
    ToolCallDelta(1, "", "y", "g"),
    Finished("tool_calls"),
    Metered(Usage(input=3, cache_read=2, output=4, reasoning=1)),
]


def streamed(events: list[Event], cost: str | None = None, **members: Any) -> bytes:
    encoder = StreamEncoder(asked(stream=True, **members), "id1")
    return b"".join(encoder.encode(Frame(events=[event])) for event in events) + encoder.end(cost)


def parsed(data: bytes) -> list[Any]:
    found = []
    for block in data.split(b"\n\n")[:-1]:
        if not block.startswith(b":"):
            name, _, body = block.partition(b"\ndata: ")
            found.append(json.loads(body))
            assert name == b"event: " + found[-1]["type"].encode()
    return found


def whole(events: list[Event], **members: Any) -> Any:
    return json.loads(encode_answer([Frame(events=events[:2]), Frame(events=events[2:])], asked(**members)))


# ---- the same language --------------------------------------------------------------------------------------------------------------
def test_frames_of_the_same_language_go_on_untouched_and_the_cost_stands_before_the_last() -> None:
    *events, last = vendor_stream(vendor_text("Hello"))
    decoder, encoder = StreamDecoder(), StreamEncoder(asked(stream=True), "id1")
    out = b"".join(encoder.encode(decoder.feed(event)) for event in [b": ping\n\n", *events, last])
    assert out == b": ping\n\n" + b"".join(events)
    assert encoder.end("0.000123000") == b": tollway-cost-usd 0.000123000\n\n" + last
    assert encode_answer([Frame(events=[], wire=b'{"as":"it came"}', dialect=NAME, whole=True)], asked()) == b'{"as":"it came"}'


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("output", "pieces_left", "due"),
    [
        ((vendor_text("one two"),), 4, ["output_text.done", "content_part.done", "output_item.done"]),
        ((vendor_reasoning("hm", "gAAA"), vendor_text("one two")), 4, ["output_text.done", "content_part.done", "output_item.done"]),
        ((vendor_text("one two"), vendor_call("c1", "f", '{"a":1}')), 3, ["function_call_arguments.done", "output_item.done"]),
        ((vendor_text("one two"),), 1, []),
    ],
)
def test_a_stream_that_is_cut_is_ended_where_the_backend_left_it(output: Any, pieces_left: int, due: list[str], together: bool) -> None:
    """With its ids, places and numbers; what it has closed is not closed again. pieces_left: events that no longer came."""
    came = vendor_stream(*output)[:-pieces_left]
    decoder, encoder = StreamDecoder(), StreamEncoder(asked(stream=True), "id1")
    sent = b"".join(encoder.encode(decoder.feed(read)) for read in ([b"".join(came)] if together else came))
    assert sent == b"".join(came)
    rest = encoder.encode(Frame(events=[Metered(Usage(input=3, output=51, estimated=True)), Finished("length")])) + encoder.end("0.1")
    assert rest.count(b": tollway-cost-usd 0.1\n\nevent: response.incomplete\n") == 1
    found = parsed(rest)
    assert [event["type"] for event in found] == [f"response.{name}" for name in (*due, "incomplete")]
    assert [event["sequence_number"] for event in found] == list(range(len(came), len(came) + len(found)))
    last, cut = found[-1]["response"], output[-1]
    assert (last["id"], last["status"], last["incomplete_details"]) == ("resp_1", "incomplete", {"reason": "max_output_tokens"})
    assert last["usage"]["output_tokens"] == 51
    assert [(item["type"], item["id"]) for item in last["output"]] == [(item["type"], item["id"]) for item in output]
    assert all(event["output_index"] == len(output) - 1 for event in found[:-1])
    said = b"".join(json.loads(event.split(b"data: ")[1]).get("delta", "").encode() for event in came if b"text.delta" in event).decode()
    assert "".join(p["text"] for item in last["output"] for p in item.get("content") or item.get("summary") or ()) == said
    if due:
        assert found[-2]["item"] == last["output"][-1]
        assert (found[-2]["item"]["id"], found[-2]["item"]["status"]) == (cut["id"], "incomplete")


# ---- from events --------------------------------------------------------------------------------------------------------------------
def test_the_sequence_of_events_is_that_of_the_official_api() -> None:
    raw = streamed(EVENTS, "0.1")
    found = parsed(raw)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [(event["type"].removeprefix("response."), event.get("output_index")) for event in found] == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("reasoning_summary_part.added", 0),
        *[("reasoning_summary_text.delta", 0)] * 2,
        ("reasoning_summary_text.done", 0),
        ("reasoning_summary_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        *[("output_text.delta", 1)] * 2,
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        *[("function_call_arguments.delta", 2)] * 2,
        ("output_item.added", 3),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("function_call_arguments.delta", 3),
        ("function_call_arguments.done", 3),
        ("output_item.done", 3),
        ("completed", None),
    ]
    assert raw.index(b": tollway-cost-usd 0.1\n\n") == raw.index(b"event: response.completed") - len(b": tollway-cost-usd 0.1\n\n")
    # what has begun is empty, and what is done is what the end repeats
    assert [event["item"].get("content", event["item"].get("summary")) for event in found if event["type"].endswith("item.added")][:2] == [
        [],
        [],
    ]
    assert [event["item"] for event in found if event["type"].endswith("item.done")] == found[-1]["response"]["output"]
    ids = {event["output_index"]: set[str]() for event in found if "output_index" in event}
    for event in found:
        if "output_index" in event:
            ids[event["output_index"]].add(event.get("item_id") or event["item"]["id"])
    assert all(len(names) == 1 for names in ids.values())


def test_the_items_of_a_whole_answer() -> None:
    answer = whole(EVENTS)
    assert [{name: value for name, value in item.items() if name != "id"} for item in answer["output"]] == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"},
        {
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "status": "completed", "call_id": "x", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call", "status": "completed", "call_id": "y", "name": "g", "arguments": "{}"},
    ]
    assert (answer["id"], answer["object"], answer["created_at"], answer["model"], answer["status"]) == (
        "resp_1",
        "response",
        7,
        "m",
        "completed",
    )
    assert answer["usage"]["input_tokens"] == 5 and answer["usage"]["input_tokens_details"]["cached_tokens"] == 2
    assert answer["usage"]["output_tokens"] == 5 and answer["usage"]["output_tokens_details"]["reasoning_tokens"] == 1
    assert (answer["store"], answer["previous_response_id"], answer["error"], answer["incomplete_details"]) == (False, None, None, None)


def test_an_answer_repeats_what_was_asked() -> None:
    said = {"instructions": "Be brief.", "tools": TOOLS, "temperature": 0.5, "metadata": {"a": "b"}, "tool_choice": "required"}
    answer = whole(EVENTS, **said)
    assert {name: answer[name] for name in said} == said
    plain = whole(EVENTS, temperature=None)
    assert (plain["instructions"], plain["tools"], plain["temperature"], plain["tool_choice"]) == (None, [], 1.0, "auto")
    assert parsed(streamed(EVENTS, **said))[0]["response"]["tools"] == TOOLS


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
        ("odd", "completed", None),
    ],
)
def test_why_it_ended(reason: str, status: str, details: Any) -> None:
    events = [Started("r", "m"), TextDelta("Hel"), Finished(reason)]
    answer = whole(events)
    assert (answer["status"], answer["incomplete_details"], answer["output"][0]["status"]) == (status, details, status)
    last = parsed(streamed(events))[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{status}", status)


def test_a_refusal_is_a_part_of_its_own() -> None:
    events = [TextDelta("Well. "), TextDelta("No", refusal=True), TextDelta("pe.", refusal=True), Finished("stop")]
    (item,) = whole(events)["output"]
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]
    assert item["content"][1] == {"type": "refusal", "refusal": "Nope."}
    found = [event for event in parsed(streamed(events)) if "refusal" in event["type"]]
    assert [(event["type"], event["content_index"]) for event in found] == [
        *[("response.refusal.delta", 1)] * 2,
        ("response.refusal.done", 1),
    ]


def test_reasoning_of_another_maker_is_sealed_for_the_way_back() -> None:
    events = [ReasoningDelta("hm"), ReasoningDelta(signature="EqQB"), ReasoningDelta(redacted="HIDDEN"), TextDelta("4"), Finished("stop")]
    first, second, _ = whole(events)["output"]
    assert (first["summary"][0]["text"], first["encrypted_content"]) == ("hm", "tollway:signature:EqQB")
    assert (second["summary"], second["encrypted_content"]) == ([], "tollway:redacted:HIDDEN")


def test_what_only_this_language_has_comes_back_and_what_only_another_has_does_not() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    citation = {"type": "url_citation", "url": "u"}
    events = [
        Extra(NAME, "item", json.dumps(search)),
        TextDelta("cited"),
        Extra(NAME, "annotation", json.dumps(citation)),
        Extra("anthropic_messages", "block", "{}"),
        Finished("stop"),
    ]
    answer = whole(events)
    assert answer["output"][0] == search
    assert answer["output"][1]["content"][0]["annotations"] == [citation]
    kinds = [event["type"] for event in parsed(streamed(events))]
    assert kinds.count("response.output_text.annotation.added") == 1 and kinds.count("response.output_item.added") == 2


def test_log_probabilities_stand_with_their_text() -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    events = [TextDelta("a", 0, json.dumps({"content": [entry]})), TextDelta("b"), Finished("stop")]
    assert whole(events)["output"][0]["content"][0]["logprobs"] == [entry]
    assert [event["logprobs"] for event in parsed(streamed(events)) if event["type"] == "response.output_text.delta"] == [[entry], []]


def test_an_answer_without_anything_and_of_several_choices_the_first() -> None:
    assert whole([Finished("stop")])["output"] == []
    assert [event["type"] for event in parsed(streamed([]))] == [f"response.{name}" for name in ("created", "in_progress", "completed")]
    assert whole([TextDelta("a"), TextDelta("b", 1), Finished("stop"), Finished("stop", 1)])["output"][0]["content"][0]["text"] == "a"


# ---- the official client ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def server() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as made:
        yield made


@pytest.fixture(scope="module")
def client(server: FakeUpstream) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="k", max_retries=0) as made:
        yield made


def test_the_official_client_puts_a_stream_together(server: FakeUpstream, client: openai.OpenAI) -> None:
    server.play(sse_reply([streamed(EVENTS, "0.1", tools=TOOLS)], done=False))
    with client.responses.stream(model="m", input="hi", tools=TOOLS) as opened:  # type: ignore[arg-type]
        kinds = [event.type for event in opened]
        final = opened.get_final_response()
    assert "response.function_call_arguments.delta" in kinds and kinds[-1] == "response.completed"
    assert final.output_text == "I look"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert final.usage is not None and final.usage.total_tokens == 10


def test_the_official_client_reads_a_whole_answer(server: FakeUpstream, client: openai.OpenAI) -> None:
    server.play(body_reply(encode_answer([Frame(events=EVENTS)], asked())))
    answer = client.responses.create(model="m", input="hi")
    assert (answer.output_text, answer.status) == ("I look", "completed")


def test_the_official_client_raises_what_broke_a_stream(server: FakeUpstream, client: openai.OpenAI) -> None:
    begun = StreamEncoder(asked(stream=True), "id1").encode(Frame(events=EVENTS[:5]))
    server.play(sse_reply([begun, stream_error("cut", "upstream_error", "upstream_cut", None)], done=False))
    with pytest.raises(openai.APIError, match="cut") as raised:
        list(client.responses.create(model="m", input="hi", stream=True))
    assert raised.value.code == "upstream_cut"


# ---- decode(encode(x)) == x ---------------------------------------------------------------------------------------------------------
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
seals = words.map(
    lambda word: "tollway:openai_responses:" + json.dumps({"encrypted_content": word}, separators=(",", ":"), ensure_ascii=False)
)
entries = st.builds(lambda word: json.dumps({"content": [{"token": word}]}, separators=(",", ":"), ensure_ascii=False), words)
spoken = st.lists(st.builds(TextDelta, text=words, logprobs=st.none() | entries), min_size=1, max_size=3)
refused = st.lists(st.builds(TextDelta, text=words, refusal=st.just(True)), min_size=1, max_size=2)
cited = st.builds(lambda word: [TextDelta(word), Extra(NAME, "annotation", '{"type":"url_citation","url":"u"}')], words)
thought = st.builds(
    lambda pieces, seal: [*map(ReasoningDelta, pieces), ReasoningDelta(signature=seal)],
    st.lists(words, min_size=1, max_size=3),
    seals | words,
)
hidden = st.builds(lambda seal: [ReasoningDelta(redacted=seal)], seals | words)
searched = words.map(
    lambda word: [Extra(NAME, "item", json.dumps({"type": "web_search_call", "id": word}, separators=(",", ":"), ensure_ascii=False))]
)
arguments = st.lists(st.sampled_from(['{"a":', "1}", '"é"', "{}"]), min_size=1, max_size=3)
usages = st.builds(Usage, input=st.integers(0, 99), cache_read=st.integers(0, 99), output=st.integers(0, 99), reasoning=st.integers(0, 99))


def numbered(calls: list[tuple[str, str, list[str]]]) -> list[Event]:
    found: list[Event] = []
    for index, (call_id, name, pieces) in enumerate(calls):
        found.append(ToolCallDelta(index, "", call_id, name))
        found += [ToolCallDelta(index, piece) for piece in pieces]
    return found


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    parts: list[list[Event]] = draw(st.lists(st.one_of(spoken, refused, cited, thought, hidden, searched), max_size=4))
    calls = draw(st.lists(st.tuples(words, words, arguments), max_size=2))
    reason = draw(st.sampled_from(["length", "content_filter", "tool_calls" if calls else "stop"]))
    body = [event for part in parts for event in part]
    return [Started("resp_1", "m", 7), *body, *numbered(calls), Metered(draw(usages)), Finished(reason)]


@given(answers())
def test_event_streams_survive_the_wire(events: list[Event]) -> None:
    decoder = StreamDecoder()
    frames = [decoder.feed(streamed(events, "0.1")), decoder.close()]
    assert [event for frame in frames for event in frame.events] == events


def told(events: list[Event]) -> list[Event]:
    """Each text once, in one piece, and what it rests on after it."""
    found: list[Event] = []
    for event in events:
        at = next((n for n in range(len(found) - 1, -1, -1) if not isinstance(found[n], Extra) or found[n].kind == "item"), None)
        last = found[at] if at is not None else None
        if at is not None and isinstance(event, TextDelta) and isinstance(last, TextDelta) and event.refusal == last.refusal:
            both = [entry for one in (last, event) if one.logprobs is not None for entry in json.loads(one.logprobs)["content"]]
            entries = json.dumps({"content": both}, separators=(",", ":"), ensure_ascii=False) if both else None
            found[at] = TextDelta(last.text + event.text, 0, entries, event.refusal)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta) and event.text and last.text:
            found[-1] = ReasoningDelta(last.text + event.text)
        elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and event.index == last.index:
            found[-1] = ToolCallDelta(event.index, last.arguments + event.arguments, last.id, last.name)
        else:
            found.append(event)
    return found


@given(answers())
def test_a_whole_answer_is_the_collected_stream(events: list[Event]) -> None:
    body = encode_answer([Frame(events=events)], asked())
    assert decode_answer(body).events == told(events)

    def without_ids(answer: Any) -> Any:
        return {**answer, "output": [{**item, "id": ""} for item in answer["output"]]}

    assert without_ids(parsed(streamed(events))[-1]["response"]) == without_ids(json.loads(body))
