"""The report against its definitions, on a tiny model; and what it says of SmolLM2 where that is here."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch

from local_engine.__main__ import main
from local_engine.bench import quality
from local_engine.bench.quality import Case, Score, logits, measure, table
from local_engine.calibrate import told_text
from local_engine.errors import ConfigError
from local_engine.loader import load
from local_engine.models.llama import Llama
from tests.local_engine.tiny import real_model


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "WINDOW", 32)
    monkeypatch.setattr(quality, "PIECES", (7, 1))


def test_the_scores_are_those_of_the_logits(tiny: Path, small: None) -> None:
    found = dict(measure(tiny, "the quick brown fox jumps over the lazy dog 日本語 one two three " * 4, tokens=64))
    f32 = found[Case("f32", 32)]
    assert (f32.same, f32.kl) == (1.0, 0.0)
    assert f32.perplexity > 1
    int8 = {case.piece: score for case, score in found.items() if case.precision == "int8"}
    assert sorted(int8) == [1, 7, 32]
    for score in (*int8.values(), found[Case("bf16", 32)]):
        assert 0 < score.kl < 0.5
        assert score.same > 0.7
        assert math.isclose(score.perplexity, f32.perplexity, rel_tol=0.2)


def test_logits_are_those_of_transformers_however_the_text_is_cut(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    numbers = random.Random(1)
    ids = [numbers.randrange(2, 250) for _ in range(40)]
    theirs = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)(torch.tensor([ids])).logits[0]
    ours = Llama(load(tiny).shape, load(tiny).weights)
    assert all(torch.allclose(logits(ours, ids, piece), theirs, atol=1e-3) for piece in (40, 9, 1))


def test_a_text_that_is_too_short_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="at least 512 are needed"):
        next(measure(tiny, "the quick brown fox", tokens=2048))


def test_the_command_prints_a_table(tiny: Path, small: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the lazy dog jumps over the quick brown fox " * 5)
    assert main(["bench", "quality", "--model-dir", str(tiny), "--text", str(text), "--tokens", "32", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "| f32, whole | " in printed
    assert "| int8, 7 at once | " in printed


def test_pieces_stand_beside_their_whole() -> None:
    found = [(Case("int8", 512), Score(18.4, 0.9, 0.02)), (Case("int8", 16), Score(18.5, 0.891, 0.021))]
    assert table(found).splitlines()[2:] == [
        "| int8, whole | 18.40 | 90.0% | 0.02000 |  |",
        "| int8, 16 at once | 18.50 | 89.1% | 0.02100 | +5.0% |",
    ]


@pytest.mark.skipif(real_model() is None, reason="SmolLM2 has not been fetched")
def test_int8_of_smollm2_is_near_f32_whole_and_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = real_model()
    assert folder is not None
    monkeypatch.setattr(quality, "WINDOW", 128)
    monkeypatch.setattr(quality, "PIECES", (5,))
    found = dict(measure(folder, told_text()[:2000], tokens=128, precisions=("int8",)))
    whole, pieces = found[Case("int8", 128)], found[Case("int8", 5)]
    assert whole.kl < 0.04
    assert whole.same > 0.85
    assert abs(pieces.kl / whole.kl - 1) < 0.1
