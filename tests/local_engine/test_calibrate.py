"""Evened weights are the same model in f32, and nearer to it in int8."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from local_engine.bench.quality import logits
from local_engine.calibrate import evened, sample_text, told_text
from local_engine.layers.linear import Quantised, Tensor, Weight, quantise
from local_engine.loader import Model, load
from local_engine.models.llama import Llama
from local_engine.weights import is_product
from tests.local_engine.tiny import make_model


def tensors(model: Model) -> dict[str, Tensor]:
    return {name: weight for name, weight in model.weights.items() if isinstance(weight, Tensor)}


def outlying(folder: Path) -> dict[str, Tensor]:
    """Weights of a model whose norms let a few channels through ten times as large, as those of trained models do."""
    large = torch.where(torch.arange(64) % 16 == 3, 10.0, 1.0)
    return {name: weight * large if "norm" in name else weight for name, weight in tensors(load(folder)).items()}


def ids(count: int, seed: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(2, 250) for _ in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "m")


def test_in_f32_it_is_the_same_model(folder: Path) -> None:
    model = load(folder)
    made = evened(model.shape, outlying(folder), ids(100, 1))
    before = logits(Llama(model.shape, outlying(folder)), ids(40, 2), 40)
    untied = {name: weight for name, weight in made.items() if name != "lm_head.weight"}
    assert not torch.equal(untied["model.norm.weight"], outlying(folder)["model.norm.weight"])
    assert torch.equal(made["model.embed_tokens.weight"], outlying(folder)["model.embed_tokens.weight"])
    after = logits(Llama(replace(model.shape, tied=False), made), ids(40, 2), 40)
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-3 * before.abs().max().item())


def test_in_int8_it_is_nearer(folder: Path) -> None:
    shape, given = load(folder).shape, outlying(folder)
    true = logits(Llama(shape, given), ids(100, 2), 100)

    def error(weights: dict[str, Tensor]) -> float:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
        quantised: dict[str, Weight] = {name: quantise(weight) if is_product(name) else weight for name, weight in weights.items()}
        return (logits(Llama(shape, quantised, 1), ids(100, 2), 100) - true).square().mean().item()

    assert error(evened(shape, given, ids(100, 1))) < 0.8 * error(dict(given))


def test_a_model_is_evened_when_int8_is_made_of_it_and_kept_so(folder: Path) -> None:
    first, again = load(folder, "int8").weights, load(folder, "int8").weights
    norm = "model.layers.0.input_layernorm.weight"
    assert torch.equal(as_tensor(first[norm]), as_tensor(again[norm]))
    assert not torch.equal(as_tensor(first[norm]), tensors(load(folder))[norm])
    assert isinstance(first["lm_head.weight"], Quantised)


def as_tensor(weight: Weight) -> Tensor:
    assert isinstance(weight, Tensor)
    return weight


def test_there_is_text_to_look_at() -> None:
    assert len(told_text()) > 400_000
    assert len(sample_text()) == 8_000
