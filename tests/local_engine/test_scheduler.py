from __future__ import annotations

from local_engine.kv_cache import GROWTH_TOKENS, KvPool
from local_engine.scheduler import Scheduler, Work
from local_engine.sequence import Sequence
from local_engine.wire import Params
from tests.local_engine.test_kv_cache import SHAPE, TOKEN_BYTES


def scheduler(tokens: int = 4096, max_sequences: int = 4, budget: int = 32) -> tuple[Scheduler, KvPool]:
    pool = KvPool(SHAPE, tokens * TOKEN_BYTES)
    return Scheduler(pool, max_sequences, budget), pool


def sequence(key: int, prompt: int) -> Sequence:
    return Sequence(key, [1] * prompt, Params(), 1000)


def finish(work: list[Work]) -> list[tuple[int, int]]:
    """Do as the engine does after a step; (id, tokens) of the work."""
    for one, tokens, samples in work:
        one.computed += tokens
        if samples:
            one.tokens.append(2)
    return [(w.sequence.id, w.tokens) for w in work]


def test_prompts_are_chunked_within_the_budget_while_others_decode() -> None:
    s, _ = scheduler()
    s.add(sequence(1, 10))
    assert finish(s.schedule()) == [(1, 10)]
    s.add(sequence(2, 70))
    assert finish(s.schedule()) == [(1, 1), (2, 32)]
    assert s.outstanding_prefill_tokens == 38
    assert finish(s.schedule()) == [(1, 1), (2, 32)]
    assert finish(s.schedule()) == [(1, 1), (2, 6)]
    assert finish(s.schedule()) == [(1, 1), (2, 1)]


def test_only_so_many_run_and_the_rest_waits_in_order() -> None:
    s, _ = scheduler(max_sequences=2)
    sequences = [sequence(key, 5) for key in range(4)]
    for one in sequences:
        s.add(one)
    assert [key for key, _ in finish(s.schedule())] == [0, 1]
    s.remove(sequences[0])
    assert [key for key, _ in finish(s.schedule())] == [1, 2]
    s.remove(sequences[3])  # while it waits
    assert not s.waiting


def test_the_youngest_gives_way_and_computes_anew() -> None:
    s, pool = scheduler(tokens=2 * GROWTH_TOKENS, budget=1000)
    old, young = sequence(1, GROWTH_TOKENS - 2), sequence(2, GROWTH_TOKENS - 20)
    s.add(old)
    s.add(young)
    assert len(finish(s.schedule())) == 2
    for _ in range(2):  # 64 of its tokens are computed then
        assert finish(s.schedule()) == [(1, 1), (2, 1)]
    assert pool.used_bytes == pool.cap_bytes
    assert finish(s.schedule()) == [(1, 1)]  # its 65th token needed a second buffer step
    assert s.preemptions == 1
    assert (young.computed, list(s.waiting)) == (0, [young])
    s.remove(old)
    assert finish(s.schedule()) == [(2, len(young.tokens) - 1)]  # prompt and what it had generated
    s.remove(young)
    assert pool.used_bytes == 0
