"""Prefixes in the whole engine: reused blocks, forced eviction, preemption and cancels change no token and mix no texts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.kv_cache import BLOCK_TOKENS
from local_engine.loader import load
from tests.local_engine.test_engine import greedy, make_engine, prompts, run

TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # of the tiny model
ANSWER = 8


def test_a_prefix_is_computed_once_and_changes_nothing(tiny: Path) -> None:
    engine = make_engine(tiny)
    prompt = prompts(250, [100])[0]
    first = run(engine, [(1, prompt, greedy())])[1]
    assert engine.stats.prefix_hit_tokens == 0
    assert run(engine, [(1, prompt, greedy())])[1] == first
    assert engine.stats.prefix_hit_tokens == 96
    turn = [*prompt, *first, 7, 8, 9]  # a second turn of the talk: the answer's blocks are known as well
    fresh = run(make_engine(tiny), [(1, turn, greedy())])[1]
    assert run(engine, [(1, turn, greedy())])[1] == fresh
    assert engine.stats.prefix_hit_tokens == 96 + 112


def test_no_tenant_finds_what_another_computed(tiny: Path) -> None:
    engine = make_engine(tiny)
    prompt = prompts(250, [64])[0]
    for salt in ("a", "b", "a"):
        engine.add(1, prompt, greedy(1), salt)
        assert len(engine.step()) == 1
    assert engine.stats.prefix_hit_tokens == 48  # the third alone


@pytest.fixture(scope="module")
def shared() -> list[list[int]]:
    """200 prompts that share 0, 16, 17 or 32 leading tokens with others, and have a secret of their own behind them."""
    numbers = random.Random(9)
    common = [numbers.randrange(2, 250) for _ in range(32)]
    return [common[: (0, 16, 17, 32)[i % 4]] + [numbers.randrange(2, 250) for _ in range(numbers.randrange(3, 40))] for i in range(200)]


@pytest.fixture(scope="module")
def told(tiny: Path, shared: list[list[int]]) -> list[list[int]]:
    """Each prompt's answer where nothing is shared: each is a tenant of its own."""
    engine = make_engine(tiny, max_sequences=50, max_step_tokens=2048)
    out: list[list[int]] = [[] for _ in shared]
    for key, prompt in enumerate(shared):
        engine.add(key, prompt, greedy(ANSWER), str(key))
    while engine.busy:
        for output in engine.step():
            out[output.id].append(output.pick.token)
    assert engine.stats.prefix_hit_tokens == 0
    assert len({tuple(answer) for answer in out}) > 150  # a mix-up would show
    return out


@pytest.mark.parametrize(
    ("blocks", "sequences", "budget"), [(400, 16, 256), (24, 16, 64), (9, 8, 24)], ids=["roomy", "evicting", "too small for the load"]
)
def test_two_hundred_that_share_beginnings_keep_their_secrets(
    tiny: Path, shared: list[list[int]], told: list[list[int]], blocks: int, sequences: int, budget: int
) -> None:
    kv_bytes = blocks * BLOCK_TOKENS * TOKEN_BYTES
    engine = make_engine(tiny, kv_bytes=kv_bytes, max_sequences=sequences, max_step_tokens=budget, max_waiting=200)
    numbers = random.Random(3)
    cancelled: set[int] = set()
    out: list[list[int]] = [[] for _ in shared]
    arrivals = list(range(len(shared)))
    numbers.shuffle(arrivals)
    while arrivals or engine.busy:
        for key in [arrivals.pop() for _ in range(min(numbers.randrange(12), len(arrivals)))]:
            engine.add(key, shared[key], greedy(ANSWER), f"tenant {key % 2}", priority=key % 3 % 2)
        if numbers.random() < 0.2:
            cancelled.add(key := numbers.randrange(len(shared)))
            engine.abort(key)
            arrivals = [other for other in arrivals if other != key]
        for output in engine.step():
            out[output.id].append(output.pick.token)
        engine.check()
    for key, (found, wanted) in enumerate(zip(out, told, strict=True)):
        assert found == wanted[: len(found)], key
        assert len(found) == ANSWER or key in cancelled
    assert engine.stats.prefix_hit_tokens > 0
    assert engine.stats.kv_blocks_used == 0
    assert blocks > 9 or engine.stats.preemptions > 0


def test_int8_writes_the_same_alone_in_a_batch_and_joining_one(tiny: Path) -> None:
    given = prompts(250, (3, 40, 1, 150, 17))
    engine = Engine(load(tiny, "int8"), EngineConfig(model_dir=str(tiny), threads=1, precision="int8", max_step_tokens=2048))
    alone = [run(engine, [(1, prompt, greedy())])[1] for prompt in given]
    for join_after in (0, 3):
        fresh = Engine(load(tiny, "int8"), engine.config)  # chunked prompts and known prefixes are allowed to differ
        out = run(fresh, [(key, prompt, greedy()) for key, prompt in enumerate(given)], join_after)
        assert [out[key] for key in range(len(given))] == alone
