"""`tollway quality`: train on labels, judge, and route by the file; what cannot be used is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.cli import quality
from gateway.quality.forest import Growth
from gateway.quality.labels import Label
from gateway.quality.train import Recipe
from gateway.routing.quality import load
from tests.cli.conftest import Tollway
from tests.quality.conftest import SMALL, made_labels

CONFIG = """
[[backends]]
name = "small"
vendor = "openai-compatible"
model = "m"
base_url = "http://127.0.0.1:9/v1"
price = { input = "1", output = "1" }

[[backends]]
name = "large"
vendor = "openai-compatible"
model = "m"
base_url = "http://127.0.0.1:9/v1"
price = { input = "5", output = "5" }

[[routes]]
name = "assistant"
backends = ["small", "large"]
[routes.quality]
weak = ["small"]
floor = 0.8
model = "own.model"
"""


def write(path: Path, labels: list[Label]) -> None:
    path.write_text("".join(json.dumps({f: getattr(one, f) for f in Label.__struct_fields__}) + "\n" for one in labels))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Few trees: made-up labels need no more."""
    monkeypatch.setattr("gateway.quality.train.Recipe", lambda: SMALL)
    assert SMALL.growth != Growth()
    return SMALL


def test_own_labels_are_trained_on_judged_and_routed_by(tollway: Tollway, quick: Recipe) -> None:
    write(Path("labels.jsonl"), made_labels(400))
    made = tollway("quality", "train", "--labels", "labels.jsonl", "--into", "own.model", "--origin", "ours, 2026")
    assert made.status == 0, made.err
    model = load(Path("own.model"))
    assert f"own.model: model {model.version} of 400 labels" in made.out
    assert model.about == {"origin": "ours, 2026", "labels": "400"}

    write(Path("fresh.jsonl"), made_labels(300, seed=5))
    judged = tollway("quality", "evaluate", "--labels", "fresh.jsonl", "--model", "own.model")
    assert judged.status == 0, judged.err
    lines = {line.split()[0]: line for line in judged.lines if line.strip()}
    apgr = float(re.findall(r"(0\.\d+) ± ", lines["all"])[0])
    assert apgr > 0.65 and lines["easy"].split()[1] != "300"
    assert "10%: " in judged.lines[-1]

    Path("tollway.toml").write_text(CONFIG)
    easy = tollway("route", "please tell me about it now: the capital of thing number 3?", "--route", "assistant")
    assert "1. small" in easy.out and "small will do" in easy.out, easy.err
    hard = tollway("route", "please tell me about it now: the integral of thing number 3?", "--route", "assistant")
    assert "1. large" in hard.out and "set aside small" in hard.out and "2. small" in hard.out
    assert hard.out.strip().endswith("recomputed: agrees")
    Path("own.model").write_bytes(b"broken")
    told = tollway("route", "x", "--route", "assistant")
    assert told.status == 1 and "routes.assistant.quality.model: own.model: is not a model" in told.err


def test_without_a_model_each_fifth_is_judged_by_a_model_of_the_others(
    bare: Tollway, quick: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "PARTS", 2)
    write(Path("labels.jsonl"), [Label(prompt=one.prompt, weak_correct=one.weak_correct, strong_correct=1) for one in made_labels(240)])
    judged = bare("quality", "evaluate", "--labels", "labels.jsonl")
    assert judged.status == 0, judged.err
    assert [line.split()[0] for line in judged.lines[1:2]] == ["(none)"] and " 240 " in judged.lines[1]


def test_labels_and_files_that_cannot_be_used_are_told(bare: Tollway, tmp_path: Path) -> None:
    Path("bad.jsonl").write_text('{"prompt": "x", "weak_correct": 1}\n')
    for words in (("train", "--into", "m"), ("evaluate",)):
        said = bare("quality", *words, "--labels", "bad.jsonl")
        assert said.status == 1 and "bad.jsonl, line 1: has no `strong_correct`" in said.err
    write(Path("few.jsonl"), made_labels(200))
    said = bare("quality", "evaluate", "--labels", "few.jsonl", "--model", "none.model")
    assert said.status == 1 and "none.model: cannot be read" in said.err
