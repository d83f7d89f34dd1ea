"""Messages and tools of the chat language to the neutral model and back, without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.openai_chat.content import decode_messages, decode_tools, encode_messages, encode_tools
from providers.types import Audio, Call, Document, Image, Message, Opaque, Refusal, Text, Thinking, Tool


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def one(**members: Any) -> Message:
    (message,) = decode_messages(raw([{"role": "user", **members}]))
    return message


def part(**members: Any) -> Any:
    (found,) = one(content=[members]).content
    return found


def test_null_empty_text_and_no_parts_are_kept_apart():
    assert [one(content=value).content for value in (None, "", [])] == [None, "", ()]
    assert one().content is None


def test_every_kind_of_part():
    assert part(type="text", text="a") == Text("a")
    assert part(type="refusal", refusal="no") == Refusal("no")
    assert part(type="image_url", image_url={"url": "https://x/y.png", "detail": "low"}) == Image(url="https://x/y.png", detail="low")
    assert part(type="image_url", image_url={"url": "data:image/png;base64,AAA="}) == Image(data="AAA=", media_type="image/png")
    assert part(type="input_audio", input_audio={"data": "AAA=", "format": "wav"}) == Audio("AAA=", "wav")
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAA="}
    assert part(type="file", file=file) == Document(data="AAA=", media_type="application/pdf", name="a.pdf")
    assert part(type="file", file={"file_id": "file-1"}) == Document(file_id="file-1")


def test_cache_control_stays_on_its_part():
    found = part(type="text", text="a", cache_control={"type": "ephemeral"})
    assert json.loads(bytes(found.cache_control)) == {"type": "ephemeral"}


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "video_url", "video_url": {"url": "x"}},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a", "annotations": []},
        {"type": "image_url", "image_url": "https://x"},
        {"type": "image_url", "image_url": {"url": "https://x", "fps": 1}},
    ],
)
def test_parts_that_only_this_language_knows_stay_as_they_came(odd):
    found = part(**odd)
    assert isinstance(found, Opaque)
    assert (found.type, json.loads(bytes(found.raw))) == (odd["type"], odd)


def test_calls_and_their_results():
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert one(role="assistant", tool_calls=[call], content=None).calls == (Call("x", "f", '{"a":1}'),)
    assert one(role="tool", tool_call_id="x", content="1").call_id == "x"


def test_other_calls_and_members_stay_in_extra():
    custom = {"id": "x", "type": "custom", "custom": {"name": "f", "input": "a"}}
    message = one(role="assistant", tool_calls=[custom], reasoning_details=[{"a": 1}])
    assert message.calls == ()
    assert {name: json.loads(bytes(value)) for name, value in message.extra.items()} == {
        "tool_calls": [custom],
        "reasoning_details": [{"a": 1}],
    }


def test_reasoning_is_thinking_before_the_content():
    assert one(role="assistant", reasoning_content="hm", content="a").content == (Thinking("hm"), Text("a"))
    assert one(role="assistant", reasoning_content="hm").content == (Thinking("hm"),)


def test_g35_empty_arguments_are_written_as_an_empty_object():
    message = Message(role="assistant", calls=(Call("x", "f", ""),))
    (written,) = json.loads(bytes(encode_messages([message])))
    assert written["tool_calls"][0]["function"]["arguments"] == "{}"
    assert written["content"] is None


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"name": 7}, "messages[0].name"),
        ({"tool_call_id": 7}, "messages[0].tool_call_id"),
        ({"tool_calls": "x"}, "messages[0].tool_calls"),
        ({"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {}}}]}, "messages[0].tool_calls[0].function.arguments"),
        ({"content": [{"text": "a"}]}, "messages[0].content[0]"),
        ({"reasoning_content": 7}, "messages[0].reasoning_content"),
    ],
)
def test_wrong_members_are_named(members, param):
    with pytest.raises(DecodeError) as refused:
        one(**members)
    assert refused.value.param == param


def test_wrong_tools_are_named():
    for tool in ({"type": "function"}, {"type": "function", "function": "f"}, {"type": "function", "function": {}}):
        with pytest.raises(DecodeError) as refused:
            decode_tools(raw([tool]))
        assert (refused.value.param or "").startswith("tools[0].function")


words = st.text(max_size=6)
some = st.text(min_size=1, max_size=6)
base64 = st.text("AB+/=", max_size=8)
cache = st.none() | st.just(Raw(b'{"type":"ephemeral"}'))
parts = st.one_of(
    st.builds(Text, words, cache),
    st.builds(Refusal, words),
    st.builds(Image, url=st.just("https://x/y"), detail=st.none() | some, cache_control=cache),
    st.builds(Image, data=base64, media_type=st.just("image/png"), detail=st.none() | some, cache_control=cache),
    st.builds(Audio, base64, st.just("wav")),
    st.builds(Document, data=base64, media_type=st.just("application/pdf"), name=st.none() | some, cache_control=cache),
    st.builds(Document, file_id=some),
    st.builds(lambda x: Opaque("openai_chat", "video_url", Raw(json.dumps({"type": "video_url", "x": x}).encode())), words),
)
conversation = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
        content=st.none() | words | st.lists(parts, max_size=3).map(tuple) | st.builds(lambda t, p: (Thinking(t), p), words, parts),
        name=st.none() | some,
        calls=st.lists(st.builds(Call, some, some, st.just('{"a":1}')), max_size=2).map(tuple),
        call_id=st.none() | some,
        extra=st.dictionaries(some.map(lambda name: "x_" + name), st.just(Raw(b"[1, 2]")), max_size=1),
    ),
    max_size=3,
).map(tuple)


@given(conversation)
def test_messages_survive_encoding_and_decoding(messages):
    assert decode_messages(encode_messages(messages)) == messages


@given(
    st.lists(
        st.builds(
            Tool,
            name=some,
            description=st.none() | words,
            parameters=st.none() | st.just(Raw(b'{"type":"object"}')),
            strict=st.none() | st.booleans(),
            cache_control=cache,
            extra=st.sampled_from([{}, {"x": Raw(b"1")}, {"function.x": Raw(b"1"), "y": Raw(b"[]")}]),
        ),
        max_size=3,
    ).map(tuple)
)
def test_tools_survive_encoding_and_decoding(tools):
    assert decode_tools(encode_tools(tools)) == tools
