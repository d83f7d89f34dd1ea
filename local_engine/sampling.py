"""Logits -> one token a row: penalties, bias, temperature, min-p, top-k, top-p, one random number per token of a request.

A row's choice depends on its own logits and its own draw only, never on the rows beside it.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence as Rows

import torch

from local_engine.sequence import Sequence

HEAD_TOKENS = 256  # a cut is looked for among these likeliest first: sorting the vocabulary costs as much as a layer
TINY_TEMPERATURE = 1e-4  # below it the likeliest token is taken: dividing by less overflows


@torch.inference_mode()
def sample(logits: torch.Tensor, sequences: Rows[Sequence], eos_ids: frozenset[int]) -> list[int]:
    """The next token of each sequence; logits [len(sequences), vocab] may be changed in place."""
    if not sequences:
        return []
    for row, sequence in zip(logits, sequences, strict=True):
        _adjust(row, sequence, eos_ids)
    tokens: list[int] = logits.argmax(-1).tolist()
    for index, sequence in enumerate(sequences):
        if sequence.params.temperature >= TINY_TEMPERATURE:
            tokens[index] = _draw(logits[index], sequence)
    return tokens


def _adjust(row: torch.Tensor, sequence: Sequence, eos_ids: frozenset[int]) -> None:
    params = sequence.params
    if params.presence_penalty != 0 or params.frequency_penalty != 0:
        counts = collections.Counter(sequence.tokens[sequence.prompt_tokens :])
        if counts:
            penalty = torch.tensor([params.presence_penalty + params.frequency_penalty * n for n in counts.values()])
            row[list(counts)] -= penalty
    if params.logit_bias:
        row[list(params.logit_bias)] += torch.tensor(list(params.logit_bias.values()))
    if sequence.generated < params.min_tokens:
        row[list(eos_ids)] = -torch.inf


def _draw(row: torch.Tensor, sequence: Sequence) -> int:
    params = sequence.params
    probabilities = torch.softmax(row / params.temperature, -1)
    draw = sequence.draws.random()
    if params.top_p >= 1 and params.top_k == 0 and params.min_p <= 0:
        return _pick(probabilities, draw)
    size = row.shape[-1]
    for head in (min(HEAD_TOKENS, size), size):
        likeliest, ids = probabilities.topk(head)
        keep = _kept(likeliest, sequence)
        if keep < head or head == size:
            break
    return int(ids[_pick(likeliest[:keep], draw)])


def _kept(likeliest: torch.Tensor, sequence: Sequence) -> int:
    """How many of the sorted probabilities stay: min-p and top-k, then top-p over what they leave. At least one."""
    params = sequence.params
    keep = likeliest.shape[0]
    if params.top_k > 0:
        keep = min(keep, params.top_k)
    if params.min_p > 0:
        keep = min(keep, int((likeliest >= params.min_p * likeliest[0]).sum()))
    if params.top_p < 1:
        running = likeliest[:keep].double().cumsum(0)
        whole = running[-1] if params.top_k > 0 or params.min_p > 0 else 1.0  # the cut counts among what is left
        keep = int((running < params.top_p * whole).sum()) + 1 if bool(running[-1] >= params.top_p * whole) else keep
    return max(1, keep)


def _pick(weights: torch.Tensor, draw: float) -> int:
    """Index whose share of the sum holds `draw` in [0, 1)."""
    running = weights.double().cumsum(0)
    index = int(torch.searchsorted(running, draw * running[-1], right=True))
    return min(index, weights.shape[0] - 1)
