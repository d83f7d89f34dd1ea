"""The tensors of one step: flat ids, positions and places out of the scheduled work, logits of the rows that sample back.

Owns the tensor whose blocks the pool counts. Knows no policy; the same on every device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from local_engine.config import CPU_KV_BYTES, EngineConfig
from local_engine.graphs import Graphs, Inputs, Record, size_of
from local_engine.kv_cache import BLOCK_TOKENS
from local_engine.layers.attention import Chunk, Layout
from local_engine.layers.paged import FlashInfer
from local_engine.loader import Shape
from local_engine.models.llama import Llama
from local_engine.scheduler import Work

CPU = torch.device("cpu")


class Span(NamedTuple):
    """The next `tokens` tokens of a sequence that has computed `past`; the first `blocks` hold them all."""

    blocks: Sequence[int]
    past: int
    tokens: int


class ModelRunner:
    """`record`: how steps of single tokens are recorded, if they are; there is one block more then, for rows that only pad."""

    def __init__(self, model: Llama, blocks: int, record: Record | None = None, flash: FlashInfer | None = None) -> None:
        self._model = model
        self._caches = new_caches(model, blocks + (record is not None))
        self._graphs = Graphs(model, self._caches, record, flash) if record is not None else None
        self._padding = Span([blocks], 0, 1)
        self._paged = None if flash is None else flash.paged()
        self._device = model.embedding.device

    @torch.inference_mode()
    def run(self, work: Sequence[Work]) -> torch.Tensor:
        """Logits [works that sample, vocab], in the order of `work` (single tokens first). `computed` is the engine's to move."""
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for sequence, tokens, samples in work:
            past = sequence.computed
            ids += itertools.islice(sequence.tokens, past, past + tokens)
            positions += range(past, past + tokens)
            if samples:
                rows.append(len(ids) - 1)
        spans = [Span(one.sequence.table.blocks, one.sequence.computed, one.tokens) for one in work]
        if self._graphs is not None and len(ids) == len(work):
            logits = self._replay(self._graphs, ids, positions, spans)
            if logits is not None:
                return logits if len(rows) == len(ids) else logits[rows]
        layout = lay_out(spans, self._device)
        if self._paged is not None and len(layout.lengths) > 0:
            self._paged.plan(layout.tables.cpu(), layout.lengths.cpu(), BLOCK_TOKENS, self._caches.dtype)
            layout.paged = self._paged
        return self._model.forward(self._tensor(ids), self._tensor(positions), self._caches, layout, self._tensor(rows))

    def _replay(self, graphs: Graphs, ids: list[int], positions: list[int], spans: list[Span]) -> torch.Tensor | None:
        """Logits of all rows, each a single token; None when there are too many to record."""
        size = size_of(len(ids), max(len(span.blocks) for span in spans))
        if size is None:
            return None
        more = size.rows - len(ids)
        layout = lay_out([*spans, *[self._padding] * more], CPU, size.blocks)
        return graphs.run(Inputs(torch.tensor(ids + [0] * more), torch.tensor(positions + [0] * more), layout))[: len(ids)]

    def _tensor(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._device)


def new_caches(model: Llama, blocks: int) -> torch.Tensor:
    """[layers, blocks, kv_heads, 2, BLOCK_TOKENS, head_dim]. Zeros by numpy: on a CPU memory is then touched when it is used."""
    s, like = model.shape, model.embedding
    size = (s.layers, blocks, s.kv_heads, 2, BLOCK_TOKENS, s.head_dim)
    if like.device.type == "cpu":
        return torch.from_numpy(np.zeros((*size[:-1], size[-1] * like.element_size()), np.uint8)).view(like.dtype)
    return torch.zeros(size, dtype=like.dtype, device=like.device)


def lay_out(spans: Sequence[Span], device: torch.device, width: int = 0) -> Layout:
    """Where the rows of `spans`, those of one token first, write and read; the table of single ones at least `width` blocks wide."""
    singles = [span for span in spans if span.tokens == 1]
    tables = np.zeros((len(singles), max([width, *(len(span.blocks) for span in singles)])), np.int32)
    blocks: list[int] = []
    offsets: list[int] = []
    chunks = []
    for index, (own, past, tokens) in enumerate(spans):
        blocks += [own[place // BLOCK_TOKENS] for place in range(past, past + tokens)]
        offsets += [place % BLOCK_TOKENS for place in range(past, past + tokens)]
        if index < len(singles):
            tables[index, : len(own)] = own
        else:
            chunks.append(Chunk(len(blocks) - tokens, len(blocks), torch.tensor(own).to(device), past + tokens))
    lengths = torch.tensor([span.past + 1 for span in singles], dtype=torch.int32)
    places = (torch.tensor(blocks).to(device), torch.tensor(offsets).to(device))
    return Layout(places, torch.from_numpy(tables).to(device), lengths.to(device), chunks)


def kv_bytes(config: EngineConfig, device: torch.device) -> int:
    """Memory for keys and values: as configured, else by what the device has free now, the weights being there."""
    if config.kv_bytes > 0 or device.type == "cpu":
        return config.kv_bytes or CPU_KV_BYTES
    torch.cuda.empty_cache()
    free, _total = torch.cuda.mem_get_info(device)
    return int(free * config.kv_fraction)


def block_bytes(shape: Shape, item_bytes: int) -> int:
    """Keys and values of one block over all layers."""
    return BLOCK_TOKENS * shape.layers * 2 * shape.kv_heads * shape.head_dim * item_bytes
