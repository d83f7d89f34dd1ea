"""The tensors of one step: flat ids, positions and places out of the scheduled work, logits of the rows that sample back.

Owns the tensor whose blocks the pool counts. Knows no policy; the same on every device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from local_engine.kv_cache import BLOCK_TOKENS
from local_engine.layers.attention import Chunk, Layout
from local_engine.loader import Shape
from local_engine.models.llama import Llama
from local_engine.scheduler import Work


class Span(NamedTuple):
    """The next `tokens` tokens of a sequence that has computed `past`; the first `blocks` hold them all."""

    blocks: Sequence[int]
    past: int
    tokens: int


class ModelRunner:
    def __init__(self, model: Llama, blocks: int) -> None:
        self._model = model
        self._caches = new_caches(model, blocks)
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
        layout = lay_out([Span(one.sequence.table.blocks, one.sequence.computed, one.tokens) for one in work], self._device)
        return self._model.forward(self._tensor(ids), self._tensor(positions), self._caches, layout, self._tensor(rows))

    def _tensor(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._device)


def new_caches(model: Llama, blocks: int) -> list[torch.Tensor]:
    """Of each layer [blocks, kv_heads, 2, BLOCK_TOKENS, head_dim]. Zeros by numpy: on a CPU memory is then touched when it is used."""
    s, like = model.shape, model.embedding
    size = (s.layers, blocks, s.kv_heads, 2, BLOCK_TOKENS, s.head_dim)
    if like.device.type == "cpu":
        return list(torch.from_numpy(np.zeros((*size[:-1], size[-1] * like.element_size()), np.uint8)).view(like.dtype).unbind(0))
    return list(torch.zeros(size, dtype=like.dtype, device=like.device).unbind(0))


def lay_out(spans: Sequence[Span], device: torch.device) -> Layout:
    """Where the rows of `spans`, those of one token first, write and read."""
    singles = [span for span in spans if span.tokens == 1]
    tables = np.zeros((len(singles), max((len(span.blocks) for span in singles), default=0)), np.int32)
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


def block_bytes(shape: Shape, item_bytes: int) -> int:
    """Keys and values of one block over all layers."""
    return BLOCK_TOKENS * shape.layers * 2 * shape.kv_heads * shape.head_dim * item_bytes
