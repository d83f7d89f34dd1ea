"""Weights that do not fit config.json are refused by name: what computes them looks at no size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from local_engine.errors import ConfigError
from local_engine.layers.attention import Layout
from local_engine.layers.linear import Quantised, quantise
from local_engine.loader import load
from local_engine.models.llama import Llama

UP, DOWN, NORM = "model.layers.1.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight"


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        (UP, (80, 64), "80 × 64 where config.json wants 96 × 64"),
        (DOWN, (128, 96), "128 × 96 where config.json wants 64 × 96"),
        (NORM, (32,), "32 where config.json wants 64"),
        ("model.norm.weight", (65,), "65 where"),
        ("model.embed_tokens.weight", (3, 64), "3 × 64 where"),
        ("model.layers.0.self_attn.q_proj.weight", (64, 64, 1), "64 × 64 × 1 where"),
        ("model.layers.0.self_attn.k_proj.bias", (64,), "64 where config.json wants 32"),
    ],
)
def test_a_weight_of_another_size_is_named(tiny: Path, name: str, size: tuple[int, ...], told: str) -> None:
    model = load(tiny)
    for threads in (0, 1):
        with pytest.raises(ConfigError, match=f"{name} is {told}"):
            Llama(model.shape, dict(model.weights) | {name: torch.ones(size)}, threads)


def test_scales_and_heads_that_do_not_fit(tiny: Path) -> None:
    model = load(tiny)
    whole = quantise(torch.ones(96, 64))
    with pytest.raises(ConfigError, match="has 95 scales for 96 outputs"):
        Llama(model.shape, dict(model.weights) | {UP: Quantised(whole.values, whole.scales[:95])})
    with pytest.raises(ConfigError, match="4 heads cannot share 3"):
        Llama(replace(model.shape, kv_heads=3), model.weights)


def test_a_position_beyond_the_context_is_no_address(tiny: Path) -> None:
    model = load(tiny)
    llama, s = Llama(model.shape, model.weights, 1), model.shape
    caches = torch.zeros(s.layers, 2, s.kv_heads, 2, 16, s.head_dim)
    one = torch.zeros(1, dtype=torch.int64)
    layout = Layout((one, one), torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32), [])
    assert torch.isfinite(llama.forward(one, one, caches, layout, one)).all()
    with pytest.raises(IndexError, match="beyond the context of 512"):
        llama.forward(one, one + 512, caches, layout, one)
