"""What routing and money read of messages and tools."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw, Struct

from providers.dialects import DecodeError
from providers.dialects.look import Look, messages, odd_content, peek
from providers.types import Request


class Peek(Struct):
    role: str


decode = msgspec.json.Decoder(list[Peek]).decode


def test_tools_of_a_vendor_bind_a_request():
    look = Look(set(), [])
    look.tools({"tools": Raw(b'[{},{"type":"own"},{"type":"web_search","x":1}]')}, "own")
    assert (look.needs, look.unknown, look.prompt_bytes) == ({"tools"}, ["tools[2].type=web_search"], 47)
    for nothing in ({}, {"tools": Raw(b"null")}):
        look = Look(set(), [])
        look.tools(nothing, "own")
        assert (look.needs, look.unknown, look.prompt_bytes) == (set(), [], 0)


def test_media_are_counted_and_are_no_text():
    look = Look({"n"}, ["x"])
    look.text({"a": Raw(b'"1234"')}, "a", "b")
    look.payload("images", Raw(b'"12"'))
    request = look.into(Request(dialect="d", fields={}, model="m"))
    assert (request.needs, request.unknown, request.media, request.prompt_bytes) == (frozenset({"n", "images"}), ("x",), 1, 2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": Raw(b"[]")}, "messages"),
        ({"messages": Raw(b"5")}, "messages"),
        ({"messages": Raw(b'[{"role":"a"},{"role":5}]')}, "messages[1].role"),
    ],
)
def test_messages_that_cannot_be_read_are_named(fields: dict[str, Raw], param: str):
    with pytest.raises(DecodeError) as refused:
        messages(decode, Look(set(), []), fields)
    assert refused.value.param == param


def test_lists_and_contents_that_cannot_be_read_are_named():
    with pytest.raises(DecodeError) as refused:
        peek(decode, Raw(b"{}"), "tools", "a list")
    assert refused.value.param == "tools" and "a list" in refused.value.message
    assert odd_content(2, "a text").param == "messages[2].content"
