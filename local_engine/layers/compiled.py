"""The compiled step as a decoder's forward pass: weights laid out in tiles, rows of a step as arrays, threads that share the work.

On CPUs, in f32 and int8, where numba is installed; elsewhere torch computes the same, layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from local_engine.layers import step as kernel
from local_engine.layers.attention import Layout
from local_engine.layers.linear import Quantised, Tensor, Weight
from local_engine.layers.norm import RmsNorm
from local_engine.machine import LEVELS, TILE


class Tiled:
    """A weight [out, in] as the kernel reads it: [out / TILE, in, TILE]; int8 [out / TILE, in / 4, TILE, 4]."""

    def __init__(self, weight: Weight, bias: Tensor | None = None) -> None:
        self.int8 = isinstance(weight, Quantised)
        values = weight.values if isinstance(weight, Quantised) else weight
        self.outs, self.ins = values.shape
        more = -self.outs % TILE
        padded = functional.pad(values, (0, -self.ins % 4 if self.int8 else 0, 0, more))
        deep = padded.view(-1, TILE, padded.shape[1] // 4, 4) if self.int8 else padded.view(-1, TILE, padded.shape[1], 1)
        self.data = deep.transpose(1, 2).contiguous()
        added = functional.pad(torch.zeros(self.outs) if bias is None else bias.float(), (0, more))
        if isinstance(weight, Quantised):  # inputs are told as unsigned numbers: what that adds is taken away at the start
            above = padded.sum(1, dtype=torch.int32).mul_(-(LEVELS + 1)).view(torch.float32)
            self.extras = torch.cat((above, functional.pad(weight.scales, (0, more)), added))
        else:
            self.extras = added


class Parts(NamedTuple):
    """Of a decoder, in the order of its layers."""

    products: Sequence[Tiled]  # queries, keys and values; out; gate and up; down, of each layer; last the head
    norms: Sequence[RmsNorm]  # before attention and before the rest, of each layer; last the last
    head_norms: Sequence[RmsNorm]  # of queries and keys, of each layer, or none
    turns: Tensor  # complex [context_tokens, head_dim / 2]
    eps: float


def works(head_dim: int, like: Tensor) -> bool:
    """Whether the compiled step serves such heads, and tensors `like` this one."""
    if like.device.type != "cpu" or like.dtype != torch.float32:
        return False
    return head_dim % kernel.BLOCK == 0


class Compiled:
    """`threads` compute a step together; those beside the caller's end with this object."""

    def __init__(self, parts: Parts, threads: int) -> None:
        self._parts = parts  # which keeps the memory that addresses name
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1), thread_name_prefix="arithmetic")
        extras = torch.cat([one.extras for one in parts.products])
        starts = np.cumsum([0, *(len(one.extras) for one in parts.products)])
        table = [[one.data.data_ptr(), one.outs, one.ins, start, one.int8] for one, start in zip(parts.products, starts[:-1], strict=True)]
        norms = torch.stack([norm.weight for norm in parts.norms]).numpy()
        own = [norm.weight for norm in parts.head_norms]
        layers, head_dim = len(parts.norms) // 2, 2 * parts.turns.shape[1]
        head_norms = torch.stack(own).view(layers, 2, head_dim).numpy() if own else np.zeros((1, 0, head_dim), np.float32)
        turns = torch.view_as_real(parts.turns).contiguous().numpy()
        self._model = (np.array(table, np.int64), extras.numpy(), norms, head_norms, turns, np.float32(parts.eps))

    def forward(self, x: Tensor, positions: Tensor, caches: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        """x [tokens, hidden] -> logits of the rows `rows`, as Llama.forward. x is changed. Keys lie in a block by channel, then token."""
        layers, blocks, kv_heads, _, block_tokens, head_dim = caches.shape
        if block_tokens != kernel.BLOCK or int(positions.max()) >= len(self._parts.turns):  # the kernel looks at no bounds
            raise IndexError(f"blocks of {block_tokens} tokens, or a position beyond the context of {len(self._parts.turns)}")
        values, keys = caches.numpy(), caches.numpy().reshape(layers, blocks, kv_heads, 2, head_dim, block_tokens)
        room = self._room(x, kv_heads, head_dim, len(rows))
        work = (positions.numpy(), layout.places[0].numpy(), layout.places[1].numpy(), *spans(layout, room[1].shape[1] // kv_heads - 2))
        counters = np.zeros((layers * kernel.LAST_NORM + 2, 16), np.int64)  # a phase has two cache lines
        given = (self._model, (keys, values, values.ctypes.data), (*work, rows.numpy()), room)
        for _ in range(self._threads - 1):
            self._pool.submit(kernel.step, counters, given)
        kernel.step(counters, given)
        return torch.from_numpy(room[-2])

    def _room(self, x: Tensor, kv_heads: int, head_dim: int, chosen: int) -> tuple[Any, ...]:
        """What phases hand to each other."""
        qkv, _, gate_up, _, *_ = self._parts.products
        rows, widest = len(x), max(one.ins for one in self._parts.products)
        mixed = np.empty((rows, qkv.outs), np.float32)
        wide = np.empty((max(rows, chosen), widest), np.float32)
        narrow = np.zeros((max(rows, chosen), -(-widest // 4) * 4), np.uint8)
        return (
            x.numpy(),
            mixed.reshape(rows, qkv.outs // head_dim, head_dim),
            mixed,
            np.empty((rows, gate_up.outs), np.float32),
            wide,
            narrow,
            np.empty(max(rows, chosen), np.float32),
            np.empty((chosen, self._parts.products[-1].outs), np.float32),
            (wide.ctypes.data, narrow.ctypes.data, self._model[1].ctypes.data),
        )


def spans(layout: Layout, group: int) -> tuple[Any, Any]:
    """Blocks of each sequence [sequences, longest]; what is attended together: first row, rows, sequence, tokens that the first sees."""
    found = [(row, 1, row, length) for row, length in enumerate(layout.lengths.tolist())]
    most = max(1, kernel.QUERIES // group)
    for index, chunk in enumerate(layout.chunks, len(found)):
        known = chunk.total - (chunk.stop - chunk.start) + 1 - chunk.start
        found += [(row, min(most, chunk.stop - row), index, known + row) for row in range(chunk.start, chunk.stop, most)]
    longest = max([layout.tables.shape[1], *(len(chunk.blocks) for chunk in layout.chunks)])
    tables = np.zeros((len(layout.lengths) + len(layout.chunks), longest), np.int32)
    tables[: len(layout.lengths), : layout.tables.shape[1]] = layout.tables.numpy()
    for index, chunk in enumerate(layout.chunks, len(layout.lengths)):
        tables[index, : len(chunk.blocks)] = chunk.blocks.numpy()
    return tables, np.array(found, np.int32).reshape(-1, 4)
