"""Answers of the chat language to events: every place where servers put things, and streams that break."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.openai_chat.answers import StreamDecoder, decode_answer
from providers.dialects.streams import MAX_BAD_EVENTS
from providers.errors import BadAnswer, ContextTooLong, Cut, ProviderError, RateLimited, ServerFailed
from providers.types import Failed, Finished, Frame, Metered, ReasoningDelta, Started, TextDelta, ToolCallDelta

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 16111, "completion_tokens": 2, "total_tokens": 16113, "prompt_tokens_details": {"cached_tokens": 15872}}


def event(**members: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c1", "model": "m", "created": 7, **members}, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: Any, finish: str | None = None, index: int = 0, **members: Any) -> bytes:
    return event(choices=[{"index": index, "delta": delta, "finish_reason": finish}], **members)


def run(*reads: bytes) -> Frame:
    """All reads and the end, as one frame."""
    decoder = StreamDecoder()
    frames = [*(decoder.feed(read) for read in reads), decoder.close()]
    return Frame(
        events=[e for frame in frames for e in frame.events],
        wire=b"".join(frame.wire for frame in frames),
        usage_wire=b"".join(frame.usage_wire for frame in frames),
    )


def text_of(frame: Frame, choice: int = 0) -> str:
    return "".join(e.text for e in frame.events if isinstance(e, TextDelta) and e.choice == choice)


def calls_of(frame: Frame, choice: int = 0) -> list[tuple[str | None, str | None, str]]:
    calls: list[list[Any]] = []
    for e in frame.events:
        if isinstance(e, ToolCallDelta) and e.choice == choice:
            if e.index == len(calls):
                calls.append([e.id, e.name, ""])
            calls[e.index][2] += e.arguments
    return [tuple(call) for call in calls]


def usage_of(frame: Frame) -> Any:
    return [e.usage for e in frame.events if isinstance(e, Metered)][-1]


def test_a_plain_stream():
    stream = chunk({"role": "assistant", "content": ""}) + chunk({"content": "Hé"}) + chunk({"content": "llo"}) + chunk({}, "stop")
    frame = run(stream + DONE)
    assert frame.events == [Started("c1", "m", 7), TextDelta("Hé"), TextDelta("llo"), Finished("stop")]
    assert frame.wire == stream


@pytest.mark.parametrize(
    "last",
    [
        event(choices=[], usage=USAGE),
        event(choices=None, usage=USAGE),
        event(choices=[{"index": 0, "delta": {}}], usage=USAGE),
    ],
)
def test_g05_a_chunk_with_usage_alone_is_read_and_kept_apart(last):
    before = chunk({"content": "hi"}) + chunk({}, "stop")
    frame = run(before + last + DONE)
    usage = usage_of(frame)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cache_read, usage.input) == (16111, 2, 15872, 239)
    assert (frame.wire, frame.usage_wire) == (before, last)


def test_g05_usage_on_the_finishing_chunk_stays_there():
    stream = chunk({"content": "hi"}) + chunk({}, "stop", usage=USAGE)
    frame = run(stream + DONE)
    assert (usage_of(frame).cache_read, usage_of(frame).completion_tokens) == (15872, 2)
    assert (frame.wire, frame.usage_wire) == (stream, b"")


def test_g24_running_totals_are_never_summed():
    reads = [chunk({"content": "x"}, usage={"prompt_tokens": 25, "completion_tokens": n, "total_tokens": 25 + n}) for n in range(1, 101)]
    frame = run(*reads, chunk({}, "stop"), DONE)
    assert (usage_of(frame).prompt_tokens, usage_of(frame).completion_tokens) == (25, 100)


def test_a_null_member_does_not_undo_an_earlier_count():
    frame = run(
        chunk({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": None, "total_tokens": None}),
        chunk({"content": "b"}, "stop", usage={"prompt_tokens": None, "completion_tokens": 2, "total_tokens": 7}),
        DONE,
    )
    assert (usage_of(frame).prompt_tokens, usage_of(frame).completion_tokens) == (5, 2)


def test_usage_beside_the_choices_of_groq_and_inside_a_choice():
    counts = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    groq = run(chunk({"content": "a"}), chunk({}, "stop", x_groq={"id": "r", "usage": counts}), DONE)
    inside = run(chunk({"content": "a"}), event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counts}]), DONE)
    assert usage_of(groq) == usage_of(inside)
    assert usage_of(groq).completion_tokens == 4


def test_impossible_usage_is_no_usage():
    frame = run(chunk({"content": "a"}, "stop", usage={"prompt_tokens": -500, "completion_tokens": 3}), DONE)
    assert not [e for e in frame.events if isinstance(e, Metered)]


def test_a_first_chunk_without_choices_carries_nothing():
    frame = run(event(id="", model="", choices=[], prompt_filter_results=[{"x": 1}]), chunk({"content": "a"}, "stop"), DONE)
    assert frame.events == [Started("c1", "m", 7), TextDelta("a"), Finished("stop")]
    assert b"prompt_filter_results" in frame.wire


def test_two_finishing_chunks_finish_once():
    frame = run(chunk({"content": "a"}), chunk({}, "stop"), chunk({"content": ""}, "stop", usage=USAGE), DONE)
    assert [e for e in frame.events if isinstance(e, Finished)] == [Finished("stop")]
    assert usage_of(frame).completion_tokens == 2


def test_comments_are_liveness_and_go_on():
    decoder = StreamDecoder()
    frame = decoder.feed(b": OPENROUTER PROCESSING\n\n")
    assert (frame.events, frame.wire) == ([], b": OPENROUTER PROCESSING\n\n")


def test_names_ids_and_empty_events_do_not_reach_a_client():
    body = chunk({"content": "a"}, "stop")
    frame = run(b"event: ping\n\nid: 4\nevent: message\n" + body + DONE)
    assert (text_of(frame), frame.wire) == ("a", body)


def test_crlf_streams_are_read_and_left_as_they_are():
    stream = (chunk({"content": "日"}) + chunk({}, "stop")).replace(b"\n", b"\r\n")
    frame = run(stream)
    assert (text_of(frame), frame.wire) == ("日", stream)


def test_junk_after_the_end_marker_is_not_read():
    decoder = StreamDecoder()
    frame = decoder.feed(chunk({"content": "a"}, "stop") + DONE + chunk({"content": "junk"}))
    assert text_of(frame) == "a"
    assert b"junk" not in frame.wire
    assert decoder.done
    assert decoder.feed(chunk({"content": "junk"})).events == []


def test_a_finished_stream_without_an_end_marker_is_whole():
    assert [type(e) for e in run(chunk({"content": "a"}, "stop")).events] == [Started, TextDelta, Finished]


def test_an_unterminated_last_event_counts_and_is_terminated():
    stream = chunk({"content": "a"}) + chunk({}, "stop")
    frame = run(stream[:-2])
    assert Finished("stop") in frame.events
    assert frame.wire == stream


def test_an_end_marker_without_a_finish_reason_invents_none():
    frame = run(chunk({"content": "a"}, ""), DONE)
    assert not [e for e in frame.events if isinstance(e, Finished)]


def test_g08_a_stream_cut_after_text_fails_and_keeps_the_text():
    decoder = StreamDecoder()
    frame = decoder.feed(b"".join(chunk({"content": f"t{n} "}) for n in range(40)) + chunk({"content": "t40"})[:-9])
    assert len([e for e in frame.events if isinstance(e, TextDelta)]) == 40
    last = decoder.close()
    assert [type(e) for e in last.events] == [Failed]
    assert isinstance(last.events[0].error, Cut)
    assert last.wire == b""


def test_g08_a_stream_cut_before_anything_raises():
    decoder = StreamDecoder()
    decoder.feed(chunk({"role": "assistant", "content": ""}))
    with pytest.raises(Cut):
        decoder.close()


def test_one_of_two_choices_unfinished_is_a_cut():
    decoder = StreamDecoder()
    decoder.feed(chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1))
    assert isinstance(decoder.close().events[-1], Failed)


def test_one_unreadable_event_does_not_lose_the_others():
    texts = [chunk({"content": f"t{n}"}) for n in range(60)]
    broken = [b'data: {"id": "c1", "choices": [{"del\n\n', b"data: \xff\xfe\n\n", b'data: {"choices": 7}\n\n', b"data: []\n\n"]
    frame = run(*texts[:30], *broken, *texts[30:], chunk({}, "stop"), DONE)
    assert text_of(frame) == "".join(f"t{n}" for n in range(60))
    assert frame.wire == b"".join(texts) + chunk({}, "stop")


def test_a_stream_of_unreadable_events_is_given_up():
    with pytest.raises(BadAnswer):
        run(b"data: <html>\n\n" * (MAX_BAD_EVENTS + 1))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "slow down", "code": 429}, RateLimited),
        ({"message": "too long", "code": "context_length_exceeded"}, ContextTooLong),
        ({"message": "broke"}, ServerFailed),
        ("broke", ServerFailed),
    ],
)
def test_g30_an_error_as_first_event_is_raised_by_kind(error, kind):
    for head in (b"", chunk({"role": "assistant", "content": ""}), b": c\n\n"):
        with pytest.raises(kind):
            run(head + event(error=error))


def test_an_error_after_text_ends_the_events_and_its_bytes_stay_here():
    good = chunk({"content": "a"})
    for bad in (
        b'event: error\ndata: {"error":{"message":"tool_use_failed","status_code":400}}\n\n',
        event(error={"code": 502, "message": "upstream"}, choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]),
        chunk({}, "error"),
        b"event: error\ndata: gone\n\n",
    ):
        frame = run(good + bad + chunk({"content": "never"}) + DONE)
        assert (text_of(frame), frame.wire) == ("a", good)
        assert isinstance(frame.events[-1], Failed)
        assert not [e for e in frame.events if isinstance(e, Finished)]


def test_reasoning_under_its_names_comes_once():
    for delta in (
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ):
        frame = run(chunk(delta), chunk({"content": "a"}, "stop"), DONE)
        assert [e for e in frame.events if isinstance(e, ReasoningDelta)] == [ReasoningDelta("hm")], delta


def test_signatures_and_encrypted_reasoning_are_kept():
    details = [{"type": "reasoning.text", "text": "hm", "signature": "sig"}, {"type": "reasoning.encrypted", "data": "abc"}]
    frame = run(chunk({"reasoning": "hm", "reasoning_details": details}), chunk({"content": "a"}, "stop"), DONE)
    assert [e for e in frame.events if isinstance(e, ReasoningDelta)] == [ReasoningDelta("hm", 0, "sig", "abc")]


def test_content_as_parts_as_one_object_as_null_and_missing():
    frame = run(
        chunk({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 7]}),
        chunk({"content": {"type": "text", "text": "c"}}),
        chunk({"content": {}}),
        chunk({"content": None}),
        chunk({}),
        event(choices=[{"index": 0, "finish_reason": "stop"}]),
        DONE,
    )
    assert text_of(frame) == "abc"


def test_refusals_are_text_that_says_so():
    frame = run(chunk({"refusal": "I can't"}), chunk({}, "stop"), DONE)
    assert frame.events[1] == TextDelta("I can't", refusal=True)


def test_logprobs_keep_their_digits():
    logprobs = '{"content":[{"token":"a","logprob":-0.10000000149011612,"bytes":[97],"top_logprobs":[]}]}'
    data = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop","logprobs":' + logprobs.encode() + b"}]}\n\n"
    assert run(data + DONE).events[1] == TextDelta("a", 0, logprobs)


def piece(arguments: Any = None, name: str | None = None, index: Any = 0, call_id: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def tools(*pieces: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(pieces)})


@pytest.mark.parametrize(
    "reads",
    [
        [tools(piece('{"a":1}', "f", 0, "x")), tools(piece('{"b":2}', "g", 1, "y"))],  # whole
        [tools(piece("", "f", 0, "x")), tools(piece('{"a"')), tools(piece(":1}")), tools(piece('{"b":2}', "g", 1, "y"))],  # pieces
        [tools(piece('{"a":1}', "f", 0, "x"), piece('{"b":2}', "g", 0, "y"))],  # all at index 0
        [tools(piece('{"a":1}', "f", None, "x"), piece('{"b":2}', "g", None, "y"))],  # no index
        [tools(piece('{"a":1}', "f", 1, "x")), tools(piece('{"b":2}', "g", 2, "y"))],  # counted from another start
        [tools(piece("", "f", 0, "x"), piece("", "g", 1, "y")), tools(piece('{"b":2}', None, 1), piece('{"a":1}', None, 0))],
        [tools(piece("", "f", 0, "x")), tools(piece('{"a":1}', None, 0, "other")), tools(piece({"b": 2}, "g", 1, "y"))],
    ],
)
def test_g15_calls_count_from_zero_however_they_come(reads):
    frame = run(*reads, chunk({}, "tool_calls"), DONE)
    assert calls_of(frame) == [("x", "f", '{"a":1}'), ("y", "g", '{"b":2}')]
    assert frame.events[-1] == Finished("tool_calls")


def test_a_truncated_call_stays_as_it_came():
    frame = run(tools(piece('{"a": "unfin', "f", 0, "x")), chunk({}, "length"), DONE)
    assert calls_of(frame) == [("x", "f", '{"a": "unfin')]
    assert frame.events[-1] == Finished("length")


def test_legacy_function_calls():
    frame = run(
        chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}}), chunk({}, "function_call")
    )
    assert calls_of(frame) == [(None, "f", "{}")]
    assert frame.events[-1] == Finished("tool_calls")


WHOLE = {
    "id": "c1",
    "model": "m",
    "created": 7,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"id": "x", "type": "function", "function": {"name": "f", "arguments": {"b": 2}}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


def test_a_whole_answer():
    body = json.dumps(WHOLE).encode()
    frame = decode_answer(body)
    assert (frame.whole, frame.wire, frame.dialect) == (True, body, "openai_chat")
    assert calls_of(frame) == [("x", "f", '{"a":1}'), ("x", "f", '{"b":2}')]
    assert [type(e) for e in frame.events] == [Started, ReasoningDelta, ToolCallDelta, ToolCallDelta, Finished, Metered]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>", BadAnswer),
        (b"", BadAnswer),
        (b"[]", BadAnswer),
        (b'{"choices":[]}', BadAnswer),
        (b'{"id":"x"}', BadAnswer),
        (b'{"choices":[{"message":{"content":"\xff"}}]}', BadAnswer),
        (b'{"error":{"code":429,"message":"Provider returned error"}}', RateLimited),
        (b'{"error":"it broke"}', ServerFailed),
    ],
)
def test_what_is_no_answer_is_an_error(body, kind):
    with pytest.raises(kind):
        decode_answer(body)


words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)
deltas = st.one_of(
    st.builds(lambda t: {"content": t}, words),
    st.builds(lambda t: {"reasoning_content": t}, words),
    st.builds(lambda n, t: {"tool_calls": [piece(t, f"f{n}", n, f"id{n}")]}, st.integers(0, 2), words),
)


@given(st.lists(deltas, max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(1, 40), max_size=40), st.booleans())
def test_g40_any_chunking_gives_the_same_events_and_bytes(found, end, sizes, broken):
    parts = [chunk(delta) for delta in found] + [
        b": c\n\n",
        b"data: {\n\n" if broken else b"",
        chunk({}, "stop"),
        event(choices=[], usage=USAGE),
        DONE,
    ]
    stream = b"".join(parts).replace(b"\n", end)
    reads, at = [], 0
    for size in sizes:
        reads.append(stream[at : at + size])
        at += size
    whole, pieces = run(stream), run(*reads, stream[at:])
    assert pieces == whole
    assert text_of(whole) == "".join(delta.get("content", "") for delta in found)


@given(st.lists(deltas, max_size=8))
def test_a_collected_stream_is_the_whole_answer(found):
    text = "".join(delta.get("content", "") for delta in found)
    thought = "".join(delta.get("reasoning_content", "") for delta in found)
    calls: dict[int, list[str]] = {}
    for delta in found:
        for call in delta.get("tool_calls", []):
            calls.setdefault(call["index"], [call["id"], call["function"]["name"], ""])[2] += call["function"]["arguments"]
    message = {"content": text, "reasoning_content": thought, "tool_calls": [piece(c[2], c[1], None, c[0]) for c in calls.values()]}
    body = {"id": "c1", "model": "m", "created": 7, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    whole, streamed = decode_answer(json.dumps(body).encode()), run(*(chunk(delta) for delta in found), chunk({}, "stop"), DONE)
    assert text_of(whole) == text_of(streamed)
    assert calls_of(whole) == calls_of(streamed)
    assert [e for e in whole.events if isinstance(e, Finished)] == [e for e in streamed.events if isinstance(e, Finished)]


@given(st.binary(max_size=60))
def test_no_bytes_break_the_decoder_in_another_way_than_by_its_errors(data):
    decoder = StreamDecoder()
    try:
        decoder.feed(b"data: " + data + b"\n\n")
        decoder.close()
    except ProviderError:
        pass
    assert decoder.done


DEEP = b"[" * 100_000 + b"]" * 100_000


def test_an_event_nested_beyond_reading_is_left_out():
    deep = b'data: {"choices":[{"index":0,"delta":{"content":"x","odd":' + DEEP + b"}}]}\n\n"
    frame = run(chunk({"content": "a"}), deep, chunk({"content": "b"}, "stop"), DONE)
    assert text_of(frame) == "ab"
    assert not any(isinstance(e, Failed) for e in frame.events)


def test_a_whole_answer_nested_beyond_reading_is_a_bad_answer():
    with pytest.raises(BadAnswer):
        decode_answer(b'{"choices":[{"index":0,"message":{"content":' + DEEP + b"}}]}")


def test_places_and_instants_that_nobody_could_write_again_are_not_taken():
    frame = run(event(choices=[{"index": 2**70, "delta": {"content": "a"}}], created=10**30), chunk({}, "stop"), DONE)
    assert frame.events[:2] == [Started("c1", "m", 0), TextDelta("a", 0)]
    choice = {"index": 2**70, "message": {"content": "a"}, "finish_reason": "stop"}
    assert decode_answer(event(choices=[choice], created=-1)[6:]).events[:2] == [Started("c1", "m", 0), TextDelta("a", 0)]
