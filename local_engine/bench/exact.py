"""Greedy ids in f32 against transformers' generate(): alone, together, joining, in chunks, with known prefixes, after preemption.

A first difference counts as a tie where the reference's two best logits are closer than TIE; anything else is wrong. Knows no timing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from local_engine.calibrate import told_text
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.kv_cache import BLOCK_TOKENS, blocks_of
from local_engine.loader import Model, load
from local_engine.tokenizer import Tokenizer
from local_engine.wire import Params

TIE = 1e-3
TOGETHER = 16


class Reference(NamedTuple):
    ids: list[int]
    margins: list[float]  # between the two best logits, at each place


class Way(NamedTuple):
    """One way to run the prompts."""

    name: str
    sequences: int = TOGETHER
    step_tokens: int = 4096
    join_every: int = 0  # steps between arrivals
    urgent: int = 0  # every so many-th displaces others that run
    passes: int = 1  # the last one counts


WAYS = (
    Way("alone", sequences=1),
    Way("together"),
    Way("joining a running batch", join_every=2),
    Way("prompts in chunks of 100", step_tokens=100),
    Way("with known prefixes", passes=2),
    Way("preempted", sequences=2, join_every=1, urgent=2),
)


class Verdict(NamedTuple):
    way: str
    equal: int
    ties: list[int]  # prompts whose first difference is a tie
    wrong: list[int]
    preemptions: int
    hit_tokens: int


def compare(folder: Path, prompts: Sequence[list[int]], tokens: int, threads: int = 1) -> Iterator[Verdict]:
    """What each way gives beside the reference, `tokens` each."""
    torch.set_num_threads(threads)
    wanted = reference(folder, prompts, tokens)
    model = load(folder)
    for way in WAYS:
        engine, found = _run(model, folder, prompts, way, tokens)
        ties: list[int] = []
        wrong: list[int] = []
        for index, (ids, right) in enumerate(zip(found, wanted, strict=True)):
            differs = next((place for place in range(tokens) if ids[place] != right.ids[place]), None)
            if differs is not None:
                (ties if right.margins[differs] < TIE else wrong).append(index)
        equal = len(prompts) - len(ties) - len(wrong)
        yield Verdict(way.name, equal, ties, wrong, engine.stats.preemptions, engine.stats.prefix_hit_tokens)


def reference(folder: Path, prompts: Sequence[list[int]], tokens: int) -> list[Reference]:
    """The answers of transformers, prompt by prompt."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    out = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True, "output_logits": True}
        answer = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        best = torch.stack([logits[0] for logits in answer.logits]).topk(2).values
        out.append(Reference(answer.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist()))
    return out


def some_prompts(folder: Path, count: int, longest: int) -> list[list[int]]:
    """English of 1 to `longest` tokens, each from another place."""
    ids = Tokenizer(load(folder).folder).encode(told_text()[: 60 * longest])
    lengths = [round(longest ** (index / max(1, count - 1))) for index in range(count)]
    return [ids[(start := index * 37) : start + length] for index, length in enumerate(lengths)]


def run(options: argparse.Namespace) -> int:
    """The command `bench exact`: 1 when something is wrong, or more than one prompt in fifty is a tie."""
    folder = Path(options.model_dir)
    prompts = some_prompts(folder, options.prompts, options.longest)
    failed = False
    print(f"{len(prompts)} prompts of {len(prompts[0])} to {len(prompts[-1])} tokens, {options.tokens} tokens each")  # noqa: T201
    print("| | equal | ties | wrong | preemptions | tokens of known prefixes |\n|---|---|---|---|---|---|")  # noqa: T201
    for one in compare(folder, prompts, options.tokens, options.threads):
        failed = failed or bool(one.wrong) or len(one.ties) > max(1, len(prompts) // 50)
        print(f"| {one.way} | {one.equal} | {one.ties or 0} | {one.wrong or 0} | {one.preemptions} | {one.hit_tokens} |", flush=True)  # noqa: T201
    return int(failed)


def _run(model: Model, folder: Path, prompts: Sequence[list[int]], way: Way, tokens: int) -> tuple[Engine, list[list[int]]]:
    blocks = 2 * sum(blocks_of(len(prompt) + tokens) for prompt in prompts)
    s = model.shape
    config = EngineConfig(
        model_dir=str(folder),
        threads=torch.get_num_threads(),
        max_sequences=way.sequences,
        max_waiting=len(prompts),
        max_step_tokens=way.step_tokens,
        kv_bytes=blocks * BLOCK_TOKENS * s.layers * 2 * s.kv_heads * s.head_dim * 4,
    )
    engine = Engine(model, config.checked())
    out: list[list[int]] = []
    params = Params(temperature=0, max_tokens=tokens, ignore_eos=True)
    for _ in range(way.passes):
        out, steps, begun = [[] for _ in prompts], 0, 0
        while begun < len(prompts) or engine.busy:
            while begun < len(prompts) and (way.join_every == 0 or steps >= begun * way.join_every):
                engine.add(begun, prompts[begun], params, priority=int(way.urgent == 0 or begun % way.urgent != 0))
                begun += 1
            for output in engine.step():
                out[output.id].append(output.token)
            steps += 1
    return engine, out
