"""Messages and tools of the messages language to the neutral model and back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.anthropic_messages.content import CARRIES, NAME, decode_messages, decode_tools, encode_messages, encode_tools
from providers.dialects.crossing import Crossing
from providers.errors import Rejected, Unsupported
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Text, Thinking, Tool

CACHE = Raw(b'{"type":"ephemeral"}')


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def written(*messages: Message, takes: frozenset[str] = frozenset()) -> tuple[dict[str, Any], list[str]]:
    crossing = Crossing(CARRIES, takes)
    found = encode_messages(crossing.messages(messages))
    return {name: json.loads(bytes(value)) for name, value in found.items()}, crossing.dropped


def read(messages: list[Any], system: Any = None) -> tuple[Message, ...]:
    return decode_messages(raw(messages), raw(system))


# ---- from the wire ------------------------------------------------------------------------------------------------------------------
def test_results_become_messages_of_their_own():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "map"}, image]},
        {"type": "tool_result", "tool_use_id": "b", "content": "none", "is_error": True, "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "go on"},
    ]
    assert read([{"role": "user", "content": blocks}]) == (
        Message(role="tool", call_id="a", content=(Text("map"), Image(data="AA==", media_type="image/png"))),
        Message(role="tool", call_id="b", content="none", is_error=True, extra={"cache_control": CACHE}),
        Message(role="tool", call_id="c"),
        Message(role="user", content=(Text("go on"),)),
    )


def test_an_assistants_turn():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "So", "citations": [{"a": 1}]},
        {"type": "text", "text": "x", "citations": None},
        {
            "type": "tool_use",
            "id": "a",
            "name": "f",
            "input": {"é": [1]},
            "caller": {"type": "direct"},
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    assert read([{"role": "assistant", "content": blocks}], "Be kind.") == (
        Message(role="system", content="Be kind."),
        Message(
            role="assistant",
            content=(Thinking("hm", "s=="), RedactedThinking("xyz"), Text("So", citations=raw([{"a": 1}])), Text("x")),
            calls=(Call("a", "f", '{"é":[1]}', CACHE), Call("b", "f", "{}")),
        ),
    )


def test_documents_in_their_forms():
    def block(source: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"type": "document", "source": source, **more}

    sources = [
        block({"type": "base64", "media_type": "application/pdf", "data": "AA=="}, title="a.pdf"),
        block({"type": "text", "media_type": "text/plain", "data": "héllo"}),
        block({"type": "url", "url": "https://example.org/a.pdf"}),
    ]
    found = read([{"role": "user", "content": sources}])[0].content
    assert found == (
        Document(data="AA==", media_type="application/pdf", name="a.pdf"),
        Document(data=base64.b64encode("héllo".encode()).decode(), media_type="text/plain"),
        Document(url="https://example.org/a.pdf"),
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}, "citations": {"enabled": True}},
        {"type": "document", "source": {"type": "content", "content": []}},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": {"type": "code_execution_20250825"}},
        {"type": "search_result", "source": "x", "title": "t", "content": []},
    ],
)
def test_blocks_of_this_language_alone_stay_as_they_came(block: dict[str, Any]):
    message = read([{"role": "assistant", "content": [block]}])[0]
    assert message.content == (Opaque(NAME, block["type"], raw(block)),)
    assert written(message)[0]["messages"] == [{"role": "assistant", "content": [block]}]


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (5, "messages[0].content"),
        ([5], "messages[0].content[0]"),
        ([{"text": "x"}], "messages[0].content[0]"),
        ([{"type": "tool_result", "content": "x"}], "messages[0].content[0].tool_use_id"),
        ([{"type": "tool_result", "tool_use_id": "a", "content": 5}], "messages[0].content[0].content"),
    ],
)
def test_what_cannot_be_read_is_named(content: Any, param: str):
    with pytest.raises(DecodeError) as refused:
        read([{"role": "user", "content": content}])
    assert refused.value.param == param


# ---- to the wire, from other languages ----------------------------------------------------------------------------------------------
def test_system_messages_go_to_the_top_wherever_they_stand():
    found, _ = written(
        Message(role="system", content="A"),
        Message(role="user", content="hi"),
        Message(role="developer", content=(Text("B", CACHE),)),
    )
    assert found == {
        "system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_results_of_parallel_calls_are_one_message():
    found, dropped = written(
        Message(role="assistant", calls=(Call("call.1", "f", '{"a": 1}'), Call("", "g", ""))),
        Message(role="tool", call_id="call.1", content="x", is_error=True),
        Message(role="tool", call_id="", content=(Text("y"), Image(data="AA==", media_type="image/png"))),
        Message(role="user", content="next", name="ann"),
    )
    assert found["messages"] == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "call", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "x", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "call",
                    "content": [
                        {"type": "text", "text": "y"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    ],
                },
            ],
        },
        {"role": "user", "content": "next"},
    ]
    assert dropped == ["messages.name"]


def test_thinking_without_its_signature_never_goes_out():
    turn = Message(role="assistant", content=(Thinking("unsigned"), Thinking("signed", "s"), Text("x")))
    found, dropped = written(turn)
    assert [block["type"] for block in found["messages"][0]["content"]] == ["thinking", "text"]
    assert dropped == ["messages.reasoning_content"]
    found, dropped = written(turn, takes=frozenset({"unsigned_thinking"}))
    assert len(found["messages"][0]["content"]) == 3 and dropped == []


def test_refusals_empty_turns_and_small_losses():
    found, dropped = written(
        Message(role="user", content=(Image(url="https://example.org/a.png", detail="low"),)),
        Message(role="assistant", content=None, extra={"refusal": Raw(b'"No."'), "annotations": Raw(b"[]")}),
        Message(role="assistant", content=(Refusal("Never."), Text(""))),
        Message(role="assistant", content=""),
    )
    assert found["messages"] == [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Never."}]},
    ]
    assert dropped == ["messages.image_url.detail", "messages.annotations"]


@pytest.mark.parametrize(
    "part",
    [
        Audio("AA==", "wav"),
        Document(file_id="file-1"),
        Document(data="\x00", media_type="text/plain"),
        Opaque("openai_chat", "custom", Raw(b"{}")),
    ],
)
def test_parts_without_a_counterpart_are_refused_by_message(part: Part):
    with pytest.raises(Unsupported, match=r"messages\[1\]") as refused:
        written(Message(role="user", content="hi"), Message(role="user", content=(part,)))
    assert not refused.value.sent


def test_calls_of_other_kinds_are_refused():
    for message in (Message(role="function", content="x"), Message(role="assistant", extra={"function_call": Raw(b"{}")})):
        with pytest.raises(Unsupported):
            written(message)


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', "5", "nonsense"])
def test_g35_broken_arguments_are_refused_by_name(arguments: str):
    with pytest.raises(Rejected) as refused:
        written(Message(role="assistant", calls=(Call("a", "f", arguments),)))
    assert refused.value.param == "messages[0].tool_calls[0].function.arguments" and not refused.value.sent


# ---- tools --------------------------------------------------------------------------------------------------------------------------
def test_tools():
    own = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True, "defer_loading": True}
    found = decode_tools(
        raw([{**own, "type": "custom", "cache_control": {"type": "ephemeral"}}, {"type": "bash_20250124", "name": "bash"}])
    )
    expected = Tool(
        name="f",
        description="d",
        parameters=raw({"type": "object"}),
        strict=True,
        cache_control=CACHE,
        extra={"defer_loading": Raw(b"true")},
    )
    assert found == (expected,)
    assert json.loads(bytes(encode_tools(found))) == [{**own, "cache_control": {"type": "ephemeral"}}]
    assert json.loads(bytes(encode_tools([Tool(name="g")]))) == [{"name": "g", "input_schema": {"type": "object"}}]
    with pytest.raises(DecodeError):
        decode_tools(raw([{"description": "no name"}]))


# ---- decode(encode(x)) == x ---------------------------------------------------------------------------------------------------------
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
ids = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
cache = st.none() | st.just(CACHE)
data = st.binary(max_size=6).map(lambda value: base64.b64encode(value).decode())
texts = st.builds(Text, words, cache, st.none() | st.just(raw([{"cited_text": "x"}])))
images = st.builds(Image, data=data, media_type=st.just("image/png"), cache_control=cache) | st.builds(
    Image, url=words, cache_control=cache
)
plain = words.map(lambda text: base64.b64encode(text.encode()).decode())
documents = (
    st.builds(Document, data=data, media_type=st.just("application/pdf"), name=st.none() | words, cache_control=cache)
    | st.builds(Document, data=plain, media_type=st.just("text/plain"), name=st.none() | words)
    | st.builds(Document, url=words)
)
opaque = st.builds(lambda n: Opaque(NAME, "server_tool_use", raw({"type": "server_tool_use", "n": n})), st.integers())
thoughts = st.builds(Thinking, st.text(max_size=4), words) | st.builds(RedactedThinking, words)
objects = st.dictionaries(words, st.integers() | words, max_size=2).map(lambda value: bytes(raw(value)).decode())
calls = st.builds(Call, ids, words, objects, cache)


def some(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(parts, min_size=1, max_size=3).map(tuple)


users = st.builds(Message, role=st.just("user"), content=words | some(texts | images | documents | opaque))
results = st.builds(
    Message,
    role=st.just("tool"),
    call_id=ids,
    content=st.none() | words | some(texts | images | documents),
    is_error=st.none() | st.booleans(),
    extra=st.just({}) | st.just({"cache_control": CACHE}),
)
assistants = st.builds(Message, role=st.just("assistant"), content=words | some(texts | thoughts | opaque)) | st.builds(
    Message, role=st.just("assistant"), content=st.none() | some(texts | thoughts), calls=some(calls)
)
systems = st.lists(st.builds(Message, role=st.just("system"), content=words | some(texts)), max_size=1)


@given(systems, st.lists(users | results | assistants, max_size=5))
def test_messages_survive_the_wire(system, turns):
    messages = (*system, *turns)
    found = encode_messages(messages)
    assert decode_messages(found["messages"], found.get("system", Raw(b"null"))) == messages


tools = st.builds(
    Tool,
    name=words,
    description=st.none() | words,
    parameters=st.just(raw({"type": "object"})),
    strict=st.none() | st.booleans(),
    cache_control=cache,
    extra=st.just({}) | st.just({"defer_loading": Raw(b"true")}),
)


@given(st.lists(tools, max_size=3).map(tuple))
def test_tools_survive_the_wire(found):
    assert decode_tools(encode_tools(found)) == found


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "hm", "signature": True},
        {"type": "thinking", "thinking": ["hm"]},
        {"type": "redacted_thinking", "data": 5},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": None}},
        {"type": "image", "source": {"type": "base64", "media_type": 5, "data": "AA=="}},
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "image", "source": {"type": "url"}},
        {"type": "image", "source": {"type": "url", "url": ["https://a.example/b.png"]}},
        {"type": "image", "source": {"type": ["base64"], "data": "AA=="}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": {}}},
        {"type": "document", "source": {"type": "base64", "media_type": None, "data": "AA=="}},
        {"type": "document", "source": {"type": "url", "url": 5}},
    ],
)
def test_a_block_with_a_member_of_a_wrong_type_stays_as_it_came(block):
    """It goes to a backend of this language, whose vendor says what is wrong; another language never gets `data:None;base64,True`."""
    [message] = read([{"role": "assistant", "content": [block]}])
    assert message.content == (Opaque(NAME, block["type"], raw(block)),)
