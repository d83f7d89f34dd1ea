"""FlashInfer's attention of single rows, where it is installed: keys and values are read where they lie, not gathered first.

bf16 on CUDA devices. flash-attn's kernel is no choice here: its pages have at least 256 tokens, our blocks 16. **Not run** on a device
yet; the tests hold what is handed to FlashInfer against its documentation (docs.flashinfer.ai, page table layout).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor
logger = logging.getLogger(__name__)
WORKSPACE_BYTES = 128 * 1024 * 1024  # what FlashInfer recommends
HEAD_DIMS = (64, 128, 256)  # that it has kernels for


class Heads(NamedTuple):
    queries: int
    keys: int
    dim: int


class Paged:
    """One wrapper of FlashInfer: planned once a step, then called by every layer. `rows` and `pages`: of recorded steps, whose every row
    is there each time and whose page numbers must stay in place; 0 for steps of any size."""

    def __init__(self, wrapper: Callable[..., Any], workspace: Tensor, heads: Heads, rows: int = 0, pages: int = 0) -> None:
        fixed = {}
        if rows > 0:
            buffers = {"indptr": rows + 1, "indices": pages, "last_page_len": rows}
            fixed = {
                f"paged_kv_{name}_buffer": torch.zeros(size, dtype=torch.int32, device=workspace.device) for name, size in buffers.items()
            }
        # tensor cores: the other kernels know some numbers of queries a key only
        self._wrapper = wrapper(workspace, "HND", use_cuda_graph=rows > 0, use_tensor_cores=True, **fixed)
        self._heads = heads

    def plan(self, tables: Tensor, lengths: Tensor, block_tokens: int, dtype: torch.dtype) -> None:
        """tables int32 [rows, longest], lengths int32 [rows], on the CPU."""
        pages = (lengths + block_tokens - 1) // block_tokens
        ends = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        ends[1:] = pages.cumsum(0)
        used = tables[torch.arange(tables.shape[1]) < pages[:, None]]
        last = lengths - (pages - 1) * block_tokens
        heads = self._heads
        self._wrapper.plan(ends, used, last, heads.queries, heads.keys, heads.dim, block_tokens, q_data_type=dtype, kv_data_type=dtype)

    def __call__(self, q: Tensor, cache: Tensor) -> Tensor:
        """q [rows, heads, head_dim], the cache of one layer -> like q; what it reads is what `plan` was told."""
        out: Tensor = self._wrapper.run(q.contiguous(), cache.unbind(2))
        return out


class FlashInfer:
    """Makes them, all with one workspace: no two run at once."""

    def __init__(self, heads: Heads, device: torch.device, wrapper: Callable[..., Any], name: str) -> None:
        self.name = name
        self._heads = heads
        self._wrapper = wrapper
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def paged(self, rows: int = 0, pages: int = 0) -> Paged:
        return Paged(self._wrapper, self._workspace, self._heads, rows, pages)


def flash_infer(heads: Heads, like: Tensor) -> FlashInfer | None:
    """For tensors `like` this one; None where it is not installed or has no kernel for them."""
    fits = like.device.type == "cuda" and like.dtype == torch.bfloat16 and heads.dim in HEAD_DIMS
    if not fits or importlib.util.find_spec("flashinfer") is None:
        return None
    import flashinfer

    name = f"FlashInfer {flashinfer.__version__}"
    return compiled(FlashInfer(heads, like.device, flashinfer.BatchDecodeWithPagedKVCacheWrapper, name), like.dtype)


def compiled(flash: FlashInfer, dtype: torch.dtype) -> FlashInfer | None:
    """With its kernels, which it compiles at their first plan: minutes that a step must not take. None, and a warning, if it cannot."""
    try:
        flash.paged().plan(torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32), 1, dtype)
    except (OSError, RuntimeError) as error:  # no compiler of CUDA, most likely
        logger.warning("%s cannot be used, torch's attention is: %s", flash.name, error)
        return None
    return flash
