"""The script for a GPU, run on the CPU in its place: what it checks and prints is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.__main__ import main
from local_engine.bench import gpu
from local_engine.bench.gpu import alike, checks, loss
from local_engine.loader import load
from local_engine.models.llama import Llama


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PROMPTS", 2)


def test_the_script_checks_and_prints_a_table(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "BATCHES", (1, 3))
    monkeypatch.setattr(gpu, "PROMPT_TOKENS", 8)
    assert main(["bench", "gpu", "--model-dir", str(tiny), "--device", "cpu", "--tokens", "4"]) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert "greedy ids by cpu, recorded steps, attention of single tokens by torch as by cpu, compiled steps" in printed
    assert printed.count("ok   ") == 5
    for batch in (1, 3):
        for who in ("this engine, bf16", "transformers generate, bf16"):
            line = next(line for line in printed.splitlines() if line.startswith(f"| {batch} | {who} |"))
            assert float(line.split("|")[3]) > 0


def test_what_does_not_fit_into_the_time_is_named(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "checks", lambda folder, device: iter([("of nothing", True)]))
    assert main(["bench", "gpu", "--model-dir", str(tiny), "--device", "cpu", "--minutes", "0"]) == 0
    assert capsys.readouterr().out.count("left out: no time") >= 6


def test_a_wrong_device_is_found(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose embeddings have a wrong sign: the first engine that `checks` makes is that of the device."""
    right, made = gpu.make_engine, list[gpu.Engine]()

    def wrong(folder: Path, precision: str, device: str, batch: int, **options: Any) -> gpu.Engine:
        made.append(right(folder, precision, device, batch, **options))
        if len(made) == 1:
            model = made[0].runner._model
            model.embedding = -model.embedding
        return made[-1]

    monkeypatch.setattr(gpu, "make_engine", wrong)
    assert [holds for _line, holds in checks(tiny, "cpu", tokens=4)] == [True, False, False, True, True]


def test_only_a_close_call_may_differ(tiny: Path) -> None:
    model = load(tiny)
    reference = Llama(model.shape, model.weights)
    assert alike(reference, [5, 6, 7], [1, 2], [1, 2])
    best = int(gpu.logits(reference, [5, 6, 7], 3)[-1].argmax())
    assert not alike(reference, [5, 6, 7], [best + 1, 2], [best, 2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_not_run(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpu", "--model-dir", str(tiny)]) == 78
    assert "not run: there is no CUDA device" in capsys.readouterr().err


def test_choices_are_weighed_by_the_reference(tiny: Path) -> None:
    """Its own choice loses nothing, another one what it is less likely by."""
    model = load(tiny)
    reference = Llama(model.shape, model.weights)
    likely = gpu.logits(reference, [5, 6, 7], 3)[-1].log_softmax(-1)
    best, other = likely.topk(2).indices.tolist()
    assert loss(reference, [[5, 6, 7]], [[best]]) == 0
    assert loss(reference, [[5, 6, 7]], [[other]]) == pytest.approx(float(likely[best] - likely[other]), abs=1e-5)
