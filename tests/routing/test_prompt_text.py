"""What is read off a prompt: the same for the same text, bounded for a long one, and never a failure."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.prompt_text import GRAM_BITS, MOST_CHARS, RARITY, SHAPE, WORD_BITS, read

QUESTION = "Which number is 12 more than 30?\nA. 42\nB. 18\nC. the number 360\nD. none of them\nAnswer:"


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=400) | st.text(alphabet="aA1.,\n?)$% \u0663\u20ac\ud800", max_size=400))
def test_any_text_is_read_into_bounded_finite_numbers(text: str) -> None:
    found = read(text)
    assert found == read(text)
    assert len(found.shape) == SHAPE and all(math.isfinite(number) for number in found.shape)
    assert all(0 <= gram < 1 << GRAM_BITS for gram in found.grams) and all(0 <= word < 1 << WORD_BITS for word in found.words)
    assert len(found.rarity(bytes(1 << WORD_BITS))) == RARITY


def test_grams_are_words_pairs_and_triples_in_any_case() -> None:
    assert len(read("one two three four").grams) == 4 + 3 + 2
    assert read("One TWO three").grams == read("one  two\nthree").grams
    assert read("a b").grams != read("b a").grams
    assert read("take 17 apples").grams == read("take 23 apples").grams, "a number counts by its length"
    assert read(QUESTION).grams == read(QUESTION.removesuffix("\nAnswer:")).grams


def test_the_shape_tells_a_choice_from_a_free_question() -> None:
    choice, free = read(QUESTION).shape, read("Which number is 12 more than 30?").shape
    options = choice[13:23]
    assert options[0] == 4.0 and options[7] == 2.0, "four answers, two of them numbers"
    assert free[13:23] == [0.0] * 10
    assert choice[23:25] == free[23:25] == [math.log1p(2)] * 2, "two numbers are in the question itself"


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    ends = "first words " + "x" * MOST_CHARS + " last words"
    assert read(ends).grams >= read("first words").grams | read("last words").grams
    assert len(read("many different words here " * 100_000).words) < MOST_CHARS


def test_rarity_is_by_the_levels_of_its_words() -> None:
    found = read("usual rare never")
    levels = dict(zip(found.words, (9, 2, 0), strict=True))
    mean, _, rare, low, unseen = found.rarity(levels)
    assert (round(mean, 3), round(rare, 3), low, round(unseen, 3)) == (3.667, 0.667, 0, 0.333)
    assert read("").rarity({}) == [0.0, 0.0, 1.0, 0, 1.0]
