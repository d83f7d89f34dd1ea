"""Boosted trees: they learn what no line can, keep their bounds, and are read the same by the trainer and by the gateway."""

from __future__ import annotations

from typing import Any

import numpy as np

from gateway.quality.forest import Growth, codes_of, cuts_of, grow
from gateway.routing.quality import LEAVES, Forest, Tree

Floats = np.ndarray[Any, np.dtype[np.float64]]


def data(rows: int = 600) -> tuple[Floats, Floats, Floats]:
    draw = np.random.default_rng(1)
    numbers = np.round(draw.random((rows, 4)), 2)
    gain = ((numbers[:, 0] > 0.5) != (numbers[:, 1] > 0.5)).astype(np.float64)  # neither number says anything by itself
    return numbers, gain, 1.0 - 0.5 * gain


def test_it_learns_an_interaction_for_both_sums() -> None:
    numbers, gain, weak = data()
    trees, base = grow(numbers[:400], gain[:400], weak[:400], Growth(trees=80, rate=0.1, least_rows=10, features_share=1.0), 3)
    forest = Forest(trees, base)
    found = np.array([forest.sums(row.tolist()) for row in numbers[400:]])
    assert np.abs(found[:, 0] - gain[400:]).mean() < 0.1
    assert np.abs(found[:, 1] - weak[400:]).mean() < 0.1


def test_leaves_are_at_most_what_is_asked_and_never_small() -> None:
    numbers, gain, weak = data()
    growth = Growth(trees=5, leaves=5, least_rows=50)
    trees, _ = grow(numbers, gain, weak, growth, 3)
    assert all(len(tree.gain) == len(tree.weak) == len(tree.splits) + 1 <= 5 <= LEAVES for tree in trees)
    assert grow(numbers, gain, weak, growth, 3)[0] == trees, "the same seed grows the same trees"
    assert grow(numbers, np.zeros(600), weak, growth, 3)[0][0].splits == ()


def walked(tree: Tree, row: list[float]) -> int:
    """The leaf by striking out, split by split."""
    alive = (1 << len(tree.gain)) - 1
    for feature, threshold, mask in tree.splits:
        if row[feature] > threshold:
            alive &= mask
    return (alive & -alive).bit_length() - 1


def test_all_trees_at_once_are_the_sum_of_each() -> None:
    numbers, gain, weak = data()
    trees, base = grow(numbers, gain, weak, Growth(trees=20, rate=0.3, least_rows=5), 3)
    forest = Forest(trees, base)
    for row in [*numbers[:50].tolist(), [-1e9] * 4, [1e9] * 4]:
        leaves = [walked(tree, row) for tree in trees]
        wanted = [base[0] + sum(tree.gain[leaf] for tree, leaf in zip(trees, leaves, strict=True))]
        wanted.append(base[1] + sum(tree.weak[leaf] for tree, leaf in zip(trees, leaves, strict=True)))
        assert np.allclose(forest.sums(row), wanted)


def test_thresholds_lie_between_values() -> None:
    numbers = np.array([[0.0], [0.0], [1.0], [3.0]])
    cuts = cuts_of(numbers, 4)
    assert set(cuts[0]) <= {0.5, 2.0} and len(cuts[0]) > 0
    assert codes_of(numbers, [np.array([0.5, 2.0])]).tolist() == [[0], [0], [1], [2]]
    assert cuts_of(np.zeros((5, 1)), 4)[0].tolist() == []
