"""Pieces add up to the whole, no half characters, no part of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.detokenizer import ByteTable, StopMatcher, TextStream, WindowDetokenizer
from tests.local_engine.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
TABLE = ByteTable(TOKENIZER)
IDS = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=30)


def decode(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=True)


class Words:
    """A detokenizer whose tokens are given words, for exact token boundaries."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def push(self, token: int) -> str:
        return self.words[token]

    def finish(self) -> str:
        return ""


def play(words: list[str], stops: list[str]) -> tuple[list[str], bool]:
    stream = TextStream(Words(words), stops)
    pieces = []
    for index in range(len(words)):
        text, stopped = stream.push(index, last=index == len(words) - 1)
        pieces.append(text)
        if stopped:
            return pieces, True
    return pieces, False


@given(IDS)
@settings(max_examples=200, deadline=None)
def test_pieces_add_up_to_the_decoding_of_all_ids(ids: list[int]) -> None:
    detokenizer = TABLE.detokenizer()
    assert "".join(map(detokenizer.push, ids)) + detokenizer.finish() == decode(ids)


@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_text_comes_back_without_replacement_characters_in_any_piece(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    for detokenizer in (TABLE.detokenizer(), WindowDetokenizer(decode)):
        pieces = [detokenizer.push(token) for token in ids]
        assert "".join(pieces) + detokenizer.finish() == decode(ids)
        if "\ufffd" not in decode(ids):
            assert not any("\ufffd" in piece for piece in pieces)


def test_g38_a_character_split_over_tokens_comes_out_whole() -> None:
    ids = TOKENIZER.encode("𝄞").ids
    assert len(ids) == 4  # its bytes
    detokenizer = TABLE.detokenizer()
    assert [detokenizer.push(token) for token in ids] == ["", "", "", "𝄞"]
    assert detokenizer.finish() == ""


def test_g38_half_a_character_at_the_end_is_flushed_once() -> None:
    ids = TOKENIZER.encode("a𝄞").ids[:-1]
    stream = TextStream(TABLE.detokenizer())
    pieces = [stream.push(token, last=token is ids[-1])[0] for token in ids]
    assert "".join(pieces) == decode(ids) == "a\ufffd"
    assert pieces[:-1] == ["a", "", ""]


def test_g37_a_stop_string_over_several_tokens_never_leaks() -> None:
    assert play(["DEF", "G", "HI", "J", "K"], ["DEFGHIJ"]) == (["", "", "", ""], True)


def test_g37_cut_by_the_limit_what_was_held_is_delivered() -> None:
    assert play(["DEF"], ["DEFGHIJ"]) == (["DEF"], False)


@pytest.mark.parametrize(
    ("words", "stops", "shown", "stopped"),
    [
        (["a", "EN", "D b"], ["END"], "a", True),
        (["a", "EN", "C"], ["END"], "aENC", False),
        (["xab", "ab", "c"], ["ababc"], "x", True),  # a false start inside the real one
        (["one END two STOP"], ["STOP", "END"], "one ", True),  # the first in the text, not in the list
        (["E", "N", "E", "N", "D"], ["END"], "EN", True),
    ],
)
def test_stop_strings(words: list[str], stops: list[str], shown: str, stopped: bool) -> None:
    pieces, ended = play(words, stops)
    assert ("".join(pieces), ended) == (shown, stopped)


@given(st.lists(st.text("ab", max_size=3), max_size=10), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_what_is_shown_is_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown, stopped = "", False
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown += text
        if stopped:
            break
    else:
        shown += matcher.finish()
    assert stopped == any(stop in "".join(pieces) for stop in stops)
    assert not any(stop in shown for stop in stops)
    assert "".join(pieces).startswith(shown)


def test_stop_strings_count_only_beyond_min_tokens() -> None:
    stream = TextStream(Words(["END", "END", "END"]), ["END"], min_tokens=2)
    assert [stream.push(i) for i in range(3)] == [("END", False), ("END", False), ("", True)]
