from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.response import KEY_MOST_BYTES, Entry, Policy, Recorder, decode, encode, key, policy, weight
from gateway.catalog import Route
from providers.errors import Cut
from providers.types import Failed, Finished, Frame, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

MakeRequest = Callable[..., Request]
MakeEntry = Callable[..., Entry]

ROUTE = Route(name="assistant", backends=("a",))
ALWAYS = Route(name="assistant", backends=("a",), cache="always")
NEVER = Route(name="assistant", backends=("a",), cache="never")
YES = Policy(True, True)


@pytest.mark.parametrize(
    ("route", "temperature", "header", "expected"),
    [
        (ROUTE, 0, None, YES),
        (ROUTE, 0.0, "", YES),
        (ROUTE, None, None, Policy(why="temperature")),
        (ROUTE, 0.1, None, Policy(why="temperature")),
        (ALWAYS, None, None, YES),
        (ALWAYS, 1.0, None, YES),
        (NEVER, 0, None, Policy(why="route")),
        (ROUTE, 0, "no-store", Policy(why="no_store")),
        (ROUTE, 0, "no-cache", Policy(False, True, None, "fresh")),
        (ROUTE, 0, "No-Cache, max-age=5", Policy(False, True, 5.0, "fresh")),
        (ROUTE, 0, "max-age=60", Policy(True, True, 60.0)),
        (ROUTE, 0, 'max-age="60"', Policy(True, True, 60.0)),
        (ROUTE, 0, "max-age=0", Policy(False, True, 0.0, "fresh")),
        (ROUTE, 0, "max-age=soon", YES),
        (ROUTE, 0, "max-age=-1", YES),
        (ROUTE, 0, "no-transform", YES),
    ],
)
def test_what_may_be_cached(request_: MakeRequest, route: Route, temperature: Any, header: str | None, expected: Policy) -> None:
    request = request_(temperature=0)
    request.temperature = temperature
    assert policy(request, route, header) == expected


BASE: dict[str, Any] = {"temperature": 0, "tools": [{"type": "function", "function": {"name": "f"}}]}
CHANGES: list[dict[str, Any]] = [
    {"max_tokens": 5},
    {"stop": ["x"]},
    {"top_p": 0.5},
    {"n": 2},
    {"seed": 7},
    {"tool_choice": "none"},
    {"tools": []},
    {"response_format": {"type": "json_object"}},
    {"reasoning_effort": "low"},
    {"metadata": {"a": "b"}},
    {"some_future_field": None},
    {"messages": [{"role": "user", "content": "ho"}]},
    {"temperature": 0.0},
]


def test_g06_every_parameter_is_in_the_key(request_: MakeRequest) -> None:
    keys = {key(request_(**(BASE | change)), 1, "assistant") for change in [{}, *CHANGES]}
    assert len(keys) == len(CHANGES) + 1
    assert None not in keys


def test_stream_flags_and_user_are_not_in_the_key(request_: MakeRequest) -> None:
    base = key(request_(**BASE), 1, "assistant")
    for change in ({"stream": True}, {"stream_options": {"include_usage": True}}, {"user": "u-1"}):
        assert key(request_(**(BASE | change)), 1, "assistant") == base


def test_order_of_fields_does_not_matter(request_: MakeRequest) -> None:
    request = request_(**BASE, seed=1)
    turned = request_(**BASE, seed=1)
    turned.fields = dict(reversed(list(request.fields.items())))
    assert key(turned, 1, "assistant") == key(request, 1, "assistant")


def test_g18_tenant_route_language_allow_list_and_labels_are_in_the_key(request_: MakeRequest) -> None:
    request, other = request_(), request_()
    other.dialect = "anthropic_messages"
    keys = [
        key(request, 1, "assistant"),
        key(request, 2, "assistant"),
        key(request, 1, "other"),
        key(other, 1, "assistant"),
        key(request, 1, "assistant", frozenset()),
        key(request, 1, "assistant", frozenset({"a", "b"})),
        key(request, 1, "assistant", frozenset({"a,b"})),
        key(request, 1, "assistant", None, (("residency", "eu"),)),
        key(request, 1, "assistant", None, (("residency", "us"),)),
    ]
    assert len(set(keys)) == len(keys)
    assert key(request_(namespace="1"), 2, "assistant") not in keys, "a tenant named in the body is only one more field"
    assert key(request, 1, "assistant", frozenset({"b", "a"})) == keys[5]


def test_a_large_request_has_no_key(request_: MakeRequest) -> None:
    request = request_()
    request.size_bytes = KEY_MOST_BYTES + 1
    assert key(request, 1, "assistant") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
bodies = st.dictionaries(st.text(max_size=3), json_values, max_size=4)


@settings(max_examples=100, deadline=None)
@given(bodies, bodies)
def test_keys_are_equal_exactly_when_the_fields_are(a: dict[str, Any], b: dict[str, Any]) -> None:
    def of(body: dict[str, Any]) -> bytes | None:
        raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
        return key(Request(dialect="d", fields=raw, model="m"), 1, "r")

    def same(body: dict[str, Any]) -> dict[str, bytes]:
        return {name: msgspec.json.encode(value) for name, value in body.items()}

    assert (of(a) == of(b)) == (same(a) == same(b))


def whole(*events: Any) -> Frame:
    return Frame(events=list(events), wire=b"{}", dialect="openai_chat", whole=True)


def recorded(frames: list[Frame], n: int = 1, max_bytes: int = 10_000) -> Entry | None:
    recorder = Recorder(n, max_bytes)
    for frame in frames:
        recorder.add(frame)
    return recorder.entry(5.0, Usage(input=1, output=2), 77, ("backend", "model"))


STOP, TEXT = Finished(reason="stop"), TextDelta(text="hi")


@pytest.mark.parametrize(
    ("frames", "n", "stored"),
    [
        ([whole(TEXT, STOP)], 1, True),
        ([Frame(events=[TEXT]), Frame(events=[STOP])], 1, True),
        ([whole(TEXT, Finished(reason="length"))], 1, True),
        ([whole(STOP)], 1, True),
        ([whole(ToolCallDelta(index=0, id="x", name="f"), Finished(reason="tool_calls"))], 1, True),
        ([whole(TEXT)], 1, False),
        ([], 1, False),
        ([Frame(events=[TEXT]), Frame(events=[])], 1, False),
        ([whole(TEXT, STOP)], 2, False),
        ([whole(TEXT, TextDelta(text="ho", choice=1), STOP)], 1, False),
        ([whole(TEXT, STOP, TextDelta(text="ho", choice=1), Finished(reason="stop", choice=1))], 2, True),
        ([whole(ReasoningDelta(text="hm", choice=1), STOP)], 1, False),
        ([whole(TEXT, STOP), Frame(events=[Failed(error=Cut("gone"))])], 1, False),
        ([Frame(events=[Failed(error=Cut("gone"))]), whole(TEXT, STOP)], 1, False),
        ([whole(TEXT, Finished(reason="error"))], 1, False),
    ],
)
def test_g17_only_complete_answers_are_stored(frames: list[Frame], n: int, stored: bool) -> None:
    assert (recorded(frames, n) is not None) == stored


def test_an_answer_beyond_the_limit_or_discarded_is_not_stored() -> None:
    frames = [Frame(events=[TextDelta(text="x" * 100)]) for _ in range(10)]
    assert recorded([*frames, whole(STOP)], max_bytes=5000) is not None
    assert recorded([*frames, whole(STOP)], max_bytes=1000) is None
    recorder = Recorder(1, 1000)
    recorder.add(whole(TEXT, STOP))
    recorder.discard()
    assert recorder.entry(0.0, Usage(), 0, ("b", "m")) is None


def test_weight_counts_what_a_frame_holds() -> None:
    frame = Frame(events=[TextDelta(text="abc", logprobs="[1]"), ToolCallDelta(index=0, arguments="{}")], wire=b"12", usage_wire=b"3")
    assert weight(frame) == 3 + 3 + 2 + 3 + 2 * 64


def test_frames_of_one_stream_are_replayed_as_one_with_all_their_bytes() -> None:
    stream = [
        Frame(events=[], wire=b": hi\n\n", dialect="d"),
        Frame(events=[Started(id="x", model="m")], wire=b"data: 1\n\n", dialect="d"),
        Frame(events=[TEXT], wire=b"data: 2\n\n", dialect="d"),
        Frame(events=[STOP], wire=b"data: 3\n\n", usage_wire=b"data: u\n\n", dialect="d"),
        Frame(events=[Metered(usage=Usage(output=1))], wire=b"", usage_wire=b"data: v\n\n", dialect="d"),
    ]
    entry = recorded(stream)
    assert entry is not None
    first, *rest = entry.replay()
    assert first.events == [Started(id="x", model="m"), TEXT, STOP]
    assert (first.wire, first.usage_wire, first.dialect, first.whole) == (
        b": hi\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n",
        b"data: u\n\n",
        "d",
        False,
    )
    assert [f.usage_wire for f in rest] == [b"data: v\n\n"]


def test_frames_with_and_without_wire_or_of_two_languages_stay_apart() -> None:
    frames = [Frame(events=[TEXT], wire=b"1", dialect="d"), Frame(events=[TEXT], dialect="d"), Frame(events=[TEXT, STOP], dialect="e")]
    entry = recorded(frames)
    assert entry is not None
    assert [(f.wire, f.dialect, len(f.events)) for f in entry.replay()] == [(b"1", "d", 1), (b"", "d", 1), (b"", "e", 2)]


def test_every_event_survives_storing() -> None:
    events = [
        Started(id="x", model="m", created=9),
        TextDelta(text="é\n", choice=0, logprobs='{"content": [{"logprob": -0.10}]}'),
        TextDelta(text="no", refusal=True),
        ReasoningDelta(text="t", signature="s", redacted="r"),
        ToolCallDelta(index=1, arguments='{"a":', id="c", name="f"),
        Finished(reason="stop"),
        Metered(usage=Usage(input=1, cache_read=2, output=3, reasoning=4, estimated=True, stated_nanousd=5)),
    ]
    frame = Frame(events=list(events), wire=b"\x00\xff\xe9", usage_wire=b"u", dialect="d", whole=True)
    entry = recorded([frame])
    assert entry is not None
    back = decode(encode(entry))
    (replayed,) = back.replay()
    assert (replayed.wire, replayed.usage_wire, replayed.dialect, replayed.whole) == (frame.wire, frame.usage_wire, "d", True)
    assert replayed.events == events
    assert (back.created, back.usage, back.cost, back.backend, back.model) == (5.0, Usage(input=1, output=2), 77, "backend", "model")


def test_pieces_of_one_text_are_stored_as_one() -> None:
    stream = [Frame(events=[TextDelta(text=t, choice=c)]) for t, c in (("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 0))]
    stream += [Frame(events=[TextDelta(text="f", logprobs="[1]")]), Frame(events=[TextDelta(text="g", logprobs="[1]")])]
    stream += [Frame(events=[TextDelta(text="h")]), Frame(events=[TextDelta(text="i")])]
    ends = [
        Frame(events=[STOP, Finished(reason="stop", choice=1)]),
        Frame(events=[TextDelta(text="j"), STOP, TextDelta(text="k"), Finished(reason="stop", choice=1)]),
    ]
    for end, last in zip(ends, (["hi"], ["hij", "k"]), strict=True):
        entry = recorded([*stream, end], n=2)
        assert entry is not None
        texts = [(e.text, e.choice) for f in entry.replay() for e in f.events if isinstance(e, TextDelta)]
        assert texts == [("ab", 0), ("cd", 1), ("e", 0), ("f", 0), ("g", 0), *((text, 0) for text in last)]


def test_a_replay_cannot_spoil_the_entry(entry: MakeEntry) -> None:
    stored = entry()
    stored.replay()[0].events.clear()
    assert stored.replay()[0].events
