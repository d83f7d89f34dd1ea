"""Made-up labels whose truth is known: questions with `integral` are beyond the weak model, those with `capital` are not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gateway.quality.forest import Growth
from gateway.quality.labels import Label
from gateway.quality.train import Recipe

SMALL = Recipe(growth=Growth(trees=15, rate=0.3, least_rows=10))
FILLER = ("please tell me about it now", "what would you say to this", "i was asked today for that", "explain it to a child of ten")


def made_labels(count: int, seed: int = 0) -> list[Label]:
    draw = random.Random(seed)
    found = []
    for number in range(count):
        hard = draw.random() < 0.4
        word = "integral" if hard else "capital"
        prompt = f"{draw.choice(FILLER)}: the {word} of thing {draw.choice(FILLER)} number {number}?"
        weak = draw.random() < (0.2 if hard else 0.95)
        strong = draw.random() < 0.95
        found.append(Label(prompt=prompt, weak_correct=weak, strong_correct=strong, bench="hard" if hard else "easy"))
    return found


@pytest.fixture(scope="session")
def labels() -> Callable[..., list[Label]]:
    return made_labels


@pytest.fixture(scope="session")
def small() -> Recipe:
    return SMALL
