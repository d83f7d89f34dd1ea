"""The event-stream parser against the WHATWG rules, whatever the reads look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sse import EventTooLarge, Parser


def parse(*reads: bytes) -> list[tuple[bytes, bytes | None]]:
    parser = Parser()
    found = []
    for block in [*(parser.feed(read) for read in reads), parser.close()]:
        found += [(event.name, event.data) for event in block.events]
    return found


def texts(*reads: bytes) -> list[bytes | None]:
    return [data for _, data in parse(*reads)]


def test_line_feed_carriage_return_and_both_end_lines():
    for end in (b"\n", b"\r", b"\r\n"):
        assert texts(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_mixed_line_ends():
    assert texts(b"data: a\r\n\ndata: b\n\r\ndata: c\r\rdata: d\n\n") == [b"a", b"b", b"c", b"d"]


def test_a_crlf_is_one_line_end():
    assert texts(b"data: a\r\ndata: b\r\n\r\n") == [b"a\nb"]


def test_several_data_lines_are_joined_by_a_line_feed():
    assert texts(b"data: a\ndata\ndata:b\n\n") == [b"a\n\nb"]


def test_only_one_space_after_the_colon_is_taken_off():
    assert texts(b"data:a\n\ndata: b\n\ndata:  c\n\n") == [b"a", b"b", b" c"]


def test_names_ids_and_unknown_fields():
    assert parse(b"event: error\nid: 7\nretry: 10\nfoo: bar\ndata: x\n\ndata: y\n\n") == [(b"error", b"x"), (b"", b"y")]


def test_only_events_of_data_and_comments_may_go_on_as_they_are():
    block = Parser().feed(b"data: a\n\n: comment\ndata: b\n\nevent: c\ndata: d\n\nid: 1\ndata: e\n\n")
    assert [event.plain for event in block.events] == [True, True, False, False]


def test_comments_and_blocks_without_data_have_none():
    assert texts(b": PROCESSING\n\nevent: ping\n\ndata: x\n\n") == [None, None, b"x"]


def test_byte_order_mark_is_taken_off_also_when_cut():
    for cut in range(5):
        stream = b"\xef\xbb\xbfdata: a\n\n"
        assert texts(stream[:cut], stream[cut:]) == [b"a"]


def test_extra_blank_lines_are_nothing():
    assert texts(b"\n\n\ndata: a\n\n\n\n\n\ndata: b\n\n\n") == [b"a", b"b"]


def test_an_end_without_a_blank_line_is_an_event_on_close():
    assert texts(b"data: a\n\ndata: b") == [b"a", b"b"]


def test_done_is_data():
    assert texts(b"data: [DONE]\n\njunk\n\n") == [b"[DONE]", None]


def test_places_are_those_of_the_bytes():
    for stream in (b"data: a\n\n: c\n\ndata: bb\n\nrest", b"data: a\r\n\r\n: c\r\n\r\ndata: bb\r\n\r\nrest"):
        block = Parser().feed(stream)
        assert b"".join(block.raw[event.start : event.end] for event in block.events) == block.raw == stream[:-4]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_event_over_the_limit_gives_up_whole_or_in_pieces(end):
    stream = b"data: " + b"x" * 100 + end + end
    Parser(len(stream)).feed(stream)
    for size in (1, 7, 1000):
        parser = Parser(len(stream) - 1)
        with pytest.raises(EventTooLarge):
            for at in range(0, len(stream), size):
                parser.feed(stream[at : at + size])


def test_g40_every_cut_of_text_with_wide_characters_gives_the_same_events():
    stream = "data: 日本語 🎉\r\n\r\ndata:e\u0301 ok\ndata: second\n\n: c\rdata: lone\r\rdata: [DONE]\n\n".encode()
    whole = parse(stream)
    assert [data for _, data in whole] == ["日本語 🎉".encode(), "e\u0301 ok\nsecond".encode(), b"lone", b"[DONE]"]
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == whole


line = st.sampled_from(
    [b"data: a", b"data:b", b"data", b": c", b"event: e", b"id: 1", b"", b"data: \xf0\x9f\x8e\x89", b"\xef\xbb\xbf", b"x"]
)
lines = st.lists(st.tuples(line, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=12)


@given(lines, st.lists(st.integers(1, 9), max_size=60))
def test_g40_any_chunking_gives_the_same_events(parts, sizes):
    stream = b"".join(text + end for text, end in parts)
    reads, at = [], 0
    for size in sizes:
        reads.append(stream[at : at + size])
        at += size
    assert parse(*reads, stream[at:]) == parse(*[bytes([byte]) for byte in stream]) == parse(stream)
