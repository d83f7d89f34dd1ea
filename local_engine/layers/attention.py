"""Causal attention of one sequence. Plain functions on f32 tensors; knows no batch."""

from __future__ import annotations

import torch
from torch.nn import functional

Tensor = torch.Tensor


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
