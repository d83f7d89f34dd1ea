"""Small readers: strict for clients, lenient for servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects import rawjson as read


def test_strict_readers_name_the_place():
    members = {"a": Raw(b'"x"'), "b": Raw(b"null"), "c": Raw(b"5")}
    assert (read.optional(members, "a", "p"), read.optional(members, "b", "p"), read.optional(members, "d", "p")) == ("x", None, None)
    assert list(members) == ["c"]
    for call in (lambda: read.optional(members, "c", "p"), lambda: read.string(Raw(b"5"), "p.c"), lambda: read.typed(Raw(b"{}"), "p.c")):
        with pytest.raises(DecodeError) as refused:
            call()
        assert refused.value.param == "p.c"
    assert read.typed(Raw(b'{"type":"t"}'), "p") == {"type": "t"}


def test_a_content_is_a_text_or_parts_each_with_its_place():
    assert read.parts_of(Raw(b'"hi"'), "p", lambda *part: part) == "hi"
    found = read.parts_of(Raw(b'[{"type":"a"},{"type": "b"}]'), "p", lambda *part: part)
    assert found == [(Raw(b'{"type":"a"}'), {"type": "a"}, "p[0]"), (Raw(b'{"type": "b"}'), {"type": "b"}, "p[1]")]
    for raw, place in ((b'[{"type":"a"},{}]', "p[1]"), (b"5", "p"), (b"null", "p"), (b"{}", "p")):
        with pytest.raises(DecodeError) as refused:
            read.parts_of(Raw(raw), "p", lambda *part: part, "a text or a list of parts")
        assert refused.value.param == place


def test_what_says_nothing_is_left_out():
    members = {"a": Raw(b"1"), "b": Raw(b"null"), "c": Raw(b"2")}
    assert read.kept(members, {"a"}) == {"c": Raw(b"2")}
    assert (read.copied(members, "a"), read.copied(members, "b"), read.copied(members, "z")) == (Raw(b"1"), None, None)
    assert read.written({"a": 0, "b": None, "c": ""}) == {"a": 0, "c": ""}
    assert read.as_fields({"a": Raw(b"1"), "b": None, "c": "x"}) == {"a": Raw(b"1"), "c": Raw(b'"x"')}


def test_lenient_readers_take_what_servers_write():
    assert [read.text(value) for value in ("a", None, 5)] == ["a", "", "5"]
    assert [read.number(value) for value in (5, -1, True, "5", None, 1 << 60)] == [5, None, None, None, None, None]
    assert [read.text_or_json(value) for value in ("a", None, {"b": 1})] == ["a", "", '{"b":1}']


@pytest.mark.parametrize(("text", "found"), [("", b"{}"), (" null ", b"{}"), ('{"a": 1}', b'{"a": 1}'), ('{"a', None), ("[1]", None)])
def test_arguments_are_an_object_or_nothing(text: str, found: bytes | None):
    made = read.object_or_none(text)
    assert (None if made is None else bytes(made)) == found


@pytest.mark.parametrize("url", ["https://x/y", "data:image/png,AA", "data:image/png;x=y;base64,AA", "data:image/png;base64"])
def test_other_addresses_are_no_data(url: str):
    assert read.data_of(url) is None


@given(st.text(st.characters(codec="utf-8")))
def test_texts_and_data_addresses_come_back(plain: str):
    data = read.text_to_base64(plain)
    assert read.base64_to_text(data) == plain
    assert read.data_of(read.data_url("text/plain", data)) == ("text/plain", data)


@pytest.mark.parametrize("data", ["!", "/w==", "A"])
def test_what_is_no_text_is_none(data: str):
    assert read.base64_to_text(data) is None


def test_of_a_list_the_objects_alone():
    assert read.objects([{"a": 1}, None, "x", {}]) == [{"a": 1}, {}]
    assert read.objects({"a": 1}) == read.objects(None) == []
