from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.control_tokens import MARKS, ControlTokens, unmarked

NAMES = ["<|im_start|>", "<|im_end|>", "<s>", "ab", "bc", "x"]
PIECES = st.lists(st.sampled_from([*NAMES, "a", "b", "c", "<|im_", "end|>", "日", " "]), max_size=8).map("".join)


@given(st.lists(st.dictionaries(PIECES, PIECES, max_size=3), max_size=4))
def test_marks_are_undone_and_lie_inside_every_name(value: list[dict[str, str]]) -> None:
    marked, mark = ControlTokens(NAMES).marked(value)
    before, after = json.dumps(value, ensure_ascii=False), json.dumps(marked, ensure_ascii=False)
    text, breaks = unmarked(after, mark)
    assert text == before
    found = [at + 1 for at in range(len(text)) for name in NAMES[:-1] if text.startswith(name, at)]
    assert list(breaks) == sorted(set(found))  # "x" is one character: as good as text


def test_a_mark_is_a_character_that_nobody_wrote() -> None:
    tokens = ControlTokens(["<s>"])
    assert tokens.marked(["<s>" + MARKS[0]]) == (["<" + MARKS[1] + "s>" + MARKS[0]], MARKS[1])
    assert tokens.marked(["no token", 3, None]) == (["no token", 3, None], "")
    with pytest.raises(ValueError, match=r"U\+FDD0"):
        tokens.marked(["<s>", *MARKS])


def test_the_special_tokens_of_a_folder(tmp_path: Path) -> None:
    assert ControlTokens.of(tmp_path).marked(["<s>"])[1] == ""
    added = [{"id": 0, "content": "<s>", "special": True}, {"id": 1, "content": "<tool>", "special": False}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": {"vocab": {}}}))
    assert ControlTokens.of(tmp_path).marked(["<tool>"])[1] == ""
    assert ControlTokens.of(tmp_path).marked(["<s>"])[1] == MARKS[0]
