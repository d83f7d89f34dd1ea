"""The tensors of one step: flat ids, positions and slots out of the scheduled work, logits of the rows that sample back.

Owns the tensor whose blocks the pool counts. Knows no policy; the same on every device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from local_engine.kv_cache import BLOCK_TOKENS
from local_engine.layers.attention import Chunk, Layout
from local_engine.loader import Shape
from local_engine.models.llama import Llama
from local_engine.scheduler import Work


class ModelRunner:
    def __init__(self, model: Llama, blocks: int) -> None:
        self._model = model
        weight = model.embedding
        s = model.shape
        # zeros, not empty: memory is then touched block by block, as it is used
        self._cache = torch.zeros(s.layers, 2, s.kv_heads, blocks * BLOCK_TOKENS, s.head_dim, dtype=weight.dtype, device=weight.device)
        self._device = weight.device

    @torch.inference_mode()
    def run(self, work: Sequence[Work]) -> torch.Tensor:
        """Logits [works that sample, vocab], in the order of `work`. `computed` is not moved: the engine does, once it has the tokens."""
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for sequence, tokens, samples in work:
            past = sequence.computed
            ids += itertools.islice(sequence.tokens, past, past + tokens)
            positions += range(past, past + tokens)
            if samples:
                rows.append(len(ids) - 1)
        return self._model.forward(self._tensor(ids), self._tensor(positions), self._cache, self._layout(work), self._tensor(rows))

    def _layout(self, work: Sequence[Work]) -> Layout:
        singles = sum(one.tokens == 1 for one in work)
        slots = [self._slots(one, one.sequence.computed + one.tokens) for one in work]
        chunks, start = [], singles
        for one, own in zip(work[singles:], slots[singles:], strict=True):
            chunks.append(Chunk(start, start + one.tokens, own))
            start += one.tokens
        lengths = torch.tensor([len(own) for own in slots[:singles]], dtype=torch.int64)
        padded = torch.nn.utils.rnn.pad_sequence(slots[:singles], batch_first=True) if singles else torch.empty(0, 0, dtype=torch.int64)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        written = torch.cat([own[len(own) - one.tokens :] for one, own in zip(work, slots, strict=True)])
        return Layout(
            slots=written.to(self._device),
            singles=singles,
            context=padded.flatten().to(self._device),
            mask=mask[:, None, None].to(self._device),
            chunks=[chunk._replace(slots=chunk.slots.to(self._device)) for chunk in chunks],
        )

    def _slots(self, one: Work, tokens: int) -> torch.Tensor:
        """Where the first `tokens` tokens of a sequence are."""
        blocks = torch.tensor(one.sequence.table.blocks, dtype=torch.int64)
        return (blocks[:, None] * BLOCK_TOKENS + torch.arange(BLOCK_TOKENS)).flatten()[:tokens]

    def _tensor(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._device)


def block_bytes(shape: Shape, item_bytes: int) -> int:
    """Keys and values of one block over all layers."""
    return BLOCK_TOKENS * shape.layers * 2 * shape.kv_heads * shape.head_dim * item_bytes
