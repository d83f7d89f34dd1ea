"""Padded and replayed steps against plain ones: everything but CUDA's own recording, whose place a plain call takes here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from local_engine.config import CPU_KV_BYTES, EngineConfig
from local_engine.engine import Engine
from local_engine.graphs import MAX_PLACES, MAX_ROWS, MIN_BLOCKS, Graphs, Inputs, Size, size_of
from local_engine.kv_cache import BLOCK_TOKENS
from local_engine.loader import load
from local_engine.model_runner import Span, block_bytes, kv_bytes, lay_out, new_caches
from local_engine.models.llama import Llama
from local_engine.wire import Params

CPU = torch.device("cpu")
LENGTHS = (3, 40, 1, 150, 17, 300, 16)


def make_engine(folder: Path, graphs: bool | None, **options: int) -> Engine:
    return Engine(load(folder), EngineConfig(model_dir=str(folder), threads=1, graphs=graphs, **options).checked())


def answers(engine: Engine, joining: int = 0, longer: int = 0) -> list[list[int]]:
    """Greedy ids of prompts of all `LENGTHS`, each some steps later than the one before and longer in its answer."""
    out: list[list[int]] = [[] for _ in LENGTHS]
    waiting = list(enumerate(LENGTHS))
    step = 0
    while waiting or engine.busy:
        while waiting and step >= joining * waiting[0][0]:
            key, length = waiting.pop(0)
            engine.add(
                key,
                [2 + (key * 7 + place * 3) % 200 for place in range(length)],
                Params(temperature=0, max_tokens=6 + 5 * key + longer, ignore_eos=True),
            )
        for output in engine.step():
            out[output.id].append(output.token)
        step += 1
    return out


def counted(engine: Engine) -> list[Size]:
    """The sizes of the steps that are replayed from now on."""
    graphs = engine.runner._graphs
    assert graphs is not None
    seen: list[Size] = []
    plain: Callable[[Inputs], torch.Tensor] = graphs.run

    def run(fresh: Inputs) -> torch.Tensor:
        seen.append(Size(*fresh.layout.tables.shape))
        return plain(fresh)

    graphs.run = run  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize(
    ("rows", "blocks", "size"),
    [(1, 1, (1, 16)), (2, 16, (2, 16)), (3, 17, (4, 32)), (5, 33, (8, 64)), (9, 1, (16, 16)), (256, 16, (256, 16)), (16, 256, (16, 256))],
)
def test_a_batch_is_padded_to_the_next_power_of_two(rows: int, blocks: int, size: tuple[int, int]) -> None:
    assert size_of(rows, blocks) == size


def test_what_is_too_large_is_not_recorded() -> None:
    assert size_of(MAX_ROWS + 1, 1) is None
    assert size_of(2, MAX_PLACES) is None
    assert size_of(1, MAX_PLACES) == (1, MAX_PLACES)


@pytest.mark.parametrize("joining", [0, 3])
def test_replayed_steps_give_the_same_tokens(tiny: Path, joining: int) -> None:
    wanted = answers(make_engine(tiny, None), joining)
    engine = make_engine(tiny, True)
    seen = counted(engine)
    assert answers(engine, joining) == wanted
    assert len(seen) > 20 and len(set(seen)) > 3  # several sizes, each replayed with other rows than it was recorded with


def test_preempted_and_chunked_too(tiny: Path) -> None:
    options = {"kv_bytes": 26 * block_bytes(load(tiny).shape, 4), "max_step_tokens": 32}
    engine = make_engine(tiny, True, **options)
    engine.scheduler._answer_tokens = 1.0  # admits boldly, and repents
    wanted = answers(make_engine(tiny, None), longer=40)
    seen = counted(engine)
    assert answers(engine, longer=40) == wanted
    assert engine.stats.preemptions > 0 and seen


def test_a_step_with_a_chunk_is_never_replayed(tiny: Path) -> None:
    engine = make_engine(tiny, True, max_step_tokens=64)
    seen = counted(engine)
    engine.add(0, list(range(2, 42)), Params(temperature=0, max_tokens=20, ignore_eos=True))
    engine.step()
    assert seen == []
    engine.step()
    assert seen == [(1, MIN_BLOCKS)]
    engine.add(1, list(range(2, 100)), Params(temperature=0, max_tokens=20, ignore_eos=True))
    engine.step()  # a token of the first beside a chunk of the second
    assert len(seen) == 1


def test_rows_that_pad_touch_only_the_spare_block(tiny: Path) -> None:
    """The block is within what is configured, and the pool never gives it away."""
    size = block_bytes(load(tiny).shape, 4)
    engine = make_engine(tiny, True, kv_bytes=8 * size)
    caches = engine.runner._caches
    assert (engine.pool.blocks, caches[0].shape[0], engine.pool.cap_bytes + size) == (7, 8, 8 * size)
    for key in range(3):
        engine.add(key, [5, 6, 7, key], Params(temperature=0, max_tokens=4, ignore_eos=True))
    while engine.busy:
        engine.step()
    used = [bool(block.any()) for block in caches[0]]
    assert used == [True] * 3 + [False] * 4 + [True]
    assert not caches[0][7, :, :, 1:].any()


@torch.inference_mode()
def test_a_recording_reads_what_it_is_given_anew_and_keeps_nothing_of_the_caller(tiny: Path) -> None:
    model = Llama((loaded := load(tiny)).shape, loaded.weights)
    recorded = []

    def record(compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        recorded.append(compute)
        return compute

    caches, plain = new_caches(model, 6), new_caches(model, 6)
    graphs = Graphs(model, caches, record)
    for step in range(BLOCK_TOKENS + 4):  # over the end of a block
        spans = [Span([0, 2], step, 1), Span([3, 1], step, 1)]
        ids, positions = torch.tensor([4 + step, 90 - step]), torch.tensor([step, step])
        wanted = model.forward(ids, positions, plain, lay_out(spans, CPU), torch.tensor([0, 1]))
        fresh = Inputs(ids, positions, lay_out(spans, CPU, MIN_BLOCKS))
        assert torch.allclose(graphs.run(fresh), wanted, atol=1e-5)
        for tensor in fresh.tensors:
            tensor.fill_(0)
    assert len(recorded) == 1
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(caches, plain, strict=True))


def test_a_device_gives_a_part_of_what_it_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    cuda = torch.device("cuda")
    assert kv_bytes(EngineConfig(model_dir="m"), cuda) == 800
    assert kv_bytes(EngineConfig(model_dir="m", kv_fraction=0.25), cuda) == 250
    assert kv_bytes(EngineConfig(model_dir="m", kv_bytes=4096), cuda) == 4096
    assert kv_bytes(EngineConfig(model_dir="m"), CPU) == CPU_KV_BYTES
