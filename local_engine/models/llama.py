"""The Llama shape (and Qwen2's, which adds biases to q, k, v): tokens of many sequences in one flat row, logits of some rows out.

Everything but attention works on the flat row, so a step is one set of matrix products whoever shares it. Knows no request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import silu

from local_engine.errors import ConfigError
from local_engine.layers.attention import Layout, attend
from local_engine.layers.linear import Linear, Tensor
from local_engine.layers.norm import rms_norm
from local_engine.layers.rotary import rotary_table, rotate
from local_engine.loader import Shape


class Layer(NamedTuple):
    norm: Tensor
    qkv: Linear
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Llama:
    def __init__(self, shape: Shape, weights: Mapping[str, Tensor]) -> None:
        try:
            self.embedding = weights["model.embed_tokens.weight"]
            self.norm = weights["model.norm.weight"]
            self.head = Linear(self.embedding if shape.tied else weights["lm_head.weight"])
            self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(shape.layers)]
        except KeyError as error:
            raise ConfigError(f"the model's weights lack {error.args[0]}") from None
        self.shape = shape
        self.cos, self.sin = rotary_table(shape.context_tokens, shape.head_dim, shape.rope_theta)

    def forward(self, ids: Tensor, positions: Tensor, cache: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        """ids, positions [tokens] -> logits [len(rows), vocab] of the flat rows `rows`. Writes keys and values where `layout` says.

        cache [layers, 2, kv_heads, slots, head_dim].
        """
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        x = self.embedding[ids]
        eps = self.shape.norm_eps
        for index, layer in enumerate(self.layers):
            x = x + self._attention(layer, rms_norm(x, layer.norm, eps), (cos, sin), cache[index], layout)
            gate, up = layer.gate_up(rms_norm(x, layer.mlp_norm, eps)).chunk(2, -1)
            x = x + layer.down(silu(gate) * up)
        return self.head(rms_norm(x[rows], self.norm, eps))

    def _attention(self, layer: Layer, x: Tensor, rotary: tuple[Tensor, Tensor], cache: Tensor, layout: Layout) -> Tensor:
        s = self.shape
        mixed = layer.qkv(x).view(x.shape[0], s.heads + 2 * s.kv_heads, s.head_dim)
        turned = rotate(mixed[:, : s.heads + s.kv_heads], *rotary)
        q, k, v = turned[:, : s.heads], turned[:, s.heads :], mixed[:, s.heads + s.kv_heads :]
        return layer.out(attend(q, k, v, cache, layout))


def _layer(weights: Mapping[str, Tensor], prefix: str) -> Layer:
    def get(name: str) -> Tensor:
        return weights[prefix + name]

    def joined(names: Sequence[str], suffix: str) -> Tensor:
        return torch.cat([get(name + suffix) for name in names])

    qkv = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    return Layer(
        norm=get("input_layernorm.weight"),
        qkv=Linear(joined(qkv, ".weight"), joined(qkv, ".bias") if f"{prefix}self_attn.q_proj.bias" in weights else None),
        out=Linear(get("self_attn.o_proj.weight"), weights.get(f"{prefix}self_attn.o_proj.bias")),
        mlp_norm=get("post_attention_layernorm.weight"),
        gate_up=Linear(joined(["mlp.gate_proj", "mlp.up_proj"], ".weight")),
        down=Linear(get("mlp.down_proj.weight")),
    )
