"""Ridge regression on sparse rows of hashed word sequences, by conjugate gradients. numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.routing.prompt_text import GRAM_BITS, Reading
from gateway.routing.quality import IDF_STEPS

Floats = NDArray[np.float64]
STEPS = 60  # of conjugate gradients, at most
PRECISE = 1e-4  # relative residual that ends them
LEAST_PROMPTS = 2  # a gram of fewer prompts says nothing


class Rows(Struct):
    """Prompts as sparse rows: `columns` of all grams one after another, the first of each row at `starts`."""

    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    row_of: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.starts)

    def some(self, chosen: NDArray[np.int64]) -> Rows:
        """The rows chosen, in that order."""
        ends = np.append(self.starts[1:], len(self.columns))
        return _rows([self.columns[self.starts[row] : ends[row]] for row in chosen])


class Ridge(Struct):
    """idf: bytes of 1 / IDF_STEPS. weights: (2, grams). offsets: (2,)."""

    idf: NDArray[np.uint8]
    weights: Floats
    offsets: Floats

    def scores(self, rows: Rows) -> Floats:
        """(rows, 2)."""
        matrix = Sparse(rows.row_of, rows.columns, _values(rows, self.idf), (rows.count, 1 << GRAM_BITS))
        return np.stack([matrix.times(one) for one in self.weights], axis=1) + self.offsets


def rows_of(readings: Sequence[Reading]) -> Rows:
    """Sparse rows of these prompts."""
    return _rows([np.fromiter(reading.grams, np.int64, len(reading.grams)) for reading in readings])


def _rows(parts: list[NDArray[np.int64]]) -> Rows:
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return Rows(np.concatenate(parts) if parts else np.zeros(0, np.int64), starts, np.repeat(np.arange(len(parts)), sizes))


def fit(rows: Rows, targets: Floats, strength: float) -> Ridge:
    """Two heads on (rows, 2) targets. strength: of the penalty on squared weights."""
    in_prompts = np.bincount(rows.columns, minlength=1 << GRAM_BITS)
    idf = np.log((1 + rows.count) / (1 + in_prompts)) + 1.0
    stored = np.where(in_prompts >= LEAST_PROMPTS, np.clip(np.rint(idf * IDF_STEPS), 0, 255), 0).astype(np.uint8)
    present = np.flatnonzero(stored)
    places = np.zeros(1 << GRAM_BITS, np.int64)
    places[present] = np.arange(len(present))
    kept = stored[rows.columns] > 0
    sparse = Sparse(rows.row_of[kept], places[rows.columns[kept]], _values(rows, stored)[kept], (rows.count, len(present)))
    offsets = targets.mean(axis=0)
    weights = np.zeros((targets.shape[1], 1 << GRAM_BITS))
    for head in range(targets.shape[1]):
        weights[head, present] = _solve(sparse, targets[:, head] - offsets[head], strength)
    return Ridge(stored, weights, offsets)


def _values(rows: Rows, idf: NDArray[np.uint8]) -> Floats:
    """Each gram's value: its idf, every row at length one."""
    values = idf[rows.columns] / IDF_STEPS
    lengths = np.sqrt(np.bincount(rows.row_of, values * values, rows.count))
    return np.asarray(values / np.where(lengths > 0, lengths, 1.0)[rows.row_of], np.float64)


class Sparse(Struct):
    """A matrix of `shape` by its values that are not 0."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Floats
    shape: tuple[int, int]

    def times(self, vector: Floats) -> Floats:
        return np.bincount(self.rows, self.values * vector[self.columns], self.shape[0]).astype(np.float64)

    def transposed_times(self, vector: Floats) -> Floats:
        return np.bincount(self.columns, self.values * vector[self.rows], self.shape[1]).astype(np.float64)


def _solve(matrix: Sparse, target: Floats, strength: float) -> Floats:
    """(X'X + strength) w = X't."""
    residual = matrix.transposed_times(target)
    weights, direction = np.zeros_like(residual), residual.copy()
    size = first = float(residual @ residual)
    for _ in range(STEPS):
        if size <= PRECISE * PRECISE * first:
            break
        image = matrix.transposed_times(matrix.times(direction)) + strength * direction
        step = size / float(direction @ image)
        weights += step * direction
        residual -= step * image
        smaller = float(residual @ residual)
        direction = residual + smaller / size * direction
        size = smaller
    return weights
