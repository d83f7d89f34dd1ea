from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from local_engine.sampling import sample
from local_engine.sequence import Sequence
from local_engine.wire import Params

EOS = frozenset({0})
LOGITS = torch.log(torch.tensor([0.05, 0.5, 0.3, 0.1, 0.05]))


def sequence(tokens: list[int] | None = None, **params: Any) -> Sequence:
    made = Sequence(1, [1], Params(**params), 100)
    made.tokens += tokens or []
    return made


def drawn(count: int = 2000, **params: Any) -> Counter[int]:
    one = sequence(seed=1, **params)
    return Counter(token for _ in range(count) for token in sample(LOGITS.clone()[None], [one], EOS))


def test_temperature_zero_is_the_likeliest_token() -> None:
    assert sample(LOGITS.clone()[None], [sequence(temperature=0)], EOS) == [1]
    assert drawn(50, temperature=1e-9) == {1: 50}


def test_plain_sampling_follows_the_probabilities() -> None:
    counts = drawn(4000)
    for token, probability in enumerate([0.05, 0.5, 0.3, 0.1, 0.05]):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


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
    ],
)
def test_cuts(params: dict[str, Any], kept: set[int]) -> None:
    assert set(drawn(**params)) == kept


def test_a_cut_beyond_the_first_look_is_found() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 5000) * 0.01  # nearly flat: top-p 0.5 keeps about 2,500 tokens
    one = sequence(seed=3, top_p=0.5)
    allowed = set(torch.softmax(logits[0], -1).topk(2600).indices.tolist())
    tokens = [sample(logits.clone(), [one], EOS)[0] for _ in range(200)]
    assert set(tokens) <= allowed
    assert len(set(tokens)) > 150


def test_a_seed_gives_the_same_tokens_whoever_shares_the_batch() -> None:
    alone, first, second = (sequence(seed=5) for _ in range(3))
    others = [sequence(seed=n, top_p=0.9) for n in range(3)]
    single = [sample(LOGITS.clone()[None], [alone], EOS)[0] for _ in range(30)]
    batch = LOGITS.repeat(5, 1)
    shared = [sample(batch.clone(), [others[0], first, others[1], second, others[2]], EOS) for _ in range(30)]
    assert [row[1] for row in shared] == [row[3] for row in shared] == single


def test_penalties_count_generated_tokens_only() -> None:
    assert sample(LOGITS.clone()[None], [sequence(temperature=0, presence_penalty=2.0)], EOS) == [1]  # 1 stands in the prompt only
    assert sample(LOGITS.clone()[None], [sequence([1], temperature=0, presence_penalty=2.0)], EOS) == [2]
    assert sample(LOGITS.clone()[None], [sequence([1], temperature=0, frequency_penalty=0.4)], EOS) == [1]
    assert sample(LOGITS.clone()[None], [sequence([1, 1], temperature=0, frequency_penalty=0.4)], EOS) == [2]


def test_bias_forces_and_forbids() -> None:
    assert sample(LOGITS.clone()[None], [sequence(temperature=0, logit_bias={3: 100.0})], EOS) == [3]
    assert sample(LOGITS.clone()[None], [sequence(temperature=0, logit_bias={1: -100.0})], EOS) == [2]


def test_no_end_before_min_tokens() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.0, 0.0, 0.0]])
    assert sample(logits.clone(), [sequence([2], temperature=0, min_tokens=2)], EOS) == [1]
    assert sample(logits.clone(), [sequence([2, 2], temperature=0, min_tokens=2)], EOS) == [0]
