"""The Llama shape, and those that differ by parts only: biases (Qwen2), norms of queries and keys (Qwen3), nothing (Mistral).

Tokens of many sequences in one flat row, logits of some rows out. Everything but attention works on the flat row, so a step is one set
of matrix products whoever shares it. Which parts a model has is seen by its weights. Knows no request.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import silu

from local_engine.errors import ConfigError
from local_engine.layers.attention import Layout, attend
from local_engine.layers.linear import Linear, Quantised, Tensor, Weight, join
from local_engine.layers.norm import RmsNorm
from local_engine.layers.rotary import pairs, rotary_table, rotate
from local_engine.loader import Shape
from local_engine.shapes import check

if TYPE_CHECKING:
    from local_engine.layers.compiled import Compiled, Tiled

Product = Any  # a Linear, or a Tiled, which only the compiled step can read


class Layer(NamedTuple):
    norm: RmsNorm
    qkv: Product
    q_norm: RmsNorm | None
    k_norm: RmsNorm | None
    out: Product
    mlp_norm: RmsNorm
    gate_up: Product
    down: Product


class Llama:
    """`threads`: of the compiled step, where it works; 0: torch computes, by its own threads."""

    def __init__(self, shape: Shape, weights: Mapping[str, Weight], threads: int = 0) -> None:
        check(shape, weights)
        tiled = _tiled(shape, weights) if threads > 0 else None
        parts = _Parts(shape, weights, tiled or Linear)
        self.embedding = parts.tensor("model.embed_tokens.weight")
        self.norm = RmsNorm(parts.tensor("model.norm.weight"), shape.norm_eps)
        self.head = parts.head(self.embedding)
        self.layers = [parts.layer(f"model.layers.{i}.") for i in range(shape.layers)]
        parts.all_used()
        self.shape = shape
        table = rotary_table(shape.context_tokens, shape.head_dim, shape.rope_theta, shape.rope_scaling)
        self.turns = table.to(self.embedding.device)
        self.compiled = None if tiled is None else self._compiled(threads)

    def forward(self, ids: Tensor, positions: Tensor, caches: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        """ids, positions [tokens] -> logits f32 [len(rows), vocab] of the flat rows `rows`. Writes keys and values where `layout` says.

        caches [layers, blocks, kv_heads, 2, block_tokens, head_dim]; how a block's keys lie in it is the business of who computes.
        """
        x = self.embedding[ids]
        if self.compiled is not None:
            return self.compiled.forward(x, positions, caches, layout, rows)
        turns = self.turns[positions][:, None]
        for index, layer in enumerate(self.layers):
            x += self._attention(layer, layer.norm(x), turns, caches[index], layout)
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, -1)
            x += layer.down(silu(gate).mul_(up))
        return self.head(self.norm(x[rows])).float()  # type: ignore[no-any-return]

    def _compiled(self, threads: int) -> Compiled:
        from local_engine.layers.compiled import Compiled, Parts

        products = [product for layer in self.layers for product in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        norms = [norm for layer in self.layers for norm in (layer.norm, layer.mlp_norm)]
        heads = [norm for layer in self.layers for norm in (layer.q_norm, layer.k_norm) if norm is not None]
        return Compiled(Parts([*products, self.head], [*norms, self.norm], heads, self.turns, self.shape.norm_eps), threads)

    def _attention(self, layer: Layer, x: Tensor, turns: Tensor, cache: Tensor, layout: Layout) -> Tensor:
        s = self.shape
        mixed = layer.qkv(x).view(x.shape[0], s.heads + 2 * s.kv_heads, s.head_dim)
        turned = rotate(_normed(mixed, s.heads, layer), turns)
        return layer.out(attend(turned, mixed, cache, layout))  # type: ignore[no-any-return]


def _tiled(shape: Shape, weights: Mapping[str, Weight]) -> type[Tiled] | None:
    """How the compiled step wants weights, where it works."""
    like = weights.get("model.embed_tokens.weight")
    if not isinstance(like, Tensor) or importlib.util.find_spec("numba") is None:
        return None
    from local_engine.layers.compiled import Tiled, works

    return Tiled if works(shape.head_dim, like) else None


def _normed(mixed: Tensor, heads: int, layer: Layer) -> Tensor:
    """Queries and keys out of `mixed`, normed by head where the model does that."""
    both = (mixed.shape[1] + heads) // 2
    if layer.q_norm is None or layer.k_norm is None:
        return mixed[:, :both]
    return torch.cat((layer.q_norm(mixed[:, :heads]), layer.k_norm(mixed[:, heads:both])), 1)


class _Parts:
    """The weights by name, as layers. ConfigError for one that is missing, and for those that nothing asked for."""

    def __init__(self, shape: Shape, weights: Mapping[str, Weight], product: type[Linear | Tiled]) -> None:
        self._shape = shape
        self._product = product  # what a weight and its bias become
        self._weights = weights
        self._used: set[str] = set()

    def layer(self, prefix: str) -> Layer:
        attention, mlp, eps = f"{prefix}self_attn.", f"{prefix}mlp.", self._shape.norm_eps
        norms = [self._head_norm(f"{attention}{name}_norm.weight") for name in ("q", "k")]
        return Layer(
            norm=RmsNorm(self.tensor(f"{prefix}input_layernorm.weight"), eps),
            qkv=self._qkv(attention),
            q_norm=norms[0],
            k_norm=norms[1],
            out=self.product(f"{attention}o_proj"),
            mlp_norm=RmsNorm(self.tensor(f"{prefix}post_attention_layernorm.weight"), eps),
            gate_up=self.product(f"{mlp}gate_proj", f"{mlp}up_proj"),
            down=self.product(f"{mlp}down_proj"),
        )

    def product(self, *names: str) -> Product:
        """The products of one input, joined."""
        biases = [bias for name in names if isinstance(bias := self.found(f"{name}.bias"), Tensor)]
        if biases and len(biases) != len(names):
            raise ConfigError(f"the model's weights have a bias for some of {', '.join(names)} only")
        return self._product(join([self._weight(f"{name}.weight") for name in names]), torch.cat(biases) if biases else None)

    def head(self, embedding: Tensor) -> Product:
        """Tied: the embedding itself, or its int8 twin."""
        own = self.found("lm_head.weight")
        return self.product("lm_head") if isinstance(own, Quantised) or not self._shape.tied else self._product(embedding, None)

    def tensor(self, name: str) -> Tensor:
        weight = self._weight(name)
        if not isinstance(weight, Tensor):
            raise ConfigError(f"{name} must not be quantised")
        return weight

    def found(self, name: str) -> Weight | None:
        self._used.add(name)
        return self._weights.get(name)

    def all_used(self) -> None:
        left = [name for name in self._weights if name not in self._used and not name.endswith("rotary_emb.inv_freq")]
        if left:
            raise ConfigError(f"the model has weights that this engine has no place for: {', '.join(sorted(left)[:3])}")

    def _weight(self, name: str) -> Weight:
        weight = self.found(name)
        if weight is None:
            raise ConfigError(f"the model's weights lack {name}")
        return weight

    def _qkv(self, attention: str) -> Product:
        """q, k and v in one product; the rows of q and k ordered as `rotate` wants them."""
        s = self._shape
        orders = {"q": pairs(s.heads, s.head_dim), "k": pairs(s.kv_heads, s.head_dim), "v": torch.arange(s.kv_heads * s.head_dim)}
        weights, biases = [], []
        for name, order in orders.items():
            weights.append(_ordered(self._weight(f"{attention}{name}_proj.weight"), order))
            bias = self.found(f"{attention}{name}_proj.bias")
            if isinstance(bias, Tensor):
                biases.append(bias[order])
        if len(biases) not in (0, len(orders)):
            raise ConfigError(f"the model's weights have a bias for some of q, k and v in {attention} only")
        return self._product(join(weights), torch.cat(biases) if biases else None)

    def _head_norm(self, name: str) -> RmsNorm | None:
        weight = self.found(name)
        if not isinstance(weight, Tensor):
            return None
        return RmsNorm(weight[pairs(1, self._shape.head_dim)], self._shape.norm_eps)


def _ordered(weight: Weight, order: Tensor) -> Weight:
    return Quantised(weight.values[order], weight.scales[order]) if isinstance(weight, Quantised) else weight[order]
