"""Logits -> one token a row: penalties, bias, grammar, temperature, min-p, top-k, top-p, log probabilities; all rows at once.

A row's choice depends on its own logits and its own number alone, never on the rows beside it: the number is a hash of the request's seed
and the token's place, so that preemption, company and restarts of a batch change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Rows
from typing import TYPE_CHECKING, NamedTuple

import torch

from local_engine.wire import Params

if TYPE_CHECKING:
    from local_engine.grammar import Matcher
    from local_engine.sequence import Sequence

BLOCK = 128  # tokens: the likeliest are looked for by the greatest of each block, which is cheap, and then in a few blocks
HEAD = 64  # a cut is looked for among so many likeliest first: sorting the vocabulary costs as much as a layer
WIDE_HEAD = 1024
TINY_TEMPERATURE = 1e-4  # below it the likeliest token is taken: dividing by less overflows
NO_CUT = 2.0  # a share that is never reached
WORD = 2**64


class Pick(NamedTuple):
    """A token. With log probabilities asked for: its own and those of the likeliest, of the model itself before anything changes them."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class State:
    """What sampling keeps of one sequence. plain: its likeliest token is all that is wanted."""

    __slots__ = ("counted", "cuts", "matcher", "offset", "plain", "said", "seed", "seen")

    def __init__(self, params: Params, matcher: Matcher | None = None) -> None:
        self.seed = random.getrandbits(64) if params.seed is None else params.seed % WORD
        self.matcher = matcher
        self.cuts = params.top_p < 1 or params.top_k > 0 or params.min_p > 0
        self.offset: torch.Tensor | None = None  # [vocab] added to the logits: bias less penalties
        self.seen: torch.Tensor | None = None  # [vocab] tokens of prompt and answer
        self.said: set[int] = set()  # tokens of the answer
        self.counted = 0  # tokens that the three know of
        self.plain = (
            params.temperature < TINY_TEMPERATURE
            and matcher is None
            and params.logprobs is None
            and params.min_tokens == 0
            and not (params.logit_bias or _offsets(params) or params.repetition_penalty != 1)
        )


@torch.inference_mode()
def sample(logits: torch.Tensor, sequences: Rows[Sequence], eos_ids: frozenset[int]) -> list[Pick]:
    """The next token of each sequence; logits [len(sequences), vocab] may be changed in place."""
    if not sequences:
        return []
    if all(sequence.sampling.plain for sequence in sequences):
        return [Pick(token) for token in likeliest(logits).tolist()]
    log = [row for row, sequence in enumerate(sequences) if sequence.params.logprobs is not None]
    own = torch.log_softmax(logits[log].float(), -1)
    _adjust(logits, sequences, eos_ids)
    tokens = likeliest(logits).tolist()
    drawing = [row for row, sequence in enumerate(sequences) if sequence.params.temperature >= TINY_TEMPERATURE]
    if drawing:
        for row, token in zip(drawing, _draw(logits[drawing], [sequences[row] for row in drawing]), strict=True):
            tokens[row] = token
    picks = [Pick(token) for token in tokens]
    for row, logprobs in zip(log, own, strict=True):
        top = logprobs.topk(min(sequences[row].params.logprobs or 0, logits.shape[-1]))
        told = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        picks[row] = Pick(tokens[row], float(logprobs[tokens[row]]), told)
    return picks


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """argmax of each row; the greatest of each block first is many times faster than torch's own."""
    blocks = _blocks(logits, -torch.inf)
    block = blocks.amax(-1).argmax(-1)
    return block * BLOCK + blocks[torch.arange(len(blocks), device=logits.device), block].argmax(-1)


def uniform(seed: int, place: int) -> float:
    """A number in [0, 1) that depends on both alone: splitmix64 (Steele, Lea, Flood 2014) at a place of the seed's stream."""
    z = (seed + (place + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


# ---- what a request changes of its logits -----------------------------------------------------------------------------------------------
def _offsets(params: Params) -> bool:
    return params.presence_penalty != 0 or params.frequency_penalty != 0


def _adjust(logits: torch.Tensor, sequences: Rows[Sequence], eos_ids: frozenset[int]) -> None:
    repeated: list[int] = []
    shifted: list[int] = []
    endless: list[int] = []
    for row, sequence in enumerate(sequences):
        state = sequence.sampling
        _count(state, sequence, logits)
        if state.seen is not None:
            repeated.append(row)
        if state.offset is not None:
            shifted.append(row)
        if state.matcher is not None:
            logits[row].masked_fill_(state.matcher.forbidden().to(logits.device), -torch.inf)
        if sequence.generated < sequence.params.min_tokens and not (state.matcher is not None and state.matcher.only_end):
            endless.append(row)
    if repeated:
        seen = torch.stack([sequences[row].sampling.seen for row in repeated])  # type: ignore[misc]
        by = logits.new_tensor([[sequences[row].params.repetition_penalty] for row in repeated])
        found = logits[repeated]
        logits[repeated] = torch.where(seen, torch.where(found > 0, found / by, found * by), found)
    if shifted:
        logits[shifted] += torch.stack([sequences[row].sampling.offset for row in shifted])  # type: ignore[misc]
    if endless:
        logits[torch.tensor(endless)[:, None], torch.tensor(sorted(eos_ids))] = -torch.inf


def _count(state: State, sequence: Sequence, like: torch.Tensor) -> None:
    """Bring penalties up to the sequence's tokens. Presence and frequency count the answer, repetition the prompt too."""
    params = sequence.params
    if state.counted == 0:
        if params.logit_bias or _offsets(params):
            state.offset = like.new_zeros(like.shape[-1])
            state.offset[list(params.logit_bias)] = like.new_tensor(list(params.logit_bias.values()))
        if params.repetition_penalty != 1:
            state.seen = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
    fresh = sequence.tokens[state.counted :]
    if state.seen is not None:
        state.seen[fresh] = True
    if state.offset is not None and _offsets(params):
        for token in fresh[max(0, sequence.prompt_tokens - state.counted) :]:
            state.offset[token] -= params.frequency_penalty + (0 if token in state.said else params.presence_penalty)
            state.said.add(token)
    state.counted = len(sequence.tokens)


# ---- drawing ----------------------------------------------------------------------------------------------------------------------------
def _draw(logits: torch.Tensor, sequences: Rows[Sequence]) -> list[int]:
    """A token for each row by its own number: of all tokens, or of those that its cuts leave."""
    temperature = logits.new_tensor([[sequence.params.temperature] for sequence in sequences])
    weights = ((logits - logits.amax(-1, keepdim=True)) / temperature).exp_()  # the likeliest weighs 1
    numbers = [uniform(sequence.sampling.seed, sequence.generated) for sequence in sequences]
    number = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None]
    sums = _blocks(weights, 0.0).sum(-1).double().cumsum(-1)
    cut = [row for row, sequence in enumerate(sequences) if sequence.sampling.cuts]
    tokens: list[int] = [0] * len(sequences)
    if len(cut) < len(sequences):
        whole = [row for row, sequence in enumerate(sequences) if not sequence.sampling.cuts]
        for row, token in zip(whole, _of_all(weights[whole], sums[whole], number[whole]), strict=True):
            tokens[row] = token
    if cut:
        found = _of_few(weights[cut], sums[cut, -1:], number[cut], [sequences[row].params for row in cut])
        for row, token in zip(cut, found, strict=True):
            tokens[row] = token
    return tokens


def _of_all(weights: torch.Tensor, sums: torch.Tensor, number: torch.Tensor) -> list[int]:
    """The block that holds each row's number, then the token in it."""
    at = number * sums[:, -1:]
    block = _place(sums, at)
    rest = at - torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = _blocks(weights, 0.0)[torch.arange(len(block), device=block.device), block[:, 0]].double().cumsum(-1)
    found: list[int] = (block * BLOCK + _place(inside, rest))[:, 0].tolist()
    return found


def _of_few(weights: torch.Tensor, total: torch.Tensor, number: torch.Tensor, params: list[Params]) -> list[int]:
    """Of the tokens that a row's cuts leave, looked for among ever more of the heaviest."""
    size, tokens, rows = weights.shape[-1], [0] * len(params), list(range(len(params)))
    for head in (HEAD, WIDE_HEAD, size):
        heaviest, ids = _top(weights[rows], min(head, size))
        keep, more = _kept(heaviest, total[rows], [params[row] for row in rows])
        running = (heaviest * keep).double().cumsum(-1)
        found = ids.gather(1, _place(running, number[rows] * running[:, -1:]))[:, 0].tolist()
        for row, token in zip(rows, found, strict=True):
            tokens[row] = token
        rows = [row for row, open_ in zip(rows, more.tolist(), strict=True) if open_]
        if head >= size or not rows:
            break
    return tokens


def _kept(heaviest: torch.Tensor, total: torch.Tensor, params: list[Params]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the sorted weights stay: min-p and top-k, then top-p among what they leave; at least one. And whether more might."""
    size = heaviest.shape[-1]
    top_k = torch.tensor([[one.top_k or size + 1] for one in params], device=heaviest.device)
    min_p = heaviest.new_tensor([[one.min_p] for one in params])
    top_p = heaviest.new_tensor([[one.top_p if one.top_p < 1 else NO_CUT] for one in params])
    among = torch.tensor([[one.top_k > 0 or one.min_p > 0] for one in params], device=heaviest.device)
    keep = (torch.arange(size, device=heaviest.device) < top_k) & (heaviest >= min_p * heaviest[:, :1])
    left = (heaviest * keep).double()
    running = left.cumsum(-1)
    stays = keep & (running - left < top_p * torch.where(among, running[:, -1:], total))
    stays[:, 0] = True
    return stays, torch.where(among[:, 0], keep[:, -1], stays[:, -1])


def _place(running: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Where each row's sums pass `at`, never behind the last that weighs something: rounding must not choose what was forbidden."""
    last = (running < running[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(running, at, right=True), last)


def _top(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest values of each row, sorted, and where they stand: they lie in the blocks with the greatest maxima."""
    blocks = _blocks(values, -1.0)
    if blocks.shape[1] <= count:
        found = values.topk(count)
        return found.values, found.indices
    near = blocks.amax(-1).topk(count, sorted=False).indices
    top = blocks.gather(1, near[:, :, None].expand(-1, -1, BLOCK)).flatten(1).topk(count)
    return top.values, near.gather(1, top.indices // BLOCK) * BLOCK + top.indices % BLOCK


def _blocks(values: torch.Tensor, filler: float) -> torch.Tensor:
    """[rows, blocks, BLOCK], the last block filled up."""
    short = -values.shape[-1] % BLOCK
    if short:
        values = torch.nn.functional.pad(values, (0, short), value=filler)
    return values.view(values.shape[0], -1, BLOCK)
