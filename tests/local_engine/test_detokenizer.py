"""Pieces add up to the whole, no half characters, no part of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from local_engine.detokenizer import ByteTable, StopMatcher, TextStream, WindowDetokenizer
from local_engine.tokenizer import Tokenizer as LoadedTokenizer
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


def make_fallback_tokenizer() -> Tokenizer:
    """As Llama 2 and Mistral have it: spaces as marks, and a token for each byte that no other token has."""
    words = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁", "a", "b", "é", "日", "▁é", "�"]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>"))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    made.add_special_tokens([AddedToken("<s>", special=True)])
    return made


FALLBACK = make_fallback_tokenizer()
EURO = [2 + byte for byte in "€".encode()]
FALLBACK_IDS = st.lists(st.one_of(st.integers(258, 265), st.integers(2, 257), st.sampled_from([*EURO, 0, 1, 999])), max_size=20)


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> LoadedTokenizer:
    folder = tmp_path_factory.mktemp("fallback")
    FALLBACK.save(str(folder / "tokenizer.json"))
    return LoadedTokenizer(folder)


@given(ids=st.one_of(FALLBACK_IDS, st.lists(st.sampled_from([*EURO, 2 + 0xFF, 259, 260, 1]), max_size=12)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_add_up_with_byte_fallback_too(fallback: LoadedTokenizer, ids: list[int]) -> None:
    detokenizer = fallback.detokenizer()
    pieces = [detokenizer.push(token) for token in ids]
    whole = fallback.decode(ids)
    assert "".join(pieces) + detokenizer.finish() == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in pieces)


def test_the_bytes_of_a_lone_token_are_known_in_both_kinds_of_vocabulary(fallback: LoadedTokenizer) -> None:
    assert [fallback.bytes_of(token) for token in (EURO[0], 258, 262, 1, 999)] == [b"\xe2", b" the", "é".encode(), b"<s>", b""]
    assert TABLE.bytes_of(TOKENIZER.encode("a").ids[0]) == b"a"


@given(IDS, st.lists(st.text("the quickEND日😀", min_size=1, max_size=4), max_size=3), st.integers(0, 4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_g37_a_stream_is_the_decoding_up_to_its_first_stop_string_wherever_it_ends(
    ids: list[int], stops: list[str], min_tokens: int, at_limit: bool
) -> None:
    stream = TextStream(TABLE.detokenizer(), stops, min_tokens)
    shown, stopped, used = "", False, 0
    for number, token in enumerate(ids):
        text, stopped = stream.push(token, last=at_limit and number == len(ids) - 1)
        shown, used = shown + text, number + 1
        if stopped:
            break
    if not stopped and not at_limit:
        shown += stream.end()
    whole = decode(ids[:used])
    free = len(decode(ids[:min_tokens]).rstrip("\ufffd"))  # text of tokens before which no stop string counts
    assert whole.startswith(shown)
    assert not any(stop in shown[free:] for stop in stops)
    if not stopped:
        assert shown == whole
    else:
        assert any(whole[len(shown) :].startswith(stop) for stop in stops)


@pytest.mark.parametrize("stops", [["€"], ["a€b"], ["\ufffd"]])
def test_g38_a_stop_string_is_found_in_characters_that_come_in_pieces(stops: list[str]) -> None:
    ids = TOKENIZER.encode("xa€by").ids
    stream = TextStream(TABLE.detokenizer(), stops)
    shown = ""
    for token in ids:
        text, stopped = stream.push(token, last=token is ids[-1])
        shown += text
        if stopped:
            break
    assert (shown, stopped) == {"€": ("xa", True), "a€b": ("x", True), "\ufffd": ("xa€by", False)}[stops[0]]


def test_an_end_that_is_no_text_flushes_what_was_held() -> None:
    stream = TextStream(Words(["DEF", "G"]), ["DEFGHIJ"])
    assert [stream.push(0), stream.push(1), stream.end()] == [("", False), ("", False), "DEFG"]
