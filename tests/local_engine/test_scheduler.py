from __future__ import annotations

from local_engine.kv_cache import BLOCK_TOKENS, KvPool
from local_engine.scheduler import FIRST_GUESS, Scheduler, Work
from local_engine.sequence import Sequence
from local_engine.wire import Params


def scheduler(blocks: int = 256, max_sequences: int = 4, budget: int = 32) -> tuple[Scheduler, KvPool]:
    pool = KvPool(blocks, 1)
    return Scheduler(pool, max_sequences, budget), pool


def sequence(key: int, prompt: int, salt: str = "", priority: int = 0, limit: int = 1000, token: int | None = None) -> Sequence:
    made = Sequence(key, [key if token is None else token] * prompt, Params(), limit, salt)
    made.priority = priority
    return made


def finish(pool: KvPool, work: list[Work]) -> list[tuple[int, int]]:
    """Do as the engine does after a step; (id, tokens) of the work."""
    for one, tokens, samples in work:
        one.computed += tokens
        pool.commit(one.table, one.tokens, one.computed)
        if samples:
            one.tokens.append(2)
    return [(w.sequence.id, w.tokens) for w in work]


def test_prompts_are_chunked_within_the_budget_while_others_decode() -> None:
    s, pool = scheduler()
    s.add(sequence(1, 10))
    assert finish(pool, s.schedule()) == [(1, 10)]
    s.add(sequence(2, 70))
    assert finish(pool, s.schedule()) == [(1, 1), (2, 31)]
    assert s.outstanding_prefill_tokens == 39
    assert finish(pool, s.schedule()) == [(1, 1), (2, 31)]
    assert finish(pool, s.schedule()) == [(1, 1), (2, 8)]
    assert finish(pool, s.schedule()) == [(1, 1), (2, 1)]


def test_a_prompt_moves_on_however_many_decode() -> None:
    s, pool = scheduler(max_sequences=40, budget=4)
    for key in range(6):
        s.add(sequence(key, 1))
    finish(pool, s.schedule())
    s.add(sequence(9, 40))
    assert dict(finish(pool, s.schedule()))[9] == BLOCK_TOKENS


def test_only_so_many_run_and_the_rest_waits_in_order() -> None:
    s, pool = scheduler(max_sequences=2)
    sequences = [sequence(key, 5) for key in range(4)]
    for one in sequences:
        s.add(one)
    assert [key for key, _ in finish(pool, s.schedule())] == [0, 1]
    s.remove(sequences[0])
    assert [key for key, _ in finish(pool, s.schedule())] == [1, 2]
    s.remove(sequences[3])  # while it waits
    assert not s.waiting


def test_the_youngest_gives_way_and_computes_anew() -> None:
    s, pool = scheduler(blocks=10, budget=1000)
    old, young = sequence(1, BLOCK_TOKENS), sequence(2, BLOCK_TOKENS)  # expected to need 5 blocks each
    s.add(old)
    s.add(young)
    assert len(finish(pool, s.schedule())) == 2
    while not s.preemptions:
        finish(pool, s.schedule())
    assert (young.computed, list(s.waiting), s.running) == (0, [young], [old])
    assert len(old.tokens) > BLOCK_TOKENS + FIRST_GUESS  # not before the guess was wrong
    pool.check([old.table])
    s.remove(old)
    rest = len(young.tokens) - 4 * BLOCK_TOKENS  # of its 5 blocks the old one took the last
    assert finish(pool, s.schedule()) == [(2, rest)]
    s.remove(young)
    pool.check()
    assert pool.used_blocks == 0


def test_what_will_soon_not_fit_is_not_begun() -> None:
    s, pool = scheduler(blocks=9)
    s.add(sequence(1, BLOCK_TOKENS))
    s.add(sequence(2, BLOCK_TOKENS))  # 2 × (1 + 64 / 16) blocks
    assert [key for key, _ in finish(pool, s.schedule())] == [1]
    s.add(sequence(3, BLOCK_TOKENS, limit=1))
    assert [key for key, _ in finish(pool, s.schedule())] == [1]  # nor do others overtake
    s.remove(next(iter(s.waiting)))
    assert [key for key, _ in finish(pool, s.schedule())] == [1, 3]  # whose end is near


def test_answers_that_were_short_make_room_for_more() -> None:
    s, pool = scheduler(blocks=9, max_sequences=2)
    for key in range(40):  # each ends after one token
        one = sequence(key, BLOCK_TOKENS)
        s.add(one)
        finish(pool, s.schedule())
        s.remove(one)
    s.add(sequence(100, BLOCK_TOKENS))
    s.add(sequence(101, BLOCK_TOKENS))
    assert len(finish(pool, s.schedule())) == 2


def test_a_known_prefix_is_not_computed_again() -> None:
    s, pool = scheduler(budget=1000)
    first = sequence(1, 40)
    s.add(first)
    finish(pool, s.schedule())
    s.add(sequence(2, 40, token=1))
    s.add(sequence(3, 40, token=1, salt="other tenant"))
    assert sorted(tokens for _, tokens in finish(pool, s.schedule())) == [1, 8, 40]
    assert s.prefix_hit_tokens == 32


def test_tenants_take_turns() -> None:
    s, pool = scheduler(max_sequences=2, budget=1000)
    many = [sequence(key, 10, "many") for key in range(6)]
    for one in many:
        s.add(one)
    finish(pool, s.schedule())
    s.add(sequence(9, 10, "one"))
    s.remove(many[0])
    s.remove(many[1])
    assert [key for key, _ in finish(pool, s.schedule())] == [2, 9]


def test_tenants_share_the_budget_of_prompts() -> None:
    s, pool = scheduler()
    s.add(sequence(1, 1000, "long"))
    assert finish(pool, s.schedule()) == [(1, 32)]
    s.add(sequence(2, 20, "short"))
    s.add(sequence(3, 20, "long"))
    s.add(sequence(4, 5, "tiny"))
    assert sorted(finish(pool, s.schedule())) == [(1, 13), (2, 14), (4, 5)]  # a third each, and what the tiny one left
    assert sorted(finish(pool, s.schedule())) == [(1, 25), (2, 6), (4, 1)]
    assert sorted(finish(pool, s.schedule())) == [(1, 30), (2, 1), (4, 1)]


def test_offline_work_yields_to_those_who_wait() -> None:
    s, pool = scheduler(max_sequences=2, budget=1000)
    offline = [sequence(key, 20, priority=1) for key in range(3)]
    for one in offline:
        s.add(one)
    assert [key for key, _ in finish(pool, s.schedule())] == [0, 1]
    urgent = [sequence(key, 20) for key in (10, 11, 12)]
    s.add(urgent[0])
    assert [key for key, _ in finish(pool, s.schedule())] == [0, 10]
    s.add(urgent[1])
    s.add(urgent[2])
    assert [key for key, _ in finish(pool, s.schedule())] == [10, 11]  # never one interactive request for another
    assert s.preemptions == 2
    for one in urgent:
        s.remove(one)
    assert [key for key, _ in finish(pool, s.schedule())] == [0, 1]
    for one in offline:
        s.remove(one)
    pool.check()


def test_high_priority_goes_to_the_head_of_the_line_and_displaces_nobody_who_waits() -> None:
    s, pool = scheduler(max_sequences=1, budget=1000)
    normal = sequence(1, 20)
    for one in (normal, sequence(2, 20), sequence(3, 20, priority=-1)):
        s.add(one)
        finish(pool, s.schedule())
    assert s.running == [normal]
    s.remove(normal)
    assert [key for key, _ in finish(pool, s.schedule())] == [3]


def test_offline_work_gives_up_its_blocks_first() -> None:
    s, pool = scheduler(blocks=10, budget=1000)
    late = sequence(2, BLOCK_TOKENS)
    s.add(sequence(1, BLOCK_TOKENS, priority=1))
    finish(pool, s.schedule())
    s.add(late)
    while not s.preemptions:
        finish(pool, s.schedule())
    assert s.running == [late]
