"""What servers of these languages really send, trap by trap, as small fixtures written by hand: one test for each, with its number.

The traps of the languages that are not spoken here (13, and the native halves of 6, 7, 12 and 15) wait for their dialects. Every answer
is played in five sizes of pieces and read on every surface, by the reader of tests/conformance/reading.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import PLAIN, DecodeError
from providers.dialects.error_bodies import http_error
from providers.errors import BadAnswer, ContextTooLong, Cut, ProviderError, QuotaExhausted, RateLimited, Rejected, Unauthorized, Unsupported
from providers.http import Upstream
from providers.remote import RemoteProvider
from providers.retry_after import retry_after_s
from providers.types import (
    Deadline,
    Event,
    Failed,
    Finished,
    Frame,
    Metered,
    ReasoningDelta,
    Started,
    Target,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from providers.vendors import VENDORS
from tests.conformance import reading
from tests.conformance.reading import Said
from tests.conformance.recordings import API_OF, CHUNKINGS, LANGUAGES, asked, play, told
from tests.fakes.messages import stream as message_stream
from tests.fakes.upstream import FakeUpstream, chat_answer, json_reply

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


# ---- fixtures -----------------------------------------------------------------------------------------------------------------------
def delta(content: Any = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    told = {"content": content} if content is not None else {}
    choice = {"index": index, "delta": {**told, **more}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m-2026-01-01", "choices": [choice]}


def own_chunk(**usage: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [], "usage": usage or USAGE}


def events(*data: Any, done: bool = True, end: str = "\n") -> str:
    """An event stream; text stands as it is."""
    pieces = [one if isinstance(one, str) else f"data: {json.dumps(one, ensure_ascii=False)}{end}{end}" for one in data]
    return "".join([*pieces, f"data: [DONE]{end}{end}" if done else ""])


def streamed(text: str, language: str = "chat") -> dict[str, Any]:
    return {"api": API_OF[language], "provider": "x", "tags": [], "response": {"kind": "sse", "status": 200, "sse": text}}


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    answer = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice], "usage": USAGE, **more}
    return {"api": API_OF["chat"], "provider": "x", "tags": [], "response": {"kind": "json", "status": 200, "json": answer}}


def found(record: dict[str, Any]) -> list[Event]:
    """The events, the same however the bytes are cut."""
    frames = play(record)
    every = [event for frame in frames for event in frame.events]
    for chunking in CHUNKINGS[1:] if record["response"]["kind"] == "sse" else ():
        assert [event for frame in play(record, chunking) for event in frame.events] == every, chunking
    return every


def seen(record: dict[str, Any], surface: str) -> Said:
    """What a client of a surface reads."""
    stream = record["response"]["kind"] == "sse"
    return reading.said(surface, told(play(record), surface, asked(surface, stream)), stream)


def texts(every: list[Event]) -> str:
    return "".join(event.text for event in every if isinstance(event, TextDelta))


def metered(every: list[Event]) -> Usage:
    return [event.usage for event in every if isinstance(event, Metered)][-1]


# ---- the traps ----------------------------------------------------------------------------------------------------------------------
class Limits:
    max_connections = 4
    max_answer_bytes = 1_000_000
    keepalive_s = 30.0


async def test_trap_1_a_good_answer_that_says_retry_after_is_a_good_answer():
    assert retry_after_s(200, {"retry-after": "61"}) is None
    upstream = Upstream(Limits())
    async with FakeUpstream(json_reply(chat_answer("hi"), headers={"retry-after": "61"})) as fake:
        provider = RemoteProvider(VENDORS["openai-compatible"], fake.url + "/v1", "", upstream)
        for _ in range(2):
            frames = [frame async for frame in provider.call(asked("chat", False), Target(backend="b", model="m"), Deadline())]
            assert texts([event for frame in frames for event in frame.events]) == "hi"
        assert len(fake.requests) == 2
    await upstream.close()


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_2_a_choice_that_finishes_twice_finishes_once(surface: str):
    record = streamed(events(delta("a"), delta("", "stop"), {**delta("", "stop"), "usage": USAGE}))
    assert [event for event in found(record) if isinstance(event, Finished)] == [Finished("stop")]
    assert metered(found(record)) == Usage(input=7, output=3)
    text = told(play(record), surface, asked(surface, True))
    ends = {"messages": '"type":"message_delta"', "responses": '"type":"response.completed"'}
    if surface in ends:  # in its own language the stream passes as it came
        assert text.count(ends[surface]) == 1
    assert seen(record, surface).choice().finish == "stop"


PLACES = {
    "a chunk of its own": [delta("a"), delta(None, "stop"), own_chunk()],
    "on the finishing chunk": [delta("a"), {**delta("", "stop"), "usage": USAGE}],
    "beside the finishing chunk and again": [delta("a"), {**delta("", "stop"), "x_groq": {"usage": USAGE}}, own_chunk()],
    "in a vendor's member alone": [delta("a"), {**delta("", "stop"), "x_groq": {"id": "r", "usage": USAGE}}],
    "in every chunk, growing": [
        {**delta("a"), "usage": {"prompt_tokens": 7, "completion_tokens": None, "total_tokens": None}},
        {**delta("", "stop"), "usage": USAGE},
    ],
    "in a choice": [delta("a"), {**delta("", "stop"), "choices": [{**delta("", "stop")["choices"][0], "usage": USAGE}]}],
    "after the end of the choice": [delta("a"), delta("", "stop"), {**delta(""), "usage": USAGE}],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_3_usage_is_found_wherever_it_stands(place: str, surface: str):
    record = streamed(events(*PLACES[place]))
    assert metered(found(record)) == Usage(input=7, output=3)
    usage = seen(record, surface).usage
    assert usage is not None and (usage["prompt"], usage["completion"]) == (7, 3)


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_4_a_first_chunk_without_choices_and_names_is_no_answer_yet(surface: str):
    filters = {"id": "", "model": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    record = streamed(events(filters, delta("hi"), delta(None, "stop")))
    every = found(record)
    assert [event for event in every if isinstance(event, Started)] == [Started("c1", "m-2026-01-01", 7)]
    assert not play(record, "event")[0].events
    assert seen(record, surface).choice().text == "hi"


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_5_a_stream_needs_no_end_mark_and_a_client_gets_one(surface: str):
    record = streamed(events(delta("hi"), delta(None, "stop"), own_chunk(), done=False))
    assert [type(event) for event in found(record)][-1] is Metered
    text = told(play(record), surface, asked(surface, True))
    assert text.rstrip().endswith({"chat": "data: [DONE]", "messages": 'data: {"type":"message_stop"}'}.get(surface, text.rstrip()[-1]))
    assert seen(record, surface).choice().text == "hi"
    unterminated = streamed(events(delta("hi"), delta(None, "stop"), done=False).rstrip("\n"))
    assert texts(found(unterminated)) == "hi"


def message_text(*more: str) -> str:
    """A stream of the messages language under the names of its events."""
    pieces = message_stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": "hi"}])])
    return b"".join(pieces).decode() + "".join(more)


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_6_an_end_mark_where_there_is_none_in_the_language_changes_nothing(surface: str):
    record = streamed(message_text("event: data\ndata: [DONE]\n\n"), "messages")
    assert seen(record, surface).choice().text == "hi"
    assert "[DONE]" not in told(play(record), "messages", asked("messages", True))
    junk = streamed(events(delta("hi"), delta(None, "stop")) + "data: {broken\n\ndata: more\n\n")
    assert seen(junk, surface).choice().text == "hi" and "broken" not in told(play(junk), "chat", asked("chat", True))
    with pytest.raises(ProviderError):
        play(streamed("event: data\ndata: [DONE]\n\n", "messages"))


GROQ = 'event: error\ndata: {"error":{"message":"Failed to call a function.","type":"invalid_request_error","status_code":400}}\n\n'


def test_trap_7_an_error_inside_a_good_stream_is_an_error():
    with pytest.raises(Rejected, match="Failed to call a function"):
        play(streamed(GROQ))
    for chunking in CHUNKINGS:
        every = [e for frame in play(streamed(events(delta("a"), GROQ, done=False)), chunking) for e in frame.events]
        assert texts(every) == "a" and isinstance(every[-1], Failed) and isinstance(every[-1].error, Rejected)
    both = {**delta("half", "error"), "error": {"code": 502, "message": "Provider disconnected"}}
    every = found_until_failure(streamed(events(delta("a "), both)))
    assert texts(every) == "a half" and not [event for event in every if isinstance(event, Finished)]
    overloaded = 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    half = message_text().split("event: content_block_stop")[0]
    every = found_until_failure(streamed(half + overloaded, "messages"))
    assert texts(every) == "hi" and isinstance(every[-1], Failed) and every[-1].error.retryable


def found_until_failure(record: dict[str, Any]) -> list[Event]:
    """As found; two failures are never equal."""
    every: list[list[Event]] = [[event for frame in play(record, chunking) for event in frame.events] for chunking in CHUNKINGS]
    assert all(isinstance(one[-1], Failed) and one[:-1] == every[0][:-1] for one in every)
    return every[0]


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_8_comments_before_the_answer_are_liveness_and_no_token(surface: str):
    record = streamed(events(": OPENROUTER PROCESSING\n\n", ": OPENROUTER PROCESSING\n\n", delta("hi"), delta(None, "stop")))
    first = play(record, "event")[0]
    assert first.events == [] and first.wire == b": OPENROUTER PROCESSING\n\n"
    assert seen(record, surface).choice().text == "hi"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_9_every_end_of_line_is_one(end: str, surface: str):
    record = streamed(events(delta("h\u00e9 \U0001f600"), delta(None, "stop"), own_chunk(), end=end))
    assert texts(found(record)) == "h\u00e9 \U0001f600"
    assert seen(record, surface).choice().text == "h\u00e9 \U0001f600"


def called(*pieces: Any) -> list[dict[str, Any]]:
    return [delta(tool_calls=[piece]) for piece in pieces]


ARGUMENTS = {
    "whole": [{"index": 0, **CALL}],
    "in pieces": [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ":1}"}},
    ],
    "nothing": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}],
    "null": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "null"}}],
}


@pytest.mark.parametrize("form", ARGUMENTS)
@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_10_arguments_come_whole_in_pieces_or_not_at_all(form: str, surface: str):
    record = streamed(events(*called(*ARGUMENTS[form]), delta(None, "tool_calls")))
    expected = {"a": 1} if form in ("whole", "in pieces") else {}
    assert seen(record, surface).choice().calls == [("call_1", "f", expected)]
    call = {**CALL, "function": {"name": "f", "arguments": json.dumps(expected) if expected else {"nothing": "", "null": "null"}[form]}}
    assert seen(whole({"content": None, "tool_calls": [call]}, "tool_calls"), surface).choice().calls == [("call_1", "f", expected)]


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_11_a_call_that_the_limit_cut_is_no_broken_answer(surface: str):
    cut = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Bo'}}
    said = seen(streamed(events(*called(cut), delta(None, "length"))), surface).choice()
    assert (said.calls, said.finish) == ([("call_1", "f", '{"city": "Bo')], "length")
    said = seen(whole({"content": None, "tool_calls": [cut]}, "length"), surface).choice()
    assert said.finish == "length"
    assert said.calls == [("call_1", "f", {} if surface == "messages" else '{"city": "Bo')]  # an object there, so there is no half of one


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_12_arguments_may_be_an_object(surface: str):
    call = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
    record = whole({"content": None, "tool_calls": [call]}, "tool_calls")
    assert [event for event in found(record) if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, '{"a":1}', "call_1", "f")]
    content = [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}]
    answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "tool_use", "usage": {}}
    record = {"api": "messages", "response": {"kind": "json", "status": 200, "json": answer}}
    assert seen(record, surface).choice().calls == [("toolu_1", "f", {"a": 1})]


@pytest.mark.parametrize("message", [{"content": None}, {}, {"content": ""}, {"content": []}])
@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_14_content_may_be_null_missing_or_empty(message: dict[str, Any], surface: str):
    assert seen(whole(message), surface).choice().text == ""
    assert [event for event in found(whole(message)) if isinstance(event, Finished)] == [Finished("stop")]
    streams = streamed(events(delta(**message), delta(None, "stop")))
    assert seen(streams, surface).choice().finish == "stop"
    answer = {
        "id": "m",
        "type": "message",
        "model": "m",
        "content": [],
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "usage": {},
    }
    record = {"api": "messages", "response": {"kind": "json", "status": 200, "json": answer}}
    assert seen(record, surface).choice() == reading.Choice(finish="stop")


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_15_content_may_be_a_list_of_typed_parts(surface: str):
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "So."}]
    for record in (whole({"content": parts}), streamed(events(delta(parts), delta(None, "stop")))):
        assert [event for event in found(record) if isinstance(event, ReasoningDelta)] == [ReasoningDelta("hm")]
        said = seen(record, surface).choice()
        assert said.text == "So."
        if surface != "chat":  # where it is passed on as it came
            assert said.reasoning == "hm"


def test_trap_16_cached_tokens_are_counted_once_wherever_they_stand():
    inside = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    inside |= {"prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 30}}
    disjoint = Usage(input=20, cache_read=80, output=20, reasoning=30)
    assert metered(found(whole({"content": "x"}, usage=inside))) == disjoint
    outside = {"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}}
    answer = {"id": "m", "type": "message", "model": "m", "content": [], "stop_reason": "end_turn", "usage": outside}
    record = {"api": "messages", "response": {"kind": "json", "status": 200, "json": answer}}
    assert metered(found(record)) == disjoint
    for surface in LANGUAGES:
        for one in (whole({"content": "x"}, usage=inside), record):
            assert seen(one, surface).usage == {"prompt": 100, "completion": 50, "cached": 80, "written": 0, "reasoning": 30}


@pytest.mark.parametrize("finish", ["", None])
@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_17_an_answer_may_never_say_why_it_ended(finish: str | None, surface: str):
    record = streamed(events(delta("hi", finish), delta("", finish), own_chunk()))
    assert not [event for event in found(record) if isinstance(event, Finished)]
    assert seen(record, surface).choice().text == "hi"
    assert seen(whole({"content": "hi"}, finish), surface).choice().text == "hi"
    with pytest.raises(Cut):  # but a stream that just stops was cut
        play(streamed(events({"id": "c1", "choices": []}, done=False)))


@pytest.mark.parametrize("surface", LANGUAGES)
def test_trap_18_the_model_is_the_one_that_answered(surface: str):
    record = streamed(events(delta("hi"), delta(None, "stop")))
    assert found(record)[0] == Started("c1", "m-2026-01-01", 7)
    assert "m-2026-01-01" in told(play(record), surface, asked(surface, True))


ERRORS: list[tuple[int, Any, type[ProviderError]]] = [
    (401, {"detail": "Invalid API Key"}, Unauthorized),
    (400, {"code": "invalid-argument", "error": "Incorrect API key provided."}, Unauthorized),
    (400, {"code": "invalid-argument", "error": "Unknown field"}, Rejected),
    (404, {"error": "model not found"}, Unsupported),
    (400, {"object": "error", "message": "bad", "type": "invalid_request_error", "code": "3051", "raw_status_code": 400}, Rejected),
    (400, {"message": "too many tokens", "id": "x", "error_type": "TOO_MANY_TOKENS"}, ContextTooLong),
    (400, {"message": "Input is too long for requested model: prompt is too long"}, ContextTooLong),
    (400, {"detail": "bad value"}, Rejected),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, Rejected),
    (
        400,
        {"error": {"code": 400, "message": "key", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}},
        Unauthorized,
    ),
    (429, {"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "rate-limited"}}}, RateLimited),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}, QuotaExhausted),
    (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}, Unsupported),
]


@pytest.mark.parametrize(("status", "body", "kind"), ERRORS)
def test_trap_19_errors_are_read_in_whatever_shape_they_come(status: int, body: Any, kind: type[ProviderError]):
    assert type(http_error(status, {}, json.dumps(body).encode())) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "11.486s"}, 11.486),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "130ms"}, 0.13),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "30"}, 30.0),
        ({"retry-after": "1", "retry-after-ms": "0"}, 1.0),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2001-01-01T00:00:00Z"}, 0.0),
    ],
)
def test_trap_20_waits_are_read_in_all_their_forms(headers: dict[str, str], seconds: float):
    assert http_error(429, headers, b"{}").retry_after_s == pytest.approx(seconds)


@pytest.mark.parametrize("member", ["obfuscation", "p"])
def test_trap_21_padding_goes_to_no_other_language_and_stays_in_its_own(member: str):
    padded = {**delta("hi"), member: "abcdefgh"}
    record = streamed(events(padded, delta(None, "stop")))
    for surface in LANGUAGES:
        assert ("abcdefgh" in told(play(record), surface, asked(surface, True))) == (surface == "chat")
        assert seen(record, surface).choice().text == "hi"
    assert json.dumps(padded).encode() in b"".join(frame.wire for frame in play(record, 1))


def test_trap_22_more_thinking_than_output_is_all_thinking():
    usage = {**USAGE, "completion_tokens": 10, "total_tokens": 17, "completion_tokens_details": {"reasoning_tokens": 11}}
    assert metered(found(whole({"content": "x"}, usage=usage))) == Usage(input=7, reasoning=10)


def test_trap_23_null_in_a_usage_is_unknown_and_not_zero():
    first = {**USAGE, "completion_tokens": None, "prompt_token_details": None, "prompt_tokens_details": {"cached_tokens": 4}}
    last = {"prompt_tokens": None, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}, "cost": None}
    record = streamed(events({**delta("a"), "usage": first}, {**delta("", "stop"), "usage": last}))
    assert metered(found(record)) == Usage(input=3, cache_read=4, output=3)
    assert metered(found(whole({"content": "x"}, usage={**first, "total_tokens": None}))) == Usage(input=3, cache_read=4)


# ---- and what else a client can trip over -------------------------------------------------------------------------------------------
def test_an_answer_that_is_none_is_told_apart():
    for text in ("", "[]", "<html>", '{"choices": []}', '{"choices": null}'):
        with pytest.raises(BadAnswer):
            LANGUAGES["chat"].decode_answer(text.encode())
    assert play(streamed(events(delta("x"), done=True)))[-1].events[-1] == TextDelta("x")


def test_every_spoken_language_refuses_a_repeated_key():
    for language, dialect in LANGUAGES.items():
        body = dialect.encode_request(asked(language, False), Target(backend="b", model="m"), PLAIN)
        with pytest.raises(DecodeError) as refused:
            dialect.decode_request(body[:-1] + b',"model":"other"}')
        assert refused.value.code == "repeated_parameter"


def test_frames_carry_what_a_client_of_the_language_gets():
    record = streamed(events(delta("hi"), delta(None, "stop"), own_chunk()))
    joined = Frame(events=[], wire=b"".join(f.wire for f in play(record, 2)), usage_wire=b"".join(f.usage_wire for f in play(record, 2)))
    assert (joined.wire + joined.usage_wire + b"data: [DONE]\n\n").decode() == record["response"]["sse"]
