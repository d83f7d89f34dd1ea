"""Items and tools of the responses language to the neutral model and back, for everything that its table has."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.openai_responses.content import NAME, decode_items, encode_messages, encode_tools, read_messages, read_tools
from providers.dialects.openai_responses.requests import decode_request
from providers.errors import Rejected
from providers.types import Audio, Call, Document, Image, Message, Opaque, Part, RedactedThinking, Refusal, Request, Text, Thinking, Tool

EPHEMERAL = Raw(b'{"type":"ephemeral"}')


def dumped(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def asked(**members: Any) -> Request:
    return decode_request(bytes(dumped({"model": "m", "input": "hi", **members})))


def to_items(*messages: Message) -> Any:
    return json.loads(bytes(encode_messages(messages)["input"]))


def of(*items: Any) -> tuple[Message, ...]:
    return decode_items(dumped(list(items)))


# ---- items --------------------------------------------------------------------------------------------------------------------------
def test_a_text_and_instructions() -> None:
    assert read_messages(asked(instructions="Be brief.")) == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="hi"),
    )
    assert read_messages(asked(input=[{"role": "developer", "content": "x"}])) == (Message(role="developer", content="x"),)


def test_what_an_assistant_did_in_a_row_is_one_message_and_comes_out_in_order() -> None:
    items = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}], "phase": "commentary"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "message", "role": "assistant", "content": "done"},
    ]
    found = of(*items)
    assert found == (
        Message(role="user", content="hi"),
        Message(
            role="assistant",
            content=(Thinking("hm", 'tollway:openai_responses:{"encrypted_content":"gAAA"}'), Text("I look.")),
            calls=(Call("c1", "f", "{}"), Call("c2", "g", '{"a": 1}')),
            extra={"phase": Raw(b'"commentary"')},
        ),
        Message(role="tool", call_id="c1", content="one"),
        Message(role="tool", call_id="c2", content=(Text("two"),)),
        Message(role="assistant", content="done"),
    )
    assert to_items(*found) == items


def test_what_says_nothing_without_stored_state_is_left_out() -> None:
    text = {"type": "output_text", "text": "a", "annotations": [], "logprobs": [{"token": "a"}]}
    found = of(
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "f", "arguments": "", "caller": None},
    )
    assert found == (Message(role="assistant", content=(Text("a"),), calls=(Call("c", "f", ""),)),)


def test_citations_of_an_earlier_answer_are_kept() -> None:
    cited = {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}]}
    (found,) = of({"type": "message", "role": "assistant", "content": [cited]})
    assert found.content == (Text("a", None, Raw(b'[{"type":"url_citation","url":"u"}]')),)
    assert to_items(found) == [{"type": "message", "role": "assistant", "content": [cited]}]


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({"summary": []}, None),
        ({"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}, Thinking("a\n\nb")),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]}, Thinking("raw")),
        ({"summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "raw"}]}, Thinking("raw")),
        ({"id": "rs_1", "summary": [], "encrypted_content": "gA"}, RedactedThinking('tollway:openai_responses:{"encrypted_content":"gA"}')),
        (
            {"summary": [], "encrypted_content": "g", "format": "google-gemini-v1", "status": "completed"},
            RedactedThinking('tollway:openai_responses:{"encrypted_content":"g","format":"google-gemini-v1"}'),
        ),
        ({"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "tollway:signature:EqQB"}, Thinking("s", "EqQB")),
        ({"summary": [], "encrypted_content": "tollway:signature:EqQB"}, Thinking("", "EqQB")),
        ({"summary": [], "encrypted_content": "tollway:redacted:HIDDEN"}, RedactedThinking("HIDDEN")),
        ({"summary": None, "encrypted_content": None}, None),
    ],
)
def test_reasoning_of_every_form(item: dict[str, Any], part: Part | None) -> None:
    found = of({"type": "reasoning", **item}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]})
    assert found == (Message(role="assistant", content=(*(() if part is None else (part,)), Refusal("no"))),)


def test_reasoning_that_is_not_encrypted_goes_out_as_its_text() -> None:
    assert to_items(Message(role="assistant", content=(Thinking("raw"),))) == [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]}
    ]


def test_a_broken_seal_is_the_clients_mistake() -> None:
    for broken in ("tollway:openai_responses:{", "tollway:openai_responses:7"):
        with pytest.raises(Rejected) as refused:
            to_items(Message(role="assistant", content=(RedactedThinking(broken),)))
        assert "send it back unchanged" in refused.value.message


PNG = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "input_text", "text": "a"}, Text("a")),
        ({"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}, Text("a", EPHEMERAL)),
        ({"type": "input_text", "text": "a", "prompt_cache_breakpoint": None}, Text("a")),
        ({"type": "input_image", "image_url": "https://x/y.png", "detail": "low"}, Image(url="https://x/y.png", detail="low")),
        ({"type": "input_image", "image_url": PNG, "file_id": None}, Image(data="AAAA", media_type="image/png")),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
            Document(data="AAAA", media_type="application/pdf", name="a.pdf"),
        ),
        ({"type": "input_file", "file_url": "https://x/a.pdf"}, Document(url="https://x/a.pdf")),
        ({"type": "input_file", "file_id": "file-1"}, Document(file_id="file-1")),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, Audio("AA", "wav")),
    ],
)
def test_parts_of_a_users_message(part: dict[str, Any], expected: Part) -> None:
    (found,) = of({"role": "user", "content": [part]})
    assert found.content == (expected,)
    says = {name: value for name, value in part.items() if value is not None}
    assert to_items(found) == [{"type": "message", "role": "user", "content": [says]}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_data": "AAAA", "detail": "high"},
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
        {"type": "input_text", "text": 7},
        {"type": "input_video", "url": "u"},
    ],
)
def test_parts_that_only_this_language_has_stay_as_they_came(part: dict[str, Any]) -> None:
    (found,) = of({"role": "user", "content": [part]})
    assert found.content == (Opaque(NAME, part["type"], dumped(part)),)
    assert to_items(found)[0]["content"] == [part]


def test_items_that_only_this_language_has_stay_as_they_came_and_in_order() -> None:
    items = [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "found"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "y"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "message", "role": "user", "content": "go on"},
    ]
    found = of(*items)
    assert [message.role for message in found] == ["assistant", "user", "user", "user"]
    assert to_items(*found) == items


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c", "name": 7, "arguments": "{}"}, "input[0].name"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"role": "user", "content": {"a": 1}}, "input[0].content"),
        ({"role": "user", "content": [{"text": "x"}]}, "input[0].content[0]"),
    ],
)
def test_what_is_wrong_inside_an_item_is_named(item: dict[str, Any], param: str) -> None:
    with pytest.raises(DecodeError) as refused:
        of(item)
    assert refused.value.param == param


# ---- tools --------------------------------------------------------------------------------------------------------------------------
def test_functions_and_no_others() -> None:
    function = {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": {"type": "object"},
        "strict": True,
        "defer_loading": True,
    }
    found = read_tools(asked(tools=[{"type": "web_search"}, function, {"name": "g", "parameters": None, "strict": None}]))
    assert found == (
        Tool(name="f", description="d", parameters=Raw(b'{"type":"object"}'), strict=True, extra={"defer_loading": Raw(b"true")}),
        Tool(name="g"),
    )
    assert json.loads(bytes(encode_tools(found))) == [function, {"type": "function", "name": "g", "strict": False}]
    assert read_tools(asked()) == ()
    with pytest.raises(DecodeError) as refused:
        read_tools(asked(tools=[{"type": "function"}]))
    assert refused.value.param == "tools[0].name"


# ---- decode(encode(x)) == x ---------------------------------------------------------------------------------------------------------
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
base64s = st.binary(min_size=1, max_size=6).map(lambda data: base64.b64encode(data).decode())
caches = st.sampled_from([None, EPHEMERAL])
citations = st.sampled_from([None, Raw(b'[{"type":"url_citation","url":"u"}]')])
details = st.sampled_from([None, "low", "auto"])
texts = st.builds(Text, text=words, cache_control=caches)
images = st.builds(Image, url=words.map("https://x/".__add__), detail=details, cache_control=caches) | st.builds(
    Image, data=base64s, media_type=st.just("image/png"), detail=details, cache_control=caches
)
documents = st.builds(
    Document, data=base64s, media_type=st.just("application/pdf"), name=st.none() | words, cache_control=caches
) | st.builds(Document, url=words.map("https://x/".__add__), cache_control=caches)
clips = st.builds(Audio, data=base64s, format=st.sampled_from(["wav", "mp3"]))
sealed = base64s.map(lambda data: f'tollway:openai_responses:{{"encrypted_content":"{data}"}}')
thoughts = st.builds(Thinking, text=words, signature=st.none() | sealed | base64s) | st.builds(RedactedThinking, data=sealed | base64s)
thoughts |= st.builds(Thinking, text=st.just(""), signature=base64s)
server_items = words.map(lambda text: Opaque(NAME, "web_search_call", dumped({"type": "web_search_call", "id": text})))
calls = st.lists(st.builds(Call, id=words, name=words, arguments=st.sampled_from(["{}", '{"a":1}', '{"a":'])), max_size=3).map(tuple)


def parted(*kinds: Any, least: int = 1) -> Any:
    return st.lists(st.one_of(*kinds), min_size=least, max_size=4).map(tuple)


said = st.builds(Text, text=words, citations=citations) | st.builds(Refusal, text=words)
asking = st.builds(Message, role=st.sampled_from(["system", "developer", "user"]), content=words | parted(texts, images, documents, clips))
answered = st.builds(Message, role=st.just("assistant"), content=words | parted(said, thoughts, server_items), calls=calls)
called = st.builds(Message, role=st.just("assistant"), content=st.none(), calls=calls.filter(bool))
results = st.builds(Message, role=st.just("tool"), call_id=words, content=words | parted(texts, images, documents, least=0))
exchanges = st.tuples(asking, answered | called, results)  # one turn of the assistant at a time


@given(st.lists(exchanges, max_size=3).map(lambda turns: tuple([message for turn in turns for message in turn])))
def test_messages_survive_the_wire(messages: tuple[Message, ...]) -> None:
    assert decode_items(encode_messages(messages)["input"]) == messages


tools = st.builds(
    Tool,
    name=words,
    description=st.none() | words,
    parameters=st.sampled_from([None, Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}')]),
    strict=st.booleans(),
    extra=st.sampled_from([{}, {"defer_loading": Raw(b"true")}]),
)


@given(st.lists(tools, max_size=3).map(tuple))
def test_tools_survive_the_wire(wanted: tuple[Tool, ...]) -> None:
    assert read_tools(asked(tools=json.loads(bytes(encode_tools(wanted))))) == wanted
