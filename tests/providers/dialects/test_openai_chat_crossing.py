"""Messages of other languages on their way into chat completions."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects.crossing import Crossing
from providers.dialects.openai_chat.content import CARRIES, encode_messages, encode_tools
from providers.errors import Unsupported
from providers.types import Call, Document, Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, Tool

CACHE = Raw(b'{"type":"ephemeral"}')
ALL = frozenset({"cache_control", "reasoning_details"})


def written(*messages: Message, takes: frozenset[str] = frozenset()) -> tuple[list[Any], list[str]]:
    crossing = Crossing(CARRIES, takes)
    return json.loads(bytes(encode_messages(crossing.messages(messages)))), crossing.dropped


def test_what_a_target_does_not_take_is_left_out_and_named():
    turns = (
        Message(role="user", content=(Text("a", CACHE),)),
        Message(
            role="assistant",
            content=(Thinking("hm", "s"), RedactedThinking("xyz"), Text("b", citations=Raw(b"[1]"))),
            calls=(Call("c", "f", "{}", CACHE),),
            extra={"news": Raw(b"1")},
        ),
    )
    found, dropped = written(*turns)
    assert found[0] == {"role": "user", "content": "a"}
    assert set(found[1]) == {"role", "content", "tool_calls"} and found[1]["content"] == "b"
    assert dropped == [
        *("messages.cache_control", "messages.news", "messages.thinking", "messages.thinking"),
        *("messages.citations", "messages.cache_control"),
    ]
    found, dropped = written(*turns, takes=ALL)
    assert found[0]["content"] == [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    assert found[1]["reasoning_content"] == "hm"
    assert found[1]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "hm", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "xyz"},
    ]
    assert dropped == ["messages.news", "messages.citations"]


def test_pictures_of_results_follow_all_results():
    image = Image(data="AA==", media_type="image/png")
    found, _ = written(
        Message(role="tool", call_id="a", content=(image,)),
        Message(role="tool", call_id="b", content=None, is_error=True),
        Message(role="tool", call_id="c", content=(Text("x"), Text("y")), is_error=True),
    )
    assert [message["role"] for message in found] == ["tool", "tool", "tool", "user"]
    assert [message["content"] for message in found[:3]] == [
        "(see the next message)",
        "Error: ",
        [{"type": "text", "text": "Error: x"}, {"type": "text", "text": "y"}],
    ]
    assert found[3]["content"][0] == {"type": "text", "text": "From the result of tool call a:"}
    assert found[3]["content"][1]["image_url"]["url"] == "data:image/png;base64,AA=="


def test_documents():
    text = base64.b64encode("héllo".encode()).decode()
    found, _ = written(
        Message(
            role="user",
            content=(
                Document(data="AA==", media_type="application/pdf"),
                Document(data=text, media_type="text/plain", name="a.txt"),
                Document(data=text, media_type="text/plain"),
            ),
        )
    )
    assert found[0]["content"] == [
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        {"type": "text", "text": "a.txt\n\nhéllo"},
        {"type": "text", "text": "héllo"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        Document(url="https://example.org/a.pdf"),
        Document(data="!", media_type="text/plain"),
        Opaque("anthropic_messages", "search_result", Raw(b"{}")),
    ],
)
def test_parts_without_a_counterpart_are_refused_by_message(part: Part):
    with pytest.raises(Unsupported, match=r"messages\[0\]") as refused:
        written(Message(role="user", content=(part,)))
    assert not refused.value.sent


def test_tools():
    tool = Tool(name="f", cache_control=CACHE, extra={"defer_loading": Raw(b"true")})
    crossing = Crossing(CARRIES)
    assert json.loads(bytes(encode_tools(crossing.tools([tool])))) == [{"type": "function", "function": {"name": "f"}}]
    assert crossing.dropped == ["tools.defer_loading", "tools.cache_control"]


def test_the_text_of_thinking_goes_where_it_is_taken_and_a_lost_signature_is_named():
    turn = Message(role="assistant", content=(Thinking("hm", "s"), RedactedThinking("xyz"), Text("b")))
    found, dropped = written(turn, takes=frozenset({"reasoning_content"}))
    assert found == [{"role": "assistant", "content": "b", "reasoning_content": "hm"}]
    assert dropped == ["messages.thinking.signature", "messages.thinking"]
    unsigned = Message(role="assistant", content=(Thinking("hm"), Text("b")))
    assert written(unsigned, takes=frozenset({"reasoning_content"})) == (found, [])
