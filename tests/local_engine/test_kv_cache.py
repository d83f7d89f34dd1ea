from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.kv_cache import GROWTH_TOKENS, KvPool
from local_engine.loader import Shape

SHAPE = Shape(
    hidden=8, intermediate=8, layers=2, heads=2, kv_heads=1, head_dim=4, vocab=8, context_tokens=4096, norm_eps=1e-5, rope_theta=1e4,
    tied=True, eos_ids=frozenset(),
)  # fmt: skip
TOKEN_BYTES = 2 * 2 * 1 * 4 * 4


def test_growing_keeps_what_was_written() -> None:
    pool = KvPool(SHAPE, 10_000 * TOKEN_BYTES)
    assert pool.reserve(1, 10)
    pool.buffer(1)[:] = 3.0
    held = pool.buffer(1).shape[3]
    assert pool.reserve(1, held + 1)
    assert pool.buffer(1).shape[3] > held
    assert torch.all(pool.buffer(1)[:, :, :, :held] == 3.0)


def test_the_cap_holds_and_a_refusal_changes_nothing() -> None:
    pool = KvPool(SHAPE, 2 * GROWTH_TOKENS * TOKEN_BYTES)
    assert pool.capacity_tokens == 2 * GROWTH_TOKENS
    assert pool.reserve(1, GROWTH_TOKENS)
    assert not pool.reserve(2, GROWTH_TOKENS + 1)
    assert pool.used_bytes == GROWTH_TOKENS * TOKEN_BYTES
    assert pool.reserve(2, GROWTH_TOKENS)
    assert not pool.reserve(1, GROWTH_TOKENS + 1)
    pool.free(2)
    assert pool.reserve(1, 2 * GROWTH_TOKENS)
    pool.free(1)
    pool.free(1)  # harmless
    assert pool.used_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=40))
@settings(max_examples=60, deadline=None)
def test_accounts_equal_what_is_held(actions: list[tuple[int, int]]) -> None:
    pool = KvPool(SHAPE, 700 * TOKEN_BYTES)
    for key, tokens in actions:
        if tokens == 0:
            pool.free(key)
        elif pool.reserve(key, tokens):
            assert pool.buffer(key).shape[3] >= tokens
        pool.check()
        assert pool.used_bytes <= pool.cap_bytes
    for key in range(4):
        pool.free(key)
    assert pool.used_bytes == 0
