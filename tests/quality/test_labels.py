"""Labels: what a file may hold, what is said of one that it may not, and splits that keep a question on one side."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quality.labels import LEAST, Label, LabelsError, folds, questions, read_labels

ROW = {"prompt": "q", "weak_correct": 0, "strong_correct": 1}


def lines(count: int, **changes: object) -> str:
    return "".join(json.dumps(ROW | {"prompt": f"q {n}"} | changes) + "\n" for n in range(count))


def test_plain_and_gzip_hold_the_same(tmp_path: Path) -> None:
    text = lines(LEAST, bench="b", subject="s", other="ignored", weak_correct=True) + "\n"
    (tmp_path / "plain.jsonl").write_text(text)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    plain = read_labels(tmp_path / "plain.jsonl")
    assert plain == read_labels(tmp_path / "packed.jsonl.gz")
    assert len(plain) == LEAST and plain[3] == Label(prompt="q 3", weak_correct=True, strong_correct=1, bench="b", subject="s")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "x", "weak_correct": 1}', "line 2: has no `strong_correct`; each line needs"),
        ('{"prompt": "x", "weak_correct": 2, "strong_correct": 1}', "line 2: `weak_correct` must be 0 or 1, or a score between."),
        ('{"prompt": "x", "weak_correct": 1, "strong_correct": "yes"}', "line 2: `strong_correct` must be 0 or 1"),
        ('{"prompt": "", "weak_correct": 1, "strong_correct": 1}', "line 2: `prompt` must be a text, not empty."),
        ("prompt,weak_correct,strong_correct", "line 2: is no JSON object"),
        ('["x"]', "line 2: is no JSON object"),
        (b"\xff\xfe", "line 2: is no JSON object"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(tmp_path: Path, line: str | bytes, said: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(lines(1).encode() + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    with pytest.raises(LabelsError) as raised:
        read_labels(path)
    assert str(raised.value).startswith(f"{path}, ") and said in str(raised.value)


def test_a_file_that_is_missing_broken_or_too_small(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="cannot be read"):
        read_labels(tmp_path / "none.jsonl")
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(lines(300).encode())[:-20])
    with pytest.raises(LabelsError, match="cannot be read"):
        read_labels(tmp_path / "broken.jsonl.gz")
    (tmp_path / "few.jsonl").write_text(lines(7))
    with pytest.raises(LabelsError, match=f"holds 7 labels; at least {LEAST} are needed"):
        read_labels(tmp_path / "few.jsonl")
    (tmp_path / "same.jsonl").write_text(lines(LEAST, prompt="Who, me?") + lines(7))
    with pytest.raises(LabelsError, match=f"labels are of 8 different questions; at least {LEAST} are needed"):
        read_labels(tmp_path / "same.jsonl")


@given(
    st.lists(st.sampled_from(["What is it?", "what  is it", "Who is it?", "WHO is, it", "Why?"]), min_size=1, max_size=40),
    st.integers(0, 5),
)
def test_a_question_stands_on_one_side(prompts: list[str], seed: int) -> None:
    labels = [Label(prompt=prompt, weak_correct=0, strong_correct=1) for prompt in prompts]
    parts = folds(questions(labels), 3, seed)
    sides: dict[str, set[int]] = {}
    for prompt, part in zip(prompts, parts.tolist(), strict=True):
        sides.setdefault(" ".join(prompt.lower().replace("?", "").replace(",", "").split()), set()).add(part)
    assert all(len(found) == 1 for found in sides.values())
    assert set(parts.tolist()) <= {0, 1, 2}
