from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalog import Price
from gateway.routing.affinity import LEAST_TOKENS, REMEMBERED, PromptCache, cached_tokens, keeps_prompts
from gateway.routing.choose import Knobs, choose, differences
from gateway.routing.decision import decode, encode, explain
from gateway.routing.features import Features
from gateway.routing.prefixes import BLOCK_BYTES, names
from gateway.routing.state import BackendState
from tests.routing.conftest import make_backend, make_features

Make = Callable[..., BackendState]

# USD per million: the second is a tenth cheaper, a prompt read from a cache costs a tenth of a new one
ONE = Price(id="one", input=10**9, output=2 * 10**9, cache_read=10**8)
TENTH_LESS = Price(id="other", input=9 * 10**8, output=18 * 10**8, cache_read=9 * 10**7)
FIRST_TURN, SECOND_TURN = tuple(range(8)), tuple(range(11))  # blocks of 512 tokens


def turn(prefix: tuple[int, ...], tokens: int, **given: object) -> Features:
    return make_features(prefix=prefix, block_tokens=512, input_tokens=tokens, expected_output_tokens=100, **given)


def costs(states: list[BackendState], asked: Features, now: float) -> tuple[list[str], list[int | None]]:
    plan, decision = choose(asked, states, now, 0.5, Knobs())
    stored = decode(encode(decision))
    assert stored == decision and differences(stored) == []
    return [b.name for b in plan], [c.cost for c in decision.candidates]


@pytest.fixture
def states(state: Make) -> list[BackendState]:
    """Two backends; the first turn of a conversation, 4,200 tokens, was answered by the dearer at 100 s."""
    made = [state("a", price=ONE), state("b", price=TENTH_LESS)]
    call = made[0].started(99.0, turn(FIRST_TURN, 4200))
    call.first_token(100.0)
    call.ended(101.0, 100, 0)
    return made


def test_a_conversation_stays_where_its_prompt_is_held_and_moves_when_that_is_gone(states: list[BackendState]) -> None:
    """8 blocks of 512 are held: 4,096 tokens, of which 80 % are expected to be read: 3,276. The second turn has 6,000 and 100 come back.

    a: 2,724 x 1.00 + 3,276 x 0.10 + 100 x 2.00 = 3,251.6 millionths; without its cache 6,200.
    b: one more turn is to be expected, which would find half of the 4,096 there, of both: 0.8 x 2,048 = 1,638;
       4,362 x 0.90 + 1,638 x 0.09 + 100 x 1.80 = 4,253.22; without any cache 5,580.
    """
    assert costs(states, turn(SECOND_TURN, 6000), 400.0) == (["a", "b"], [3_251_600, 4_253_220])
    assert costs(states, turn(SECOND_TURN, 6000), 400.1) == (["b", "a"], [6_200_000, 5_580_000]), "five minutes after its last use"


def test_it_moves_when_the_difference_is_worth_more(state: Make, states: list[BackendState]) -> None:
    """c, which keeps no prompts, at 0.50 and 1.00: 6,000 x 0.50 + 100 x 1.00 = 3,100 millionths, less than 3,251.6; at 0.55 more."""
    for usd, first in ((500, "c"), (550, "a")):
        flat = state("c", price=Price(id="flat", input=usd * 10**6, output=10**9, cache_read=usd * 10**6))
        assert costs([*states, flat], turn(SECOND_TURN, 6000), 200.0)[0][0] == first


def test_the_more_requests_are_to_be_expected_the_less_a_start_elsewhere_counts(states: list[BackendState]) -> None:
    """A whole prompt of 4,096 held by a and read there: at 0.10, a tenth less at b. It costs b 0.90 once, and 0.01 less each time: it is
    cheaper for who expects more than eighty. Reads are certain here, nothing comes back."""
    for one in states:
        one.prompts._shares["assistant"] = (1.0, 1)
    asked = make_features(prefix=FIRST_TURN, block_tokens=512, input_tokens=4096, expected_output_tokens=0)
    firsts = ""
    for _ in range(2, 120):
        states[0].prompts.answered(FIRST_TURN, 150.0)
        firsts += costs(states, asked, 160.0)[0][0]
    stayed = firsts.count("a")
    assert firsts == "a" * stayed + "b" * (118 - stayed) and 78 <= stayed + 1 <= 83
    assert costs(states, turn(FIRST_TURN, 4200), 900.0)[1] == [4_400_000, 3_960_000], "after a pause nobody holds it"


def test_a_system_prompt_of_all_is_no_reason_to_stay_but_a_conversation_on_it_is(states: list[BackendState]) -> None:
    for _ in range(1000):
        states[0].prompts.answered(FIRST_TURN, 150.0)
    assert costs(states, turn((*FIRST_TURN, 91), 4700), 160.0)[0] == ["b", "a"]
    talk = (*FIRST_TURN, *range(91, 99))
    states[0].prompts.answered(talk, 161.0)
    assert costs(states, turn(talk, 8400), 162.0)[0] == ["a", "b"], "its own part is held in one place alone"


def test_what_is_held_is_told_and_no_time_is_promised_for_it(states: list[BackendState]) -> None:
    _, decision = choose(turn(SECOND_TURN, 6000, ttft_ms=1500.0), states, 200.0, 0.5, Knobs())
    a, b = decision.candidates
    assert (a.held, a.hit_ppm, a.cached) == (4096, 800_000, 3276) and (b.held, b.hit_ppm, b.soon, b.cached) == (0, 800_000, 2048, 1638)
    assert "3276 tokens cached = 80.0 % of 4096 answered there lately and 0 lent, for those to come" in explain(
        decision, differences(decision)
    )
    forged = decode(encode(decision))
    forged.candidates[0].hit_ppm = 900_000
    assert "a cached: recorded 3276, recomputed 3686" in differences(forged)
    _, fresh = choose(turn((), 6000, ttft_ms=1500.0), states, 200.0, 0.5, Knobs())
    assert [c.ttft95_us for c in fresh.candidates] == [c.ttft95_us for c in decision.candidates]


def test_other_conversations_and_short_prompts_hold_nobody_back(states: list[BackendState]) -> None:
    _, decision = choose(turn((0, 1, 99, 3, 4), 6000), states, 200.0, 0.5, Knobs())
    assert decision.candidates[0].held == 2 * 512, "what follows the first new block is new"
    _, decision = choose(turn((0, 99), 6000), states, 200.0, 0.5, Knobs())
    assert decision.candidates[0].held == 0, f"a vendor keeps nothing below {LEAST_TOKENS} tokens"


def test_the_share_that_is_read_is_learnt_per_route(states: list[BackendState]) -> None:
    cache = states[0].prompts
    for told, expected in ((4096, 0.9), (4096, 14 / 15), (0, 0.7)):  # the prior 0.8 weighs as one answer
        call = states[0].started(110.0, turn(SECOND_TURN[:8], 4200))
        call.first_token(110.1)
        call.ended(110.2, 10, told)
        assert cache.share_ppm("assistant") == pytest.approx(1e6 * expected, abs=1)
    call = states[0].started(110.0, turn(SECOND_TURN[:8], 4200))
    call.first_token(110.1)
    call.ended(110.2, 10, None)
    assert cache.share_ppm("assistant") == pytest.approx(700_000, abs=1), "a count of ours says nothing of a vendor's cache"
    assert cache.share_ppm("other") == 800_000
    for _ in range(200):
        cache.learn("assistant", 4096, 0)
    assert cache.share_ppm("assistant") < 1000, "a vendor that reads nothing holds nobody"
    for _ in range(200):
        cache.learn("assistant", 4096, 9999)
    assert 999_000 < cache.share_ppm("assistant") <= 1_000_000


def test_a_vendor_that_keeps_only_what_is_marked(state: Make) -> None:
    marking = state("m", price=ONE, dialect="anthropic_messages")
    marking.prompts.answered(FIRST_TURN, 100.0)
    for marked, held in ((False, 0), (True, 4096)):
        _, decision = choose(turn(SECOND_TURN, 6000, marked=marked), [marking, state("b")], 101.0, 0.5, Knobs())
        assert decision.candidates[0].held == held


def test_what_is_marked_costs_more_where_it_is_new(state: Make) -> None:
    """m-claude: new 3.00, written for five minutes 3.75, read 0.30, out 15.00: 2,724 x 3.75 + 3,276 x 0.30 + 100 x 15.00 = 12,697.8."""
    claude = Price(id="m-claude", input=3 * 10**9, output=15 * 10**9, cache_read=3 * 10**8, cache_write_5m=375 * 10**7)
    marking = state("m", price=claude, dialect="anthropic_messages")
    assert costs([marking], turn(SECOND_TURN, 6000, marked=True), 0.0)[1] == [24_000_000]
    assert costs([marking], turn(SECOND_TURN, 6000), 0.0)[1] == [19_500_000]
    marking.prompts.answered(FIRST_TURN, 100.0)
    assert costs([marking], turn(SECOND_TURN, 6000, marked=True), 101.0)[1] == [12_697_800]


def test_without_a_price_for_it_a_cache_is_worth_nothing(state: Make) -> None:
    flat = state("flat", price=Price(id="flat", input=10**9, output=10**9))
    flat.prompts.answered(FIRST_TURN, 100.0)
    _, decision = choose(turn(SECOND_TURN, 6000), [flat], 101.0, 0.5, Knobs())
    assert decision.candidates[0].held == 0
    assert not keeps_prompts(flat.backend) and keeps_prompts(make_backend(price=ONE)) and keeps_prompts(make_backend(own=True))


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    cache = PromptCache(300.0)
    cache.answered((1, 2, 3, 4), 0.0)
    for n in range(REMEMBERED // 4):
        cache.answered(tuple(range(100 + 4 * n, 104 + 4 * n)), 1.0)
    assert cache.held_tokens(turn((1, 2, 3, 4), 6000), 2.0) == 0
    assert cache.held_tokens(turn((100, 101, 102, 103), 6000), 2.0) == 2048
    assert len(cache.known) == REMEMBERED


def test_names_are_numbers_of_one_tenant() -> None:
    prompt = b"x" * (3 * BLOCK_BYTES + 17)
    found = names(1, prompt)
    assert len(found) == 3 and all(isinstance(name, int) for name in found)
    assert not set(found) & set(names(2, prompt))


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(prompts, st.integers(0, 200)), max_size=30), prompts)
def test_what_is_held_is_the_longest_beginning_that_was_answered_within_the_time(
    answered: list[tuple[list[int], int]], asked: list[int]
) -> None:
    """Beside a plain look at all that was answered. A prompt is a path in a tree, named as blocks are: by all that came before."""
    cache, now, seen = PromptCache(300.0), 0.0, list[tuple[float, tuple[int, ...]]]()

    def path(steps: list[int]) -> tuple[int, ...]:
        return tuple(hash(tuple(steps[: n + 1])) for n in range(len(steps)))

    for steps, passed in answered:
        now += passed
        cache.answered(path(steps), now)
        seen.append((now, path(steps)))
    wanted = path(asked)
    blocks = max([n for at, one in seen if at >= now - 300 for n in range(len(wanted) + 1) if one[:n] == wanted[:n]], default=0)
    tokens = blocks * 512
    assert cache.held_tokens(turn(wanted, 10_000), now) == (tokens if tokens >= LEAST_TOKENS else 0)
    share = cache.share_ppm("assistant")
    assert 0 <= cached_tokens(tokens, 0, share) <= tokens
