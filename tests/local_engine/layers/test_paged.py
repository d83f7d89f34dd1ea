"""What FlashInfer is handed, against its documented page table: a stand-in for its wrapper computes from that alone. No CUDA here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.layers import paged
from local_engine.layers.paged import FlashInfer, Heads, compiled, flash_infer
from local_engine.loader import load
from local_engine.model_runner import ModelRunner
from tests.local_engine.test_graphs import answers


class Wrapper:
    """FlashInfer's BatchDecodeWithPagedKVCacheWrapper by its documentation, in torch: row i reads pages
    indices[indptr[i]:indptr[i + 1]], the last of which holds last_page_len[i] tokens; a fixed one keeps its rows and its buffers."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str, use_cuda_graph: bool, use_tensor_cores: bool, **buffers: torch.Tensor):
        assert workspace.dtype == torch.uint8
        assert kv_layout == "HND" and use_tensor_cores
        names = {"paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer"}
        assert set(buffers) == (names if use_cuda_graph else set())
        self.buffers = buffers
        self.plans = 0

    def plan(self, indptr: torch.Tensor, indices: torch.Tensor, last: torch.Tensor, *heads: int, **types: torch.dtype) -> None:
        _queries, _keys, _dim, page = heads
        assert {one.dtype for one in (indptr, indices, last)} == {torch.int32}
        assert indptr[0] == 0 and indptr[-1] == len(indices) and len(indptr) == len(last) + 1
        assert bool(((last >= 1) & (last <= page)).all())
        assert set(types) == {"q_data_type", "kv_data_type"}
        if self.buffers:
            assert len(self.buffers["paged_kv_last_page_len_buffer"]) == len(last)
            assert len(self.buffers["paged_kv_indptr_buffer"]) == len(indptr)
            assert len(self.buffers["paged_kv_indices_buffer"]) >= len(indices)
        self.table = [one.clone() for one in (indptr, indices, last)]
        self.heads = heads
        self.plans += 1

    def run(self, q: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        keys, values = cache
        heads, kv_heads, dim, page = self.heads
        assert keys.stride() == values.stride() and q.is_contiguous()
        assert keys.shape[1:] == (kv_heads, page, dim) and q.shape[1:] == (heads, dim)
        indptr, indices, last = self.table
        out = []
        for row in range(len(last)):
            pages = indices[indptr[row] : indptr[row + 1]]
            tokens = (len(pages) - 1) * page + int(last[row])
            k, v = (one[pages].transpose(0, 1).flatten(1, 2)[None, :, :tokens] for one in (keys, values))
            out.append(scaled_dot_product_attention(q[row][None, :, None], k, v, enable_gqa=True)[0, :, 0])
        return torch.stack(out)


@pytest.mark.parametrize("recorded", [False, True])
def test_the_page_table_says_where_each_row_reads(tiny: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool) -> None:
    monkeypatch.setattr(paged, "WORKSPACE_BYTES", 16)
    made: list[Wrapper] = []

    def wrapper(*args: Any, **named: Any) -> Wrapper:
        made.append(Wrapper(*args, **named))
        return made[-1]

    wanted = answers(Engine(load(tiny), EngineConfig(model_dir=str(tiny), threads=1)), joining=3)
    engine = Engine(load(tiny), EngineConfig(model_dir=str(tiny), threads=1, compiled=False))  # as a device has it
    s = load(tiny).shape
    flash = FlashInfer(Heads(s.heads, s.kv_heads, s.head_dim), torch.device("cpu"), wrapper, "a stand-in")
    engine.runner = ModelRunner(engine.runner._model, engine.pool.blocks, (lambda compute: compute) if recorded else None, flash)
    assert answers(engine, joining=3) == wanted
    assert made[0].plans > 0
    assert (len(made) > 3) == recorded  # one for each size that was recorded, planned anew for each step
    assert not recorded or made[1].plans > 2


def test_only_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flash_infer(Heads(4, 2, 64), torch.empty(0, dtype=torch.bfloat16)) is None  # no CUDA device


def test_what_cannot_be_compiled_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class NoCompiler(Wrapper):
        def plan(self, *_table: Any, **_types: Any) -> None:
            raise RuntimeError("nvcc is missing")

    monkeypatch.setattr(paged, "WORKSPACE_BYTES", 16)
    heads, cpu = Heads(4, 2, 64), torch.device("cpu")
    assert compiled(FlashInfer(heads, cpu, NoCompiler, "FlashInfer 0"), torch.bfloat16) is None
    assert "FlashInfer 0 cannot be used, torch's attention is: nvcc is missing" in caplog.text
    assert compiled(flash := FlashInfer(heads, cpu, Wrapper, "FlashInfer 0"), torch.bfloat16) is flash
