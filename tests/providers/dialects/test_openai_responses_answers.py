"""Answers of servers of the responses language, whole and streamed, become the same events; their bytes stay as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_responses.answers import NAME, StreamDecoder, decode_answer
from providers.errors import BadAnswer, ContentFiltered, Cut, ProviderError, RateLimited, Rejected, ServerFailed
from providers.types import Event, Extra, Failed, Finished, Frame, Metered, ReasoningDelta, Started, TextDelta, ToolCallDelta, Usage
from tests.fakes.responses import call, event, reasoning, response, stream, text

ENCRYPTED = 'tollway:openai_responses:{"encrypted_content":"gAAA"}'
METERED = Metered(Usage(input=20, cache_read=5, output=5, reasoning=10))


def whole(answer: Any) -> list[Event]:
    frame = decode_answer(json.dumps(answer).encode())
    assert frame.whole and frame.dialect == NAME
    return frame.events


def fed(data: bytes, size: int | None = None) -> list[Frame]:
    decoder = StreamDecoder()
    frames = []
    for at in range(0, len(data), size or len(data)):
        frames.append(decoder.feed(data[at : at + (size or len(data))]))
        if decoder.done:
            break
    return [*frames, decoder.close()]


def told(frames: list[Frame]) -> list[Event]:
    """The events, pieces of one text or call put together."""
    found: list[Event] = []
    for one in [one for frame in frames for one in frame.events]:
        last = found[-1] if found else None
        if isinstance(one, TextDelta) and isinstance(last, TextDelta) and one.refusal == last.refusal:
            found[-1] = TextDelta(last.text + one.text, 0, last.logprobs, one.refusal)
        elif isinstance(one, ReasoningDelta) and isinstance(last, ReasoningDelta) and one.text and last.text:
            found[-1] = ReasoningDelta(last.text + one.text)
        elif isinstance(one, ToolCallDelta) and isinstance(last, ToolCallDelta) and one.index == last.index:
            found[-1] = ToolCallDelta(one.index, last.arguments + one.arguments, last.id, last.name)
        else:
            found.append(one)
    return found


# ---- one answer, whole and streamed -------------------------------------------------------------------------------------------------
ANSWERS: dict[str, tuple[tuple[dict[str, Any], ...], list[Event]]] = {
    "text": ((text("Hello"),), [TextDelta("Hello"), Finished("stop")]),
    "reasoning, then two calls": (
        (reasoning("hm", "gAAA"), call("c1", "f", '{"a":1}'), call("c2", "g", "")),
        [
            ReasoningDelta("hm"),
            ReasoningDelta(signature=ENCRYPTED),
            ToolCallDelta(0, '{"a":1}', "c1", "f"),
            ToolCallDelta(1, "{}", "c2", "g"),
            Finished("tool_calls"),
        ],
    ),
    "hidden reasoning": ((reasoning("", "gAAA"), text("4")), [ReasoningDelta(redacted=ENCRYPTED), TextDelta("4"), Finished("stop")]),
    "two summaries": (
        (
            {**reasoning("a"), "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
            {**text("x"), "id": "msg_2"},
        ),
        [ReasoningDelta("a\n\nb"), TextDelta("x"), Finished("stop")],
    ),
    "refusal": (
        ({**text(""), "content": [{"type": "refusal", "refusal": "I can't."}]},),
        [TextDelta("I can't.", refusal=True), Finished("stop")],
    ),
    "server tools and citations": (
        (
            {"id": "ws_1", "type": "web_search_call", "status": "completed"},
            text("cited", annotations=[{"type": "url_citation", "url": "u"}]),
        ),
        [
            Extra(NAME, "item", '{"id":"ws_1","type":"web_search_call","status":"completed"}'),
            TextDelta("cited"),
            Extra(NAME, "annotation", '{"type":"url_citation","url":"u"}'),
            Finished("stop"),
        ],
    ),
    "nothing": ((), [Finished("stop")]),
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_whole_and_streamed_are_the_same(name: str) -> None:
    output, expected = ANSWERS[name]
    expected = [Started("resp_1", "gpt-x", 7), *expected[:-1], METERED, expected[-1]]
    assert whole(response(*output)) == expected
    for size in (None, 1, 2, 3):
        assert told(fed(b"".join(stream(*output)), size)) == expected
    # a server that streams nothing but the end, and one that streams items whole
    assert told(fed(b"".join(event(0, type="response.completed", response=response(*output)) for _ in range(1)))) == expected
    lean = [one for one in stream(*output) if b"delta" not in one and b"annotation.added" not in one]
    assert told(fed(b"".join(lean))) == expected


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        (None, "length"),
        ({"reason": "odd"}, "odd"),
    ],
)
def test_why_an_answer_is_incomplete(details: Any, reason: str) -> None:
    members: dict[str, Any] = {"incomplete_details": details}
    assert whole(response(text("Hel"), status="incomplete", **members))[-1] == Finished(reason)
    frames = fed(b"".join(stream(text("Hel"), end="incomplete", **members)))
    assert told(frames)[-1] == Finished(reason)


def test_log_probabilities_are_as_chat_completions_have_them() -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    expected = TextDelta("a", 0, json.dumps({"content": [entry]}, separators=(",", ":")))
    assert whole(response(text("a", logprobs=[entry])))[1] == expected
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "a", "logprobs": [entry]}
    assert fed(stream()[0] + event(1, **delta) + stream(text("a"))[-1])[0].events[1] == expected


def test_reasoning_that_is_told_twice_counts_once() -> None:
    item = {**reasoning("short"), "content": [{"type": "reasoning_text", "text": "long"}]}
    assert whole(response(item))[1] == ReasoningDelta("long")
    events = [
        event(1, type="response.output_item.added", output_index=0, item={**item, "summary": [], "content": []}),
        event(2, type="response.reasoning_text.delta", output_index=0, content_index=0, delta="long"),
        event(3, type="response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="short"),
        event(4, type="response.output_item.done", output_index=0, item=item),
    ]
    assert told(fed(b"".join([stream()[0], *events, stream(item)[-1]])))[1:-2] == [ReasoningDelta("long")]


def test_parallel_calls_that_come_interleaved() -> None:
    first, second = call("c1", "f", '{"a":1}'), call("c2", "g", '{"b":2}')
    events = [
        event(n, type="response.output_item.added", output_index=n, item={**item, "arguments": ""})
        for n, item in enumerate((first, second))
    ]
    for place, piece in ((0, '{"a"'), (1, '{"b"'), (0, ":1}"), (1, ":2}")):
        events.append(event(9, type="response.function_call_arguments.delta", output_index=place, delta=piece))
    frames = fed(b"".join([*events, event(10, type="response.completed", response=response(first, second))]))
    calls: dict[int, str] = {}
    for one in [one for frame in frames for one in frame.events if isinstance(one, ToolCallDelta)]:
        calls[one.index] = calls.get(one.index, "") + one.arguments
    assert calls == {0: '{"a":1}', 1: '{"b":2}'}


# ---- bytes --------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [None, 1, 7])
def test_every_byte_stays_and_the_last_event_waits(size: int | None) -> None:
    events = [b": comment\n\n", *stream(reasoning("hm", "gAAA"), text("Hello"))]
    frames = fed(b"".join([*events, b"data: [DONE]\n\n"]), size)
    assert b"".join(frame.wire for frame in frames) == b"".join(events[:-1])
    assert b"".join(frame.usage_wire for frame in frames) == events[-1]


def test_nothing_is_read_after_the_end() -> None:
    decoder = StreamDecoder()
    frame = decoder.feed(b"".join([*stream(text("a")), b"data: junk\n\n"]))
    assert decoder.done and frame.events[-1] == Finished("stop") and b"junk" not in frame.wire + frame.usage_wire
    assert decoder.close().events == []


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_any_chunking_gives_the_same_events(sizes: list[int]) -> None:
    data = b"".join(stream(reasoning("hm — 🙂", "gAAA"), call("c1", "f", '{"ä":1}'), text("Grüße 🙂"), pieces=4))
    decoder, frames, at = StreamDecoder(), [], 0
    for size in [*sizes, len(data)]:
        frames.append(decoder.feed(data[at : at + size]))
        at += size
    frames.append(decoder.close())
    events = [one for frame in frames for one in frame.events]
    assert events == [one for frame in fed(data) for one in frame.events]


# ---- errors -------------------------------------------------------------------------------------------------------------------------
FAILED = {"code": "rate_limit_exceeded", "message": "slow down"}


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (event(3, type="error", code="rate_limit_exceeded", message="slow down", param=None), RateLimited),
        (event(3, type="error", error={"type": "invalid_request_error", "code": "bad", "message": "m"}), Rejected),
        (event(3, type="error", code=None, message="boom"), ServerFailed),
        (event(3, type="response.failed", response=response(status="failed", error=FAILED)), RateLimited),
        (
            event(3, type="response.failed", response=response(status="failed", error={"code": "server_error", "message": "m"})),
            ServerFailed,
        ),
        (
            event(3, type="response.failed", response=response(status="failed", error={"code": "content_filter", "message": "m"})),
            ContentFiltered,
        ),
        (event(3, type="response.failed", response=response(status="failed")), ServerFailed),
        (b'event: error\ndata: {"error":{"message":"m","status_code":429}}\n\n', RateLimited),
        (b"event: error\ndata: not json\n\n", ServerFailed),
        (b"data: [DONE]\n\n", Cut),
        (b"", Cut),
    ],
)
def test_an_error_inside_a_200(broken: bytes, expected: type[ProviderError]) -> None:
    begun = stream(text("Hello"), end=None)
    with pytest.raises(expected):  # before anything that carries something: as an error of its own
        fed(b"".join(begun[:2]) + broken)
    last = [one for frame in fed(b"".join(begun) + broken) for one in frame.events][-1]
    assert isinstance(last, Failed) and type(last.error) is expected  # after it: the last event


def test_what_failed_has_its_usage_all_the_same() -> None:
    broken = event(9, type="response.failed", response=response(status="failed", error=FAILED))
    events = [one for frame in fed(b"".join(stream(text("Hello"), end=None)) + broken) for one in frame.events]
    assert events[-2] == METERED and isinstance(events[-1], Failed)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({**response(status="failed"), "error": FAILED}, RateLimited),
        (response(status="cancelled"), ServerFailed),
        ({"error": {"message": "m", "code": 429}}, RateLimited),
        ({"object": "response"}, BadAnswer),
        ([], BadAnswer),
        ({"output": 7}, BadAnswer),
    ],
)
def test_a_whole_answer_that_is_none(body: Any, expected: type[ProviderError]) -> None:
    with pytest.raises(expected):
        decode_answer(json.dumps(body).encode())


def test_unreadable_events_are_left_out_until_they_are_too_many() -> None:
    good = stream(text("Hello"))
    odd = b'event: x\ndata: {"type":7}\n\n'
    assert told(fed(b"".join([good[0], odd, *good[1:]])))[1] == TextDelta("Hello")
    with pytest.raises(BadAnswer):
        fed(good[0] + odd * 40)


def test_a_stated_cost_is_kept() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "cost_in_usd_ticks": 9918500}
    assert Metered(Usage(input=1, output=2, stated_nanousd=991850)) in whole(response(text("a"), usage=usage))
