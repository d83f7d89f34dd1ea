"""What each language carries by its own tables comes back as it went out: `decode(encode(x)) == x`; the rest is refused or named.

The generators are made from `Carries` and the table of fields of each dialect: a kind of content that a language gains is drawn from
that day on. Answers too: any cut of the stream gives the same events, and a whole answer says what its stream says.
"""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import Quirks
from providers.dialects.anthropic_messages import content as messages_content
from providers.dialects.crossing import Carries
from providers.dialects.openai_chat import content as chat_content
from providers.dialects.openai_responses import content as responses_content
from providers.dialects.quirks import unsupported
from providers.errors import Unsupported
from providers.types import (
    Audio,
    Call,
    Document,
    Event,
    Extra,
    Finished,
    Frame,
    Image,
    Message,
    Metered,
    OutputFormat,
    Parameters,
    Part,
    Reasoning,
    ReasoningDelta,
    RedactedThinking,
    Refusal,
    Request,
    Started,
    Target,
    Text,
    TextDelta,
    Thinking,
    Tool,
    ToolCallDelta,
    ToolChoice,
    Usage,
)
from tests.conformance import reading
from tests.conformance.recordings import LANGUAGES, asked, told

CARRIES: dict[str, Carries] = {
    "chat": chat_content.CARRIES,
    "messages": messages_content.CARRIES,
    "responses": responses_content.CARRIES,
}
TAKES = Quirks(takes=frozenset({"reasoning_effort", "reasoning_details", "cache_control", "top_k"}))
TARGET = Target(backend="b", model="route", most_tokens=50_000)
CACHE = Raw(b'{"type":"ephemeral"}')
SCHEMA = Raw(b'{"type":"object","properties":{"a":{"type":"string"}}}')

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
ids = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
data = st.binary(min_size=1, max_size=6).map(lambda value: base64.b64encode(value).decode())


# ---- content, kind by kind ----------------------------------------------------------------------------------------------------------
def parts_of(carries: Carries) -> dict[str, st.SearchStrategy[Any]]:
    """Every kind of content that a user may send in a language."""
    marks = carries.cache_control or carries.language == "openai_chat"  # the last where the target takes them
    cache = st.none() | st.just(CACHE) if marks else st.none()
    detail = st.none() | st.just("low") if carries.detail else st.none()
    named = st.just("a.pdf") if carries.document_name else st.none() | words
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "text": st.builds(Text, words, cache),
        "image": st.builds(Image, data=data, media_type=st.just("image/png"), detail=detail, cache_control=cache),
        "image by address": st.builds(Image, url=st.just("https://example.org/a.png"), detail=detail, cache_control=cache),
        "PDF": st.builds(Document, data=data, media_type=st.just("application/pdf"), name=named, cache_control=cache),
    }
    if carries.audio:
        kinds["audio"] = st.builds(Audio, data, st.sampled_from(["wav", "mp3"]))
    if carries.document_url:
        kinds["document by address"] = st.builds(Document, url=st.just("https://example.org/a.pdf"))
    if carries.text_documents:
        plain = words.map(lambda text: base64.b64encode(text.encode()).decode())
        kinds["plain text"] = st.builds(Document, data=plain, media_type=st.just("text/plain"), name=named)
    return kinds


def thinking_of(carries: Carries) -> st.SearchStrategy[Part]:
    """Thinking that may go back: with this language's own seal where it reads no other."""
    seal = responses_content.seal(responses_content.NAME, '{"encrypted_content":"abc"}') if carries.sealed else "EqQBCkgI=="
    return st.builds(Thinking, words, st.just(seal)) | st.just(RedactedThinking(seal))


def turns_of(carries: Carries) -> st.SearchStrategy[list[Message]]:
    kinds = parts_of(carries)
    several = st.lists(st.one_of(*kinds.values()), min_size=2, max_size=4).map(tuple)
    user = st.builds(Message, role=st.just("user"), content=words | several)
    spoken = st.lists(st.builds(Text, words) | (st.builds(Refusal, words) if carries.refusals else st.nothing()), min_size=2, max_size=2)
    thoughts = st.lists(thinking_of(carries), max_size=1)
    said = st.builds(lambda thought, texts: (*thought, *texts), thoughts, spoken)
    assistant = st.builds(Message, role=st.just("assistant"), content=words | said)
    return st.lists(st.one_of(user, assistant, calling(carries)), min_size=1, max_size=3).map(flat).filter(alternates)


def calling(carries: Carries) -> st.SearchStrategy[list[Message]]:
    """Two parallel calls and their results, one of which failed, with an image where results can hold one."""
    image = st.builds(Image, data=data, media_type=st.just("image/png"))
    text = words | st.lists(st.builds(Text, words), min_size=2, max_size=2).map(tuple)
    result = text | st.tuples(st.builds(Text, words), image) if carries.result_media else text
    arguments = st.dictionaries(words, st.integers() | words, max_size=2).map(lambda value: json.dumps(value, ensure_ascii=False))

    def made(one: str, two: str, given: tuple[str, str], told: tuple[Any, Any]) -> list[Message]:
        calls = (Call("a" + one, "f", given[0]), Call("b" + two, "g", given[1]))
        failed = True if carries.failed else None
        return [
            Message(role="assistant", content="I look.", calls=calls) if carries.language != "anthropic_messages" else in_parts(calls),
            Message(role="tool", call_id="a" + one, content=told[0]),
            Message(role="tool", call_id="b" + two, content=told[1], is_error=failed),
        ]

    return st.builds(made, ids, ids, st.tuples(arguments, arguments), st.tuples(result, result))


def in_parts(calls: tuple[Call, ...]) -> Message:
    return Message(role="assistant", content=(Text("I look."),), calls=calls)


def flat(turns: list[Any]) -> list[Message]:
    return [message for turn in turns for message in (turn if isinstance(turn, list) else [turn])]


def alternates(messages: list[Message]) -> bool:
    """Two turns of one speaker in a row are one turn in some languages."""
    sides = ["assistant" if message.role == "assistant" else message.role for message in messages]
    joined = [(a, b) for a, b in pairwise(sides) if a == b != "tool" or (a, b) == ("tool", "user")]
    return not joined


def foreign(messages: list[Message], tools: tuple[Tool, ...] = (), parameters: Parameters | None = None, **more: Any) -> Request:
    return Request(
        dialect="other",
        fields={},
        model="route",
        decoded=tuple(messages),
        decoded_tools=tools,
        parameters=parameters or Parameters(),
        max_tokens=9000,
        **more,
    )


@pytest.mark.parametrize("spoken", LANGUAGES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_conversation_comes_back_as_it_went_out(spoken: str, data: st.DataObject):
    turns = [Message(role="system", content="Be kind."), *data.draw(turns_of(CARRIES[spoken]))]
    request = foreign(turns)
    body = LANGUAGES[spoken].encode_request(request, TARGET, TAKES)
    assert request.dropped == ()
    again = LANGUAGES[spoken].decode_request(body)
    assert list(LANGUAGES[spoken].messages(again)) == turns


def odd(carries: Carries) -> list[tuple[str, Message]]:
    """What a language cannot say, by its table."""
    user = lambda *parts: Message(role="user", content=(Text("a"), *parts))  # noqa: E731
    found: list[tuple[bool, str, Message]] = [
        (carries.audio, "audio", user(Audio("AA==", "wav"))),
        (carries.document_url, "document by address", user(Document(url="https://example.org/a.pdf"))),
        (False, "file id", user(Document(file_id="file-1"))),
        (carries.detail, "detail", user(Image(url="https://example.org/a.png", detail="low"))),
        (carries.names, "name", Message(role="user", content="a", name="ann")),
        (False, "citations", Message(role="assistant", content=(Text("a", citations=Raw(b"[1]")), Text("b")))),
        (False, "another's part", user(messages_content.Opaque("none", "video", Raw(b"{}")))),
        (False, "another's member", Message(role="user", content="a", extra={"news": Raw(b"1")})),
        (False, "cache", user(Text("b", CACHE))) if not carries.cache_control else (True, "cache", user()),
        (not carries.sealed, "thinking signed elsewhere", Message(role="assistant", content=(Thinking("a", "s"), Text("b"), Text("c")))),
    ]
    return [(name, message) for carried, name, message in found if not carried]


ODD = [(spoken, name, message) for spoken in LANGUAGES for name, message in odd(CARRIES[spoken])]


@pytest.mark.parametrize(("spoken", "message"), [(s, m) for s, _, m in ODD], ids=[f"{s}-{name}" for s, name, _ in ODD])
def test_what_a_language_cannot_say_is_refused_or_named(spoken: str, message: Message):
    request = foreign([message, Message(role="user", content="so?")])
    try:
        LANGUAGES[spoken].encode_request(request, TARGET, Quirks())
    except Unsupported as refused:
        assert refused.param is not None and not refused.sent
        assert isinstance(refused, type(unsupported("", "")))
    else:
        assert request.dropped


# ---- tools and parameters -----------------------------------------------------------------------------------------------------------
tools = st.lists(
    st.builds(Tool, name=ids, description=st.none() | words, parameters=st.just(SCHEMA), strict=st.booleans()), min_size=1, max_size=3
).map(tuple)
choices = st.sampled_from([None, ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f")])
parameters = st.builds(
    Parameters,
    top_p=st.none() | st.floats(0, 0.9),
    tool_choice=choices,
    output_format=st.none() | st.just(OutputFormat(schema=SCHEMA)),
    user=st.none() | words,
)


@pytest.mark.parametrize("spoken", LANGUAGES)
@settings(max_examples=40)
@given(found=tools, wanted=parameters, temperature=st.none() | st.floats(0, 0.9), effort=st.sampled_from([None, "low", "high"]))
def test_tools_and_parameters_come_back_as_they_went_out(
    spoken: str, found: tuple[Tool, ...], wanted: Parameters, temperature: float | None, effort: str | None
):
    reasoning = None if effort is None else Reasoning(effort=effort)
    request = foreign([Message(role="user", content="hi")], found, Parameters(**fields_of(wanted, reasoning)), temperature=temperature)
    again = LANGUAGES[spoken].decode_request(LANGUAGES[spoken].encode_request(request, TARGET, TAKES))
    assert LANGUAGES[spoken].tools(again) == found
    told = LANGUAGES[spoken].parameters(again)
    forced = wanted.tool_choice is not None and wanted.tool_choice.mode in ("required", "tool")
    thinks = spoken == "messages" and effort is not None and not forced  # beside thinking nothing is sampled there, and this is named
    assert told.tool_choice == wanted.tool_choice and told.user == wanted.user
    assert (told.output_format is None) == (wanted.output_format is None)
    if told.output_format is not None:
        assert told.output_format.schema == SCHEMA
    assert told.top_p == (None if thinks else wanted.top_p) and again.temperature == (None if thinks else temperature)
    if effort is not None and not (spoken == "messages" and forced):
        assert told.reasoning is not None and (told.reasoning.effort == effort or told.reasoning.budget_tokens)
    named = set(request.dropped)
    assert named <= {"reasoning", "top_p", "temperature"} and bool(named) == bool(
        (thinks and (wanted.top_p is not None or temperature is not None)) or (spoken == "messages" and effort is not None and forced)
    )


def fields_of(wanted: Parameters, reasoning: Reasoning | None) -> dict[str, Any]:
    return {**{name: getattr(wanted, name) for name in ("top_p", "tool_choice", "output_format", "user")}, "reasoning": reasoning}


# ---- answers ------------------------------------------------------------------------------------------------------------------------
LOGPROB = '{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]}'


@st.composite
def answers(draw: st.DrawFn, spoken: str) -> list[Event]:
    """Everything that an answer may say in a language, in the order in which servers say it."""
    events: list[Event] = [Started("c1", "m", 7)]
    numbers = (0, 1) if spoken == "chat" else (0,)  # n
    for n in numbers:
        if draw(st.booleans()):
            events += [ReasoningDelta(piece, n) for piece in draw(st.lists(words, min_size=1, max_size=3))]
            events.append(ReasoningDelta("", n, signature=draw(ids)))
        if draw(st.booleans()):
            events.append(ReasoningDelta(redacted=draw(ids), choice=n))
        events += [TextDelta(piece, n) for piece in draw(st.lists(words, max_size=4))]
        if spoken != "messages" and draw(st.booleans()):
            events.append(TextDelta("a", n, LOGPROB))
        if spoken != "messages" and draw(st.booleans()):
            events.append(TextDelta(draw(words), n, refusal=True))
        for index in range(draw(st.integers(0, 2))):
            text = draw(st.dictionaries(words, words, max_size=2).map(json.dumps))
            cut = draw(st.integers(0, len(text)))
            events += [ToolCallDelta(index, text[:cut], f"id{n}{index}", "f", n), ToolCallDelta(index, text[cut:], choice=n)]
        called = isinstance(events[-1], ToolCallDelta)
        events.append(Finished("tool_calls" if called else draw(st.sampled_from(["stop", "length", "content_filter"])), n))
    counts = st.integers(1, 99)
    return [*events, Metered(draw(st.builds(Usage, input=counts, cache_read=counts, output=counts, reasoning=st.integers(0, 9))))]


def spoken_back(spoken: str, text: bytes, cuts: list[int]) -> list[Event]:
    decoder, found = LANGUAGES[spoken].stream_decoder(), []
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in pairwise(edges):
        found += decoder.feed(text[begin:end]).events
    return found + decoder.close().events


def _told(said: dict[Any, Any], event: TextDelta | ReasoningDelta) -> None:
    kind = "thinking" if isinstance(event, ReasoningDelta) else "refusal" if event.refusal else "text"
    said[kind, event.choice] = said.get((kind, event.choice), "") + event.text
    for member in ("logprobs", "signature", "redacted"):
        told = getattr(event, member, None)
        if told is not None:
            said[member, event.choice] = json.loads(told) if member == "logprobs" else told


def gist(events: list[Event]) -> dict[Any, Any]:
    """What an answer says, whatever its pieces."""
    said: dict[Any, Any] = {}
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            _told(said, event)
        elif isinstance(event, ToolCallDelta):
            call = said.setdefault(("call", event.choice, event.index), [event.id, event.name, ""])
            call[2] += event.arguments
        elif isinstance(event, Finished):
            said["finish", event.choice] = event.reason
        elif isinstance(event, Metered):
            said["usage"] = event.usage
        elif isinstance(event, Started):
            said["model"] = event.model
    for name, value in said.items():
        if name[0] == "call":
            value[2] = reading.arguments(value[2])
    return {name: value for name, value in said.items() if value != ""}


@pytest.mark.parametrize("spoken", LANGUAGES)
@settings(max_examples=60)
@given(data=st.data(), cuts=st.lists(st.integers(0, 100_000), max_size=6))
def test_an_answer_comes_back_as_it_was_given_however_it_is_cut(spoken: str, data: st.DataObject, cuts: list[int]):
    events = data.draw(answers(spoken))
    request = asked(spoken, True)
    text = told([Frame(events=[event]) for event in events], spoken, request).encode()
    found = spoken_back(spoken, text, cuts)
    assert gist(found) == gist(events)
    assert found == spoken_back(spoken, text, [])


@pytest.mark.parametrize("spoken", LANGUAGES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_whole_answer_says_what_its_stream_says(spoken: str, data: st.DataObject):
    frames = [Frame(events=[event]) for event in data.draw(answers(spoken))]
    whole = LANGUAGES[spoken].decode_answer(told(frames, spoken, asked(spoken, False)).encode()).events
    streamed = spoken_back(spoken, told(frames, spoken, asked(spoken, True)).encode(), [])
    assert gist(whole) == gist(streamed)
    read = [reading.said(spoken, told(frames, spoken, asked(spoken, stream)), stream) for stream in (False, True)]
    assert read[0] == read[1]


def test_what_only_one_language_has_stays_there():
    """Citations and blocks of its vendor's own tools: in the stream and the whole answer of its language, in no other."""
    own = [Extra("anthropic_messages", "citation", '{"type":"char_location","cited_text":"x"}')]
    own.append(Extra("anthropic_messages", "block", '{"type":"server_tool_use","id":"s","name":"web_search","input":{}}'))
    note = Extra("openai_responses", "annotation", '{"type":"url_citation","url":"https://example.org","start_index":0,"end_index":1}')
    events: list[Event] = [Started("i", "m"), TextDelta("So"), own[0], note, own[1], Finished("stop")]
    for spoken in LANGUAGES:
        for stream in (False, True):
            text = told([Frame(events=events)], spoken, asked(spoken, stream))
            assert ("char_location" in text) == ("server_tool_use" in text) == (spoken == "messages")
            assert ("url_citation" in text) == (spoken == "responses")
