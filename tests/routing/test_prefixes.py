from __future__ import annotations

import random
from collections.abc import Callable

from gateway.routing.choose import Knobs, choose, differences
from gateway.routing.features import Features
from gateway.routing.prefixes import BLOCK_BYTES, BLOCK_TOKENS, BLOCKS_MOST, REMEMBERED, Prefixes, names
from gateway.routing.state import BackendState


def test_names_are_chained_and_a_tenants_own() -> None:
    text = random.Random(1).randbytes(BLOCK_BYTES * 3 + 100)
    assert len(names(1, text)) == 3 and names(1, text[:100]) == ()
    assert names(1, text) != names(2, text)
    other = b"x" + text[1:]
    assert not set(names(1, text)) & set(names(1, other)), "what comes before is part of each name"
    assert names(1, text + text)[:3] == names(1, text)
    assert len(names(1, bytes(BLOCK_BYTES * (BLOCKS_MOST + 50)))) <= BLOCKS_MOST + 1


def test_the_first_unknown_block_ends_what_is_cached() -> None:
    prefixes = Prefixes()
    prefixes.sent((1, 2, 3))
    assert prefixes.cached_tokens((1, 2, 9, 3), 10_000) == 2 * BLOCK_TOKENS
    assert prefixes.cached_tokens((1, 2, 3), 3 * BLOCK_TOKENS) == 2 * BLOCK_TOKENS, "the last block is computed anew"
    assert prefixes.cached_tokens((7,), 10_000) == 0
    prefixes.sent(tuple(range(100, 100 + REMEMBERED)))
    assert prefixes.cached_tokens((1,), 10_000) == 0


def test_replicas_go_by_pending_and_uncached_tokens(state: Callable[..., BackendState], features: Callable[..., Features]) -> None:
    replicas = [state(name, own=True, vendor="vllm", model="m") for name in "ab"]
    known = tuple(range(20))
    asked = features(input_tokens=10_000, prefix=known)
    first = replicas[1].started(0.0, asked)
    first.first_token(1.0)
    first.ended(2.0, 10)
    plan, decision = choose(asked, replicas, 3.0, 0.0, Knobs())
    assert [one.name for one in plan] == ["b", "a"] and differences(decision) == []
    replicas[1].started(3.0, features(input_tokens=30_000))
    assert choose(asked, replicas, 3.1, 0.0, Knobs())[0][0].name == "a", "its queue costs more than the prefix saves"
