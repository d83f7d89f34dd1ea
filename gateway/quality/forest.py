"""Gradient boosting of small trees on squared error, grown leaf by leaf on histograms. numpy alone.

The gain decides the splits; what the leaf adds to the weak model's chance is fitted along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.routing.quality import LEAVES, Tree

Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]


class Growth(Struct, frozen=True, kw_only=True):
    """How a forest is grown. shares: of rows and of features that one tree sees. shrink: weight of the penalty on a leaf's value."""

    trees: int = 400
    leaves: int = 7
    rate: float = 0.02
    rows_share: float = 0.7
    features_share: float = 0.5
    least_rows: int = 40
    shrink: float = 10.0
    bins: int = 48


class _Split(NamedTuple):
    better: float
    feature: int
    code: int


class _Leaf(Struct):
    rows: NDArray[np.int64]
    counts: Floats  # (features, bins)
    sums: Floats
    best: _Split
    node: _Node


class _Node(Struct):
    """A leaf while feature < 0."""

    rows: NDArray[np.int64]
    feature: int = -1
    code: int = 0
    low: _Node | None = None
    high: _Node | None = None


def cuts_of(numbers: Floats, bins: int) -> list[Floats]:
    """Thresholds per feature, between its quantiles; float32, so that storing them changes nothing."""
    found = []
    for column in numbers.T:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
        values = np.unique(column)
        after = np.searchsorted(values, edges, side="right")
        inside = after < len(values)
        middle = (edges[inside] + values[after[inside]]) / 2
        found.append(np.unique(middle.astype(np.float32)).astype(np.float64))
    return found


def codes_of(numbers: Floats, cuts: list[Floats]) -> Codes:
    """(rows, features): how many thresholds lie below each value."""
    return np.stack([np.searchsorted(cut, column, side="left") for cut, column in zip(cuts, numbers.T, strict=True)], 1).astype(np.uint8)


def grow(numbers: Floats, gain: Floats, weak: Floats, growth: Growth, seed: int) -> tuple[tuple[Tree, ...], tuple[float, float]]:
    """(trees, base values of gain and weak). numbers: (rows, features); gain and weak: targets."""
    random = np.random.default_rng(seed)
    cuts = cuts_of(numbers, growth.bins)
    codes = codes_of(numbers, cuts)
    rows, width = codes.shape
    base = (float(gain.mean()), float(weak.mean()))
    left = np.stack([gain - base[0], weak - base[1]], axis=1)
    trees = []
    for _ in range(growth.trees):
        seen = np.sort(random.choice(rows, max(1, int(growth.rows_share * rows)), replace=False))
        features = np.sort(random.choice(width, max(1, int(growth.features_share * width)), replace=False))
        root = _grown(codes, left[:, 0], seen, features, growth)
        trees.append(_finished(root, codes, left, cuts, growth))
    return tuple(trees), base


def _grown(codes: Codes, residual: Floats, seen: NDArray[np.int64], features: NDArray[np.int64], growth: Growth) -> _Node:
    """The splits of one tree: again and again the leaf whose split explains most."""
    root = _Node(seen)
    leaves = [_leaf(root, *_histogram(codes, residual, seen, features, growth.bins), growth)]
    count = 1
    while count < growth.leaves and leaves:
        place = max(range(len(leaves)), key=lambda i: leaves[i].best.better)
        leaf = leaves.pop(place)
        if leaf.best.better <= 0.0:
            break
        node, best = leaf.node, leaf.best
        above = codes[leaf.rows, features[best.feature]] > best.code
        node.feature, node.code = int(features[best.feature]), best.code
        node.low, node.high = _Node(leaf.rows[~above]), _Node(leaf.rows[above])
        small, large = (node.low, node.high) if len(node.low.rows) < len(node.high.rows) else (node.high, node.low)
        counts, sums = _histogram(codes, residual, small.rows, features, growth.bins)
        leaves.append(_leaf(small, counts, sums, growth))
        leaves.append(_leaf(large, leaf.counts - counts, leaf.sums - sums, growth))
        count += 1
    return root


def _histogram(codes: Codes, residual: Floats, rows: NDArray[np.int64], features: NDArray[np.int64], bins: int) -> tuple[Floats, Floats]:
    places = (codes[np.ix_(rows, features)] + np.arange(len(features)) * bins).ravel()
    size = len(features) * bins
    counts = np.bincount(places, minlength=size).astype(np.float64)
    sums = np.bincount(places, np.repeat(residual[rows], len(features)), size).astype(np.float64)
    return counts.reshape(-1, bins), sums.reshape(-1, bins)


def _leaf(node: _Node, counts: Floats, sums: Floats, growth: Growth) -> _Leaf:
    """A leaf with the best split that it could get."""
    below, sum_below = np.cumsum(counts, axis=1)[:, :-1], np.cumsum(sums, axis=1)[:, :-1]
    count, total = counts[0].sum(), sums[0].sum()
    above, sum_above = count - below, total - sum_below
    shrink = growth.shrink
    better = sum_below**2 / (below + shrink) + sum_above**2 / (above + shrink) - total**2 / (count + shrink)
    better = np.where((below >= growth.least_rows) & (above >= growth.least_rows), better, 0.0)
    place = int(np.argmax(better))
    feature, code = divmod(place, better.shape[1])
    return _Leaf(node.rows, counts, sums, _Split(float(better[feature, code]), feature, code), node)


def _finished(root: _Node, codes: Codes, left: Floats, cuts: list[Floats], growth: Growth) -> Tree:
    """The tree with its leaves' values, which are taken off what is `left` of all rows."""
    ends: list[_Node] = []
    splits: list[tuple[_Node, int, int]] = []  # node, first leaf of its low side, first of its high side

    def walk(node: _Node) -> None:
        if node.low is None or node.high is None:
            ends.append(node)
            return
        low = len(ends)
        walk(node.low)
        splits.append((node, low, len(ends)))
        walk(node.high)

    walk(root)
    values = [left[node.rows].sum(axis=0) * growth.rate / (len(node.rows) + growth.shrink) for node in ends]
    struck = [
        (node.feature, float(cuts[node.feature][node.code]), 0xFF & ~((1 << high) - (1 << low)), codes[:, node.feature] > node.code)
        for node, low, high in splits
    ]
    alive = np.full(len(codes), (1 << len(ends)) - 1, np.int64)
    for _, _, mask, above in struck:
        alive[above] &= mask
    found = _lowest_bit()[alive]
    left -= np.array(values)[found]
    return Tree(
        tuple((feature, threshold, mask) for feature, threshold, mask, _ in struck),
        tuple(float(value[0]) for value in values),
        tuple(float(value[1]) for value in values),
    )


def _lowest_bit() -> NDArray[np.int64]:
    places = np.arange(1 << LEAVES)
    return np.where(places > 0, np.log2(np.maximum(places & -places, 1)).astype(np.int64), 0)
