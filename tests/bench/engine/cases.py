"""What is measured: prompts of random token ids, the same for everybody and new in every round. Standard library only.

Random ids, so that no engine finds a prefix that it knows unless the case is about that; end-of-sequence tokens are ignored.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

LONG_PROMPT = 512
KNOWN_TOKENS = 496  # of a long prompt, in the case about known prefixes: whole blocks of 16
SHORT_PROMPT = 64
BATCH_PROMPT = 32
LOWEST_ID, HIGHEST_ID = 1000, 40_000  # of the ids: no special token of the model is among them


@dataclass(frozen=True)
class Case:
    """`batch` prompts of `prompt` tokens at once, each continued by `tokens` tokens; 0: as many as the run was asked for.

    known: so many leading tokens were computed just before, for another prompt.
    """

    name: str
    batch: int
    prompt: int
    tokens: int = 0
    known: int = 0


CASES = (
    Case("batch 1", 1, BATCH_PROMPT),
    Case("batch 8", 8, BATCH_PROMPT),
    Case("batch 16", 16, BATCH_PROMPT),
    Case("prefill 512", 1, LONG_PROMPT, 1),
    Case("TTFT 64", 1, SHORT_PROMPT, 1),
    Case("TTFT 512, 496 known", 1, LONG_PROMPT, 1, KNOWN_TOKENS),
)
LATENCIES = {"TTFT 64", "TTFT 512, 496 known"}  # told in milliseconds; the others in tokens per second


def prompts(case: Case, seed: str) -> list[list[int]]:
    """The same for equal seeds."""
    draw = random.Random(f"{seed} {case.name}")
    return [[draw.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(case.prompt)] for _ in range(case.batch)]


def forerunner(case: Case, prompt: list[int], seed: str) -> list[int]:
    """Another prompt with the same first `known` tokens, of which the next token differs for certain."""
    draw = random.Random(f"{seed} before {case.name}")
    rest = [draw.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(case.prompt - case.known)]
    rest[0] = prompt[case.known] + 1
    return prompt[: case.known] + rest
