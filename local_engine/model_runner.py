"""The tensors of one step: flat ids and positions out of the scheduled work, logits of the rows that sample back. Knows no policy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from local_engine.kv_cache import KvPool
from local_engine.models.llama import Llama, Span
from local_engine.scheduler import Work


class ModelRunner:
    def __init__(self, model: Llama, pool: KvPool) -> None:
        self._model = model
        self._pool = pool

    @torch.inference_mode()
    def run(self, work: Sequence[Work]) -> torch.Tensor:
        """Logits [works that sample, vocab], in the order of `work`. `computed` is not moved: the engine does, once it has the tokens."""
        ids: list[int] = []
        positions: list[int] = []
        spans: list[Span] = []
        rows: list[int] = []
        for sequence, tokens, samples in work:
            past, start = sequence.computed, len(ids)
            ids += itertools.islice(sequence.tokens, past, past + tokens)
            positions += range(past, past + tokens)
            spans.append(Span(start, len(ids), self._pool.buffer(sequence.id), past))
            if samples:
                rows.append(len(ids) - 1)
        return self._model.forward(torch.tensor(ids), torch.tensor(positions), spans, torch.tensor(rows, dtype=torch.int64))
