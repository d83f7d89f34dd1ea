"""Rotary positions against transformers', scaled and not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from local_engine.layers.rotary import RopeScaling, pairs, rotary_table, rotate

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}


def theirs(x: torch.Tensor, **rope: Any) -> torch.Tensor:
    """x [tokens, heads, head_dim] at positions 0, 1, ..., turned by transformers."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    tokens, heads, head_dim = x.shape
    config = LlamaConfig(
        head_dim=head_dim, num_attention_heads=heads, hidden_size=heads * head_dim, max_position_embeddings=2048,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default", **rope},
    )  # fmt: skip
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(tokens)[None])
    turned: torch.Tensor = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)[0]
    return turned[0].transpose(0, 1)


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        (None, {}),
        (RopeScaling(kind="linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
        (RopeScaling(kind="llama3", factor=8.0, low_factor=1.0, high_factor=4.0, trained_tokens=256), {"rope_type": "llama3", **LLAMA3}),
    ],
    ids=["plain", "linear", "llama3"],
)
def test_turned_heads_equal_those_of_transformers(scaling: RopeScaling | None, rope: dict[str, Any]) -> None:
    x = torch.randn(700, 3, 64, generator=torch.Generator().manual_seed(1))
    order = pairs(1, 64)
    turned = rotate(x[..., order], rotary_table(700, 64, 10000.0, scaling)[:, None])
    torch.testing.assert_close(turned, theirs(x, **rope)[..., order], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(turned, x[..., order], atol=0.1)


def test_the_order_of_pairs_goes_head_by_head() -> None:
    assert pairs(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_half_precision_comes_back_as_it_came() -> None:
    x = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    turned = rotate(x, rotary_table(5, 8, 10000.0)[:, None])
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned[0], x[0])  # position 0 turns nothing
