"""Steps of single tokens, recorded once for each size and replayed: launching a small model's kernels costs more than running them.

A batch is padded to the next size of rows and of blocks; what the rows that nobody asked for write and give is the caller's to ignore.
Knows tensors, no request. Only `on_cuda` touches the device: replaying is a plain call elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from local_engine.layers.attention import Layout
from local_engine.layers.paged import FlashInfer
from local_engine.models.llama import Llama

Tensor = torch.Tensor
Compute = Callable[[], Tensor]
Record = Callable[[Compute], Compute]  # what computes from fixed tensors into others -> what does it again, giving the same tensor

MAX_ROWS = 256
MIN_BLOCKS = 16  # of context: shorter ones are padded to it, so that few sizes are recorded
MAX_PLACES = 4096  # rows x blocks; larger steps are bound by their arithmetic, and a recording of them would hold much memory


class Inputs(NamedTuple):
    """What one step is computed from."""

    ids: Tensor  # int64 [rows]
    positions: Tensor  # int64 [rows]
    layout: Layout

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.ids, self.positions, *self.layout.places, self.layout.tables, self.layout.lengths)


class Size(NamedTuple):
    rows: int
    blocks: int


class Graphs:
    """Recordings of `model` over `caches`, made when a size is first met."""

    def __init__(self, model: Llama, caches: Tensor, record: Record, flash: FlashInfer | None = None) -> None:
        self._model = model
        self._caches = caches
        self._record = record
        self._flash = flash
        self._recorded: dict[Size, tuple[Inputs, Compute]] = {}

    def run(self, fresh: Inputs) -> Tensor:
        """Logits f32 [rows, vocab], valid until the next run; `fresh` is on the CPU and of a size that `size_of` gave."""
        size = Size(*fresh.layout.tables.shape)
        if size not in self._recorded:
            own = _copied(fresh, self._model.embedding.device)
            if self._flash is not None:
                own.layout.paged = self._flash.paged(size.rows, size.rows * size.blocks)
            self._plan(own, fresh)
            rows = torch.arange(size.rows, device=own.ids.device)
            compute = lambda: self._model.forward(own.ids, own.positions, self._caches, own.layout, rows)  # noqa: E731
            self._recorded[size] = own, self._record(compute)
        own, replay = self._recorded[size]
        self._plan(own, fresh)
        for kept, new in zip(own.tensors, fresh.tensors, strict=True):
            kept.copy_(new)
        return replay()

    def _plan(self, own: Inputs, fresh: Inputs) -> None:
        if own.layout.paged is not None:
            own.layout.paged.plan(fresh.layout.tables, fresh.layout.lengths, self._caches[0].shape[3], self._caches[0].dtype)


def size_of(rows: int, blocks: int) -> Size | None:
    """The size that a step of `rows` single tokens, of sequences of at most `blocks` blocks, is padded to; None: too large to record."""
    size = Size(_power(rows), max(MIN_BLOCKS, _power(blocks)))
    return size if size.rows <= MAX_ROWS and size.rows * size.blocks <= MAX_PLACES else None


def on_cuda() -> Record:
    """Records as CUDA graphs, which share one pool of memory, since only one of them runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(compute: Compute) -> Compute:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()  # a first call loads and chooses kernels, which must not happen while recording
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = compute()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay

    return record


def recorder(device: torch.device) -> Record:
    return on_cuda() if device.type == "cuda" else lambda compute: compute


def _power(number: int) -> int:
    """The power of two that is not below it."""
    return 1 << (number - 1).bit_length()


def _copied(fresh: Inputs, device: torch.device) -> Inputs:
    ids, positions, block, offset, tables, lengths = (torch.empty_like(one, device=device).copy_(one) for one in fresh.tensors)
    return Inputs(ids, positions, Layout((block, offset), tables, lengths, ()))
