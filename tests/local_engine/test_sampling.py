from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.sampling import BLOCK, Pick, likeliest, sample, uniform
from local_engine.sequence import Sequence
from local_engine.wire import Params

EOS = frozenset({0})
PROBABILITIES = [0.05, 0.5, 0.3, 0.1, 0.05]
LOGITS = torch.log(torch.tensor(PROBABILITIES))


def sequence(tokens: list[int] | None = None, **params: Any) -> Sequence:
    made = Sequence(1, [1], Params(**params), 100)
    made.tokens += tokens or []
    return made


def choose(logits: torch.Tensor, *sequences: Sequence) -> list[int]:
    """The tokens, and each sequence has its own now."""
    tokens = [pick.token for pick in sample(logits.clone(), sequences, EOS)]
    for one, token in zip(sequences, tokens, strict=True):
        one.tokens.append(token)
    return tokens


def drawn(count: int = 2000, logits: torch.Tensor = LOGITS, **params: Any) -> Counter[int]:
    """What `count` requests with seeds of their own choose first."""
    found: Counter[int] = Counter()
    for at in range(0, count, 50):
        seeds = range(at, min(at + 50, count))
        found.update(choose(logits.repeat(len(seeds), 1), *(sequence(seed=seed, **params) for seed in seeds)))
    return found


def test_temperature_zero_is_the_likeliest_token() -> None:
    assert choose(LOGITS[None], sequence(temperature=0)) == [1]
    assert drawn(50, temperature=1e-9) == {1: 50}


@pytest.mark.parametrize("size", [5, BLOCK, 3 * BLOCK, 1000])
def test_the_likeliest_of_blocks_is_the_likeliest_of_all(size: int) -> None:
    logits = torch.randn(20, size, generator=torch.Generator().manual_seed(size))
    assert likeliest(logits).tolist() == logits.argmax(-1).tolist()


def test_plain_sampling_follows_the_probabilities() -> None:
    counts = drawn(4000)
    for token, probability in enumerate(PROBABILITIES):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_one_request_s_own_tokens_follow_the_probabilities() -> None:
    one = sequence(seed=7)
    counts = Counter(choose(LOGITS[None], one)[0] for _ in range(2000))
    for token, probability in enumerate(PROBABILITIES):
        assert counts[token] / 2000 == pytest.approx(probability, abs=0.04)


def test_a_low_temperature_sharpens() -> None:
    wanted = torch.softmax(LOGITS / 0.5, -1)[1].item()  # 0.25 / 0.355 = 0.704
    assert drawn(temperature=0.5)[1] / 2000 == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, {1, 2}),
        ({"top_p": 0.5}, {1}),  # the first token alone reaches 0.5
        ({"top_p": 0.55}, {1, 2}),
        ({"top_p": 0.0}, {1}),  # never nothing
        ({"min_p": 0.5}, {1, 2}),  # at least half as likely as the likeliest
        ({"top_k": 3, "top_p": 0.6}, {1, 2}),  # 0.6 of what top-k left (0.9): 0.5 + 0.3 reach 0.54
        ({"min_p": 0.15, "top_p": 0.89}, {1, 2, 3}),  # 0.89 of what min-p left (0.9): 0.5 + 0.3 do not reach 0.801
    ],
)
def test_cuts(params: dict[str, Any], kept: set[int]) -> None:
    assert set(drawn(**params)) == kept


def test_a_cut_keeps_the_proportions_of_what_it_leaves() -> None:
    assert drawn(4000, top_k=2)[1] / 4000 == pytest.approx(0.5 / 0.8, abs=0.03)


@pytest.mark.parametrize("top_p", [0.01, 0.5])  # 50 and some 2,500 tokens of 5,000: within the first look and far beyond it
def test_a_cut_beyond_the_first_look_is_found(top_p: float) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 0.01
    probabilities = torch.softmax(logits.double(), -1).sort(descending=True)
    allowed = int((probabilities.values.cumsum(0) < top_p).sum()) + 2  # one for the token that reaches it, one for rounding
    found = set(drawn(300, logits, top_p=top_p))
    assert found <= set(probabilities.indices[:allowed].tolist())
    assert len(found) > 40


def test_rows_that_are_decided_early_and_late_share_a_batch() -> None:
    flat, peaked = torch.zeros(3000), torch.zeros(3000)
    peaked[7] = 50.0
    mixed = torch.stack([flat, peaked, flat, peaked])
    for seed in range(20):
        rows = [sequence(seed=seed, top_p=0.9), sequence(seed=1, top_p=0.9), sequence(seed=seed), sequence(seed=1)]
        tokens = choose(mixed, *rows)
        assert (tokens[1], tokens[3]) == (7, 7)
        assert tokens[0] == choose(flat[None], sequence(seed=seed, top_p=0.9))[0]
        assert tokens[2] == choose(flat[None], sequence(seed=seed))[0]


def test_a_seed_gives_the_same_tokens_whoever_shares_the_batch() -> None:
    alone, first, second = (sequence(seed=5) for _ in range(3))
    others = [sequence(seed=n, top_p=0.9) for n in range(2)]
    single = [choose(LOGITS[None], alone)[0] for _ in range(30)]
    shared = [choose(LOGITS.repeat(4, 1), others[0], first, others[1], second) for _ in range(30)]
    assert [row[1] for row in shared] == [row[3] for row in shared] == single
    assert len(set(single)) > 2


def test_a_token_s_number_is_of_its_place_alone_so_that_preemption_changes_nothing() -> None:
    whole = sequence(seed=3)
    tokens = [choose(LOGITS[None], whole)[0] for _ in range(10)]
    resumed = sequence(tokens[:6], seed=3)  # as after a restart: a new object with the tokens so far
    assert [choose(LOGITS[None], resumed)[0] for _ in range(4)] == tokens[6:]


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_numbers_lie_in_their_range_and_differ_by_seed_and_place(seed: int, place: int) -> None:
    assert 0 <= uniform(seed, place) < 1
    assert len({uniform(seed, place), uniform(seed, place + 1), uniform((seed + 1) % 2**64, place)}) == 3


def test_numbers_are_spread_evenly() -> None:
    numbers = [uniform(seed, place) for seed in range(100) for place in range(100)]
    for tenth in range(10):
        assert sum(tenth <= number * 10 < tenth + 1 for number in numbers) == pytest.approx(1000, abs=150)


def test_penalties_count_generated_tokens_only() -> None:
    assert choose(LOGITS[None], sequence(temperature=0, presence_penalty=2.0)) == [1]  # 1 stands in the prompt only
    assert choose(LOGITS[None], sequence([1], temperature=0, presence_penalty=2.0)) == [2]
    assert choose(LOGITS[None], sequence([1], temperature=0, frequency_penalty=0.4)) == [1]
    assert choose(LOGITS[None], sequence([1, 1], temperature=0, frequency_penalty=0.4)) == [2]


def test_penalties_grow_with_the_answer() -> None:
    one = sequence(temperature=0, frequency_penalty=0.2, presence_penalty=0.1)
    tokens = [choose(LOGITS[None], one)[0] for _ in range(40)]
    said: Counter[int] = Counter()
    for token in tokens:  # by the definition: logit - frequency * count - presence * (count > 0)
        values = [LOGITS[t].item() - 0.2 * said[t] - 0.1 * (said[t] > 0) for t in range(5)]
        assert values[token] == pytest.approx(max(values), abs=1e-4)
        said[token] += 1


def test_repetition_counts_the_prompt_and_divides_or_multiplies() -> None:
    logits = torch.tensor([[0.5, 2.0, 1.5, -1.0, -3.0]])
    assert choose(logits, sequence(temperature=0, repetition_penalty=1.2)) == [1]  # 1 stands in the prompt: 2.0 / 1.2 > 1.5
    assert choose(logits, sequence(temperature=0, repetition_penalty=1.5)) == [2]
    negative = torch.tensor([[-9.0, -1.0, -1.2, -9.0, -9.0]])
    assert choose(negative, sequence(temperature=0, repetition_penalty=1.5)) == [2]  # -1.0 * 1.5 < -1.2
    assert choose(negative, sequence([2], temperature=0, repetition_penalty=1.5)) == [1]


def test_bias_forces_and_forbids() -> None:
    assert choose(LOGITS[None], sequence(temperature=0, logit_bias={3: 100.0})) == [3]
    assert choose(LOGITS[None], sequence(temperature=0, logit_bias={1: -100.0})) == [2]
    assert set(drawn(300, logit_bias={1: -100.0, 2: -100.0})) == {0, 3, 4}


def test_no_end_before_min_tokens() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.0, 0.0, 0.0]])
    assert choose(logits, sequence([2], temperature=0, min_tokens=2)) == [1]
    assert choose(logits, sequence([2, 2], temperature=0, min_tokens=2)) == [0]
    found = {choose(logits, sequence([2], seed=seed, min_tokens=2))[0] for seed in range(200)}
    assert 0 not in found and len(found) > 1


class Only:
    """A grammar that allows some tokens."""

    only_end = False

    def __init__(self, *allowed: int) -> None:
        self.mask = torch.ones(5, dtype=torch.bool)
        self.mask[list(allowed)] = False

    def forbidden(self) -> torch.Tensor:
        return self.mask


def test_a_grammar_forbids_whatever_else_is_asked_and_only_in_its_own_row() -> None:
    for params in ({"temperature": 0}, {"seed": 4}, {"seed": 4, "top_p": 0.4}, {"seed": 4, "logit_bias": {1: 100.0}}):
        one, other = sequence(**params), sequence(temperature=0)
        one.sampling.matcher, one.sampling.plain = Only(3, 4), False  # type: ignore[assignment]
        tokens = choose(LOGITS.repeat(2, 1), one, other)
        assert tokens[0] in (3, 4) and tokens[1] == 1


def test_log_probabilities_are_the_model_s_own() -> None:
    one = sequence(temperature=0, logprobs=3, logit_bias={3: 100.0})
    other = sequence(temperature=0)
    picks = sample(LOGITS.clone().repeat(2, 1), [one, other], EOS)
    assert picks[1] == Pick(1)
    assert picks[0].token == 3
    assert picks[0].logprob == pytest.approx(math.log(0.1), abs=1e-4)
    assert [token for token, _ in picks[0].top] == [1, 2, 3]
    assert [math.exp(value) for _, value in picks[0].top] == pytest.approx([0.5, 0.3, 0.1], abs=1e-4)
    assert sample(LOGITS.clone()[None], [sequence(logprobs=0)], EOS)[0].top == ()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_mixture_in_a_batch_chooses_as_each_would_alone(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([5, 130, 400]))
    rows = data.draw(st.integers(1, 5))
    numbers = random.Random(data.draw(st.integers(0, 1000)))
    logits = torch.tensor([[numbers.gauss(0, 3) for _ in range(size)] for _ in range(rows)])
    params = [
        {
            "temperature": numbers.choice([0, 0.3, 1, 2]),
            "top_p": numbers.choice([1, 0.9, 0.2, 0]),
            "top_k": numbers.choice([0, 1, 3, 100]),
            "min_p": numbers.choice([0, 0.1, 1]),
            "presence_penalty": numbers.choice([0, 1.5]),
            "repetition_penalty": numbers.choice([1, 1.3]),
            "min_tokens": numbers.choice([0, 9]),
            "logprobs": numbers.choice([None, 2]),
            "seed": numbers.randrange(2**63),
        }
        for _ in range(rows)
    ]
    together = sample(logits.clone(), [sequence([2, 3], **one) for one in params], EOS)
    for row, one in enumerate(params):
        alone = sample(logits[row : row + 1].clone(), [sequence([2, 3], **one)], EOS)[0]
        assert (alone.token, alone.top) == (together[row].token, together[row].top)


def test_a_row_that_is_not_a_number_does_not_touch_the_others() -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1] = torch.nan
    rows = [sequence(temperature=0), sequence(seed=1, top_p=0.9), sequence(temperature=0, presence_penalty=0.1)]
    tokens = choose(logits, *rows)
    assert (tokens[0], tokens[2]) == (1, 1) and 0 <= tokens[1] < 5
