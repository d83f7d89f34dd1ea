"""Answers of the messages language to events: blocks of every kind, streams that break, bytes that pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.anthropic_messages.answers import NAME, StreamDecoder, decode_answer
from providers.errors import BadAnswer, ContextTooLong, Cut, ProviderError, Unavailable
from providers.types import Event, Extra, Failed, Finished, Frame, Metered, ReasoningDelta, Started, TextDelta, ToolCallDelta, Usage

STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


def event(**data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), json.dumps(data, ensure_ascii=False).encode())


def start(index: int, **block: Any) -> bytes:
    return event(type="content_block_start", index=index, content_block=block)


def delta(index: int, kind: str, **members: Any) -> bytes:
    return event(type="content_block_delta", index=index, delta={"type": kind, **members})


def stop(index: int) -> bytes:
    return event(type="content_block_stop", index=index)


def end(reason: str = "end_turn", sequence: str | None = None, **usage: Any) -> bytes:
    return event(type="message_delta", delta={"stop_reason": reason, "stop_sequence": sequence}, usage=usage or {"output_tokens": 15})


BEGIN = event(
    type="message_start", message={"id": "msg_1", "model": "claude-x", "content": [], "usage": {"input_tokens": 25, "output_tokens": 1}}
)
PING = event(type="ping")
HEAD: list[Event] = [Started("msg_1", "claude-x"), Metered(Usage(input=25, output=1))]
TAIL: list[Event] = [Finished("stop"), Metered(Usage(input=25, output=15))]


def decoded(*pieces: bytes) -> list[Event]:
    decoder = StreamDecoder()
    events = [one for piece in pieces for one in decoder.feed(piece).events]
    return events + decoder.close().events


def body(*events: bytes, tail: bytes = b"") -> bytes:
    return b"".join([BEGIN, PING, *events, tail or end(), STOP])


def test_text():
    events = decoded(body(start(0, type="text", text=""), delta(0, "text_delta", text="Hé"), delta(0, "text_delta", text="y"), stop(0)))
    assert events == [*HEAD, TextDelta("Hé"), TextDelta("y"), *TAIL]


def test_g15_calls_count_from_zero_whatever_their_block():
    call = {"type": "tool_use", "name": "f", "input": {}}
    events = decoded(
        body(
            start(0, type="text", text=""),
            delta(0, "text_delta", text="I look"),
            stop(0),
            start(1, id="a", **call),
            delta(1, "input_json_delta", partial_json=""),
            delta(1, "input_json_delta", partial_json='{"x":'),
            delta(1, "input_json_delta", partial_json="1}"),
            stop(1),
            start(2, id="b", **call),
            delta(2, "input_json_delta", partial_json=""),
            stop(2),
            tail=end("tool_use"),
        )
    )
    assert [one for one in events if isinstance(one, ToolCallDelta)] == [
        ToolCallDelta(0, "", "a", "f"),
        ToolCallDelta(0, '{"x":'),
        ToolCallDelta(0, "1}"),
        ToolCallDelta(1, "", "b", "f"),
        ToolCallDelta(1, "{}"),  # G35
    ]
    assert Finished("tool_calls") in events


def test_thinking_its_signature_and_what_is_hidden():
    events = decoded(
        body(
            start(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="hm"),
            delta(0, "signature_delta", signature="sig=="),
            stop(0),
            start(1, type="redacted_thinking", data="xyz"),
            stop(1),
        )
    )
    assert events == [*HEAD, ReasoningDelta("hm"), ReasoningDelta(signature="sig=="), ReasoningDelta(redacted="xyz"), *TAIL]


def test_blocks_and_citations_of_this_language_alone():
    citation = {"type": "char_location", "cited_text": "x"}
    events = decoded(
        body(
            start(0, type="server_tool_use", id="s", name="web_search", input={}),
            delta(0, "input_json_delta", partial_json='{"q":'),
            delta(0, "input_json_delta", partial_json='"x"}'),
            stop(0),
            start(1, type="web_search_tool_result", tool_use_id="s", content=[]),
            stop(1),
            start(2, type="text", text=""),
            delta(2, "citations_delta", citation=citation),
            delta(2, "text_delta", text="x"),
            stop(2),
        )
    )
    blocks = [(one.kind, json.loads(one.raw)) for one in events if isinstance(one, Extra)]
    assert blocks == [
        ("block", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}),
        ("block", {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        ("citation", citation),
    ]


@pytest.mark.parametrize(
    ("reason", "sequence", "expected"),
    [
        ("end_turn", None, Finished("stop")),
        ("stop_sequence", "END", Finished("stop", 0, "END")),
        ("max_tokens", None, Finished("length")),
        ("model_context_window_exceeded", None, Finished("length")),
        ("tool_use", None, Finished("tool_calls")),
        ("refusal", None, Finished("content_filter")),
        ("pause_turn", None, Finished("pause_turn")),
    ],
)
def test_why_it_ended(reason: str, sequence: str | None, expected: Finished):
    assert expected in decoded(body(tail=end(reason, sequence)))
    whole = {"id": "m", "model": "c", "content": [], "stop_reason": reason, "stop_sequence": sequence, "usage": {"output_tokens": 1}}
    assert expected in decode_answer(json.dumps(whole).encode()).events


def test_g24_usage_is_a_running_total():
    assert decoded(body())[-1] == Metered(Usage(input=25, output=15))
    full = end(input_tokens=30, cache_read_input_tokens=7, cache_creation_input_tokens=0, output_tokens=16)
    assert decoded(body(tail=full))[-1] == Metered(Usage(input=30, cache_read=7, output=16))


def test_bytes_go_on_but_for_the_end_marker():
    decoder = StreamDecoder()
    frame = decoder.feed(body() + b"event: junk\ndata: {}\n\n")
    assert frame.wire == BEGIN + PING + end()
    assert decoder.done and decoder.feed(b"x") == Frame(events=[], dialect=NAME) and decoder.close().events == []


def test_events_without_their_name_get_it():
    nameless = b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}\n\n'
    frame = StreamDecoder().feed(BEGIN + nameless + b": comment\n\n" + b"event: odd\n\n")
    assert frame.wire == BEGIN + b"event: content_block_start\n" + nameless + b": comment\n\n"


def test_a_mark_of_another_language_ends_it_too():
    decoder = StreamDecoder()
    frame = decoder.feed(BEGIN + end() + b"event: data\ndata: [DONE]\n\n")
    assert decoder.done and frame.wire == BEGIN + end()
    with pytest.raises(Cut):
        StreamDecoder().feed(BEGIN + b"data: [DONE]\n\n")


def test_g30_an_error_before_anything_was_said_is_raised():
    error = event(type="error", error={"type": "overloaded_error", "message": "Overloaded"})
    with pytest.raises(Unavailable):
        StreamDecoder().feed(error)
    decoder = StreamDecoder()
    decoder.feed(BEGIN + PING)
    with pytest.raises(Unavailable):
        decoder.feed(error)
    with pytest.raises(ContextTooLong):
        decode_answer(b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 5 tokens > 4 maximum"}}')
    with pytest.raises(ProviderError):
        StreamDecoder().feed(b"event: error\ndata: not json\n\n")


def test_an_error_after_something_was_said_ends_the_events():
    said = BEGIN + start(0, type="text", text="") + delta(0, "text_delta", text="a")
    frame = StreamDecoder().feed(said + event(type="error", error={"type": "overloaded_error", "message": "Overloaded"}) + PING)
    assert isinstance(frame.events[-1], Failed) and isinstance(frame.events[-1].error, Unavailable)
    assert frame.wire == said


def test_g08_a_stream_that_just_ends_is_cut():
    decoder = StreamDecoder()
    decoder.feed(BEGIN + start(0, type="text", text="") + delta(0, "text_delta", text="a"))
    last = decoder.close().events[-1]
    assert isinstance(last, Failed) and isinstance(last.error, Cut)
    with pytest.raises(Cut):
        decoded(BEGIN)
    assert decoded(BEGIN + end()) == [*HEAD, *TAIL]  # only the marker is missing


def test_one_unreadable_event_does_not_cost_the_rest():
    odd = b"event: content_block_delta\ndata: {\n\n"
    decoder = StreamDecoder()
    frame = decoder.feed(BEGIN + start(0, type="text", text="") + odd + delta(0, "text_delta", text="a") + stop(0) + end())
    assert TextDelta("a") in frame.events and odd not in frame.wire


def test_a_whole_answer():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Two.", "citations": [{"a": 1}]},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "é"}},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    whole = {
        "type": "message",
        "id": "m",
        "model": "c",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    raw = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
    frame = decode_answer(raw)
    assert (frame.whole, frame.wire) == (True, raw)
    assert frame.events == [
        Started("m", "c"),
        ReasoningDelta("hm", 0, "s"),
        TextDelta("Two."),
        Extra(NAME, "citation", '{"a":1}'),
        ToolCallDelta(0, '{"x":"é"}', "a", "f"),
        ToolCallDelta(1, "", "b", "f"),
        ToolCallDelta(1, "{}"),
        Finished("tool_calls"),
        Metered(Usage(input=1, output=2)),
    ]


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"content": 5}', b"\xff"])
def test_what_is_no_answer(raw: bytes):
    with pytest.raises(BadAnswer):
        decode_answer(raw)


@given(st.integers(1, 400), st.booleans())
def test_g40_any_cut_gives_the_same_events(at, crlf):
    whole = body(
        start(0, type="text", text=""),
        delta(0, "text_delta", text="漢字 🎉"),
        stop(0),
        start(1, type="tool_use", id="a", name="f", input={}),
        delta(1, "input_json_delta", partial_json='{"é": 1}'),
        stop(1),
    )
    whole = whole.replace(b"\n", b"\r\n") if crlf else whole
    pieces = [whole[i : i + at] for i in range(0, len(whole), at)]
    assert decoded(*pieces) == decoded(whole)
