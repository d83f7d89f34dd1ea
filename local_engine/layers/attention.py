"""Causal attention over paged keys and values: each row of a step writes its own into its block and reads those of its sequence.

A cache of one layer is [blocks, kv_heads, 2, block_tokens, head_dim]. Knows which blocks, not whose they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from local_engine.layers.paged import Paged

Tensor = torch.Tensor


class Chunk(NamedTuple):
    """Rows [start, stop) are the newest of the `total` tokens of one sequence, which lie in `blocks` [n]."""

    start: int
    stop: int
    blocks: Tensor
    total: int


class Layout:
    """Where the rows of one step write and read. The first `len(lengths)` rows are one token each of different sequences."""

    def __init__(self, places: tuple[Tensor, Tensor], tables: Tensor, lengths: Tensor, chunks: Sequence[Chunk]) -> None:
        self.places = places  # block and offset of each row, [rows] each
        self.tables = tables  # int32 [singles, longest], the blocks of the single rows' sequences, padded
        self.lengths = lengths  # int32 [singles], their tokens, the row's own included
        self.chunks = chunks
        self.paged: Paged | None = None  # what computes the single rows instead, planned for this step

    def mask(self, block_tokens: int) -> Tensor:
        """[singles, 1, 1, longest * block_tokens]: what of the padded contexts counts."""
        places = torch.arange(self.tables.shape[1] * block_tokens, device=self.lengths.device)
        return (places < self.lengths[:, None])[:, None, None]


def attend(turned: Tensor, mixed: Tensor, cache: Tensor, layout: Layout) -> Tensor:
    """turned [rows, heads + kv_heads, head_dim] are queries and keys, the last kv_heads of `mixed` [rows, ., head_dim] values.

    Returns [rows, heads * head_dim] and writes keys and values into the cache.
    """
    kv_heads = cache.shape[1]
    heads = turned.shape[1] - kv_heads
    singles = layout.lengths.shape[0]
    out = torch.empty(turned.shape[0], heads, turned.shape[2], dtype=turned.dtype, device=turned.device)
    block, offset = layout.places
    cache[block, :, 0, offset] = turned[:, heads:]
    cache[block, :, 1, offset] = mixed[:, -kv_heads:]
    if singles > 0:
        q = turned[:singles, :heads]
        out[:singles] = _singles(q, cache, layout) if layout.paged is None else layout.paged(q, cache)
    for chunk in layout.chunks:
        out[chunk.start : chunk.stop] = _chunk(turned[chunk.start : chunk.stop, :heads], cache, chunk)
    return out.flatten(1)


def _singles(q: Tensor, cache: Tensor, layout: Layout) -> Tensor:
    """All of them at once over padded contexts; the heads of a group are queries of one key head, so that keys are read once."""
    rows, heads, head_dim = q.shape
    _, kv_heads, _, block_tokens, _ = cache.shape
    found = cache.index_select(0, layout.tables.flatten()).view(rows, -1, kv_heads, 2, block_tokens, head_dim)
    keys, values = found.permute(3, 0, 2, 1, 4, 5).flatten(3, 4).unbind(0)
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
    return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=layout.mask(block_tokens)).reshape(q.shape)


def _chunk(q: Tensor, cache: Tensor, chunk: Chunk) -> Tensor:
    """The last n of the tokens of one sequence: q [n, heads, head_dim]."""
    n, total = q.shape[0], chunk.total
    found = cache.index_select(0, chunk.blocks).permute(2, 1, 0, 3, 4).flatten(2, 3)[:, None, :, :total]
    mask = None if n == total else torch.ones(n, total, dtype=torch.bool, device=q.device).tril(total - n)
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None], found[0], found[1], attn_mask=mask, is_causal=mask is None, enable_gqa=q.shape[1] != cache.shape[1]
    )
    return out[0].transpose(0, 1)
