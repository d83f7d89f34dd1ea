"""Causal attention over paged keys and values: each row of a step writes its own into its slot and reads those of its sequence.

A cache of one layer is [2, kv_heads, slots, head_dim]; slot = block * block size + offset. Knows which slots, not whose they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

Tensor = torch.Tensor


class Chunk(NamedTuple):
    """Rows [start, stop): the newest tokens of one sequence, whose tokens so far are in `slots` [total], these included."""

    start: int
    stop: int
    slots: Tensor


class Layout(NamedTuple):
    """Where the rows of one step write and read. The first `singles` rows are one token each of different sequences."""

    slots: Tensor  # [rows], where each row's key and value go
    singles: int
    context: Tensor  # [singles * longest], slots of the single rows' sequences, padded
    mask: Tensor  # [singles, 1, 1, longest], which of them count
    chunks: Sequence[Chunk]


def attend(q: Tensor, k: Tensor, v: Tensor, cache: Tensor, layout: Layout) -> Tensor:
    """q [rows, heads, head_dim], k and v [rows, kv_heads, head_dim] -> [rows, heads * head_dim]. Writes k and v into the cache."""
    cache[0].index_copy_(1, layout.slots, k.transpose(0, 1))
    cache[1].index_copy_(1, layout.slots, v.transpose(0, 1))
    out = torch.empty_like(q)
    if layout.singles:
        out[: layout.singles] = _singles(q[: layout.singles], cache, layout)
    for start, stop, slots in layout.chunks:
        out[start:stop] = _chunk(q[start:stop], cache.index_select(2, slots))
    return out.flatten(1)


def _singles(q: Tensor, cache: Tensor, layout: Layout) -> Tensor:
    """All of them at once over padded contexts; the heads of a group are queries of one key head, so that keys are read once."""
    rows, heads, head_dim = q.shape
    kv_heads = cache.shape[1]
    keys, values = cache.index_select(2, layout.context).view(2, kv_heads, rows, -1, head_dim).transpose(1, 2).unbind(0)
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
    return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=layout.mask).reshape(q.shape)


def _chunk(q: Tensor, cache: Tensor) -> Tensor:
    """The last n tokens of one sequence: q [n, heads, head_dim], cache [2, kv_heads, total, head_dim]."""
    n, total = q.shape[0], cache.shape[2]
    mask = None if n == total else torch.ones(n, total, dtype=torch.bool, device=q.device).tril(total - n)
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        cache[0][None],
        cache[1][None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=q.shape[1] != cache.shape[1],
    )
    return out[0].transpose(0, 1)
