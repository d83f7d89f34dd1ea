"""Ridge regression against the closed form on dense rows."""

from __future__ import annotations

import numpy as np

from gateway.quality import linear
from gateway.routing.prompt_text import GRAM_BITS, Reading


def test_the_solution_is_that_of_the_closed_form() -> None:
    draw = np.random.default_rng(0)
    grams = [set(draw.choice(12, draw.integers(1, 8), replace=False).tolist()) for _ in range(80)]
    rows = linear.rows_of([Reading(one, [], []) for one in grams])
    targets = draw.random((80, 2))
    found = linear.fit(rows, targets, 2.0)
    dense = np.zeros((80, 12))
    for row, one in enumerate(grams):
        dense[row, list(one)] = found.idf[list(one)]
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    middle = targets.mean(axis=0)
    wanted = np.linalg.solve(dense.T @ dense + 2.0 * np.eye(12), dense.T @ (targets - middle))
    assert np.allclose(found.weights[:, :12].T, wanted, atol=1e-3)
    assert np.allclose(found.scores(rows), middle + dense @ wanted, atol=1e-3)
    assert not found.weights[:, 12:].any()


def test_a_gram_of_a_single_prompt_weighs_nothing() -> None:
    rows = linear.rows_of([Reading({1, 2}, [], []), Reading({1, 3}, [], []), Reading({3}, [], [])])
    found = linear.fit(rows, np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), 1.0)
    assert found.idf[2] == 0 and found.idf[1] > 0 and found.weights.shape == (2, 1 << GRAM_BITS)
    assert found.weights[:, 2].tolist() == [0.0, 0.0]


def test_some_rows_are_those_rows() -> None:
    rows = linear.rows_of([Reading({1, 2}, [], []), Reading(set(), [], []), Reading({3}, [], [])])
    some = rows.some(np.array([2, 1]))
    assert some.count == 2 and some.columns.tolist() == [3] and some.row_of.tolist() == [0]
