"""The arithmetic that every decoder shares: norm, rotary positions, attention of one sequence. Plain functions on f32 tensors."""

from __future__ import annotations

import torch
from torch.nn import functional

Tensor = torch.Tensor
PACK_ROWS = 16  # the batch that oneDNN lays weights out for


class Linear:
    """x [rows, in] -> [rows, out]. On a CPU with oneDNN the weight is laid out once for its kernels.

    Measured on one core, all products of a 135M model, ms by rows, plain against packed: 1: 37/40, 8: 97/54, 16: 95/66, 128: 282/249.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return out
        return functional.linear(x, self._weight, self._bias)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def rotary_table(context_tokens: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, each [context_tokens, head_dim], halves repeated; the second half's sign is in `sin` (see `rotate`)."""
    frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
    angles = torch.outer(torch.arange(context_tokens).float(), frequencies)
    return torch.cat((angles.cos(), angles.cos()), -1), torch.cat((-angles.sin(), angles.sin()), -1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x [tokens, heads, head_dim], cos and signed sin [tokens, 1, head_dim]."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last n tokens of one sequence.

    q [n, heads, head_dim], keys and values [kv_heads, total, head_dim] with total >= n -> [n, heads * head_dim].
    """
    n, heads, head_dim = q.shape
    kv_heads, total, _ = keys.shape
    if n == 1:  # the heads of a group are queries of one key head: no mask, no copy of keys
        out = functional.scaled_dot_product_attention(q.view(1, kv_heads, heads // kv_heads, head_dim), keys[None], values[None])
        return out.reshape(1, heads * head_dim)
    mask = None if n == total else torch.ones(n, total, dtype=torch.bool).tril(total - n)
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, is_causal=mask is None, enable_gqa=heads != kv_heads
    )
    return out[0].transpose(0, 1).reshape(n, heads * head_dim)
