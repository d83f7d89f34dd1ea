"""Labels -> model file, and models judged on labels they have not seen. Deterministic: the same labels give the same file.

Whatever feeds the forest or sets its calibration was predicted for prompts held out, question by question.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.quality import forest, linear
from gateway.quality.labels import Label, folds, questions
from gateway.quality.measures import Judged
from gateway.routing.prompt_text import OPTIONS, WORD_BITS, Reading, read
from gateway.routing.quality import FORMAT, GAIN, MILLION, UNSEEN, WEAK, Forest, Line, Model, Stored, features

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
LEAST_PROMPTS = 2  # a word of fewer prompts counts as never seen
FAMILIAR = 0.995  # of the prompts trained on count as familiar
INNER = 5  # folds
SHARED = 200  # prompts that all count for in how high the line of one kind of prompts lies


class Recipe(Struct, frozen=True, kw_only=True):
    """What training may vary; chosen by cross-validation on the public labels."""

    strength: float = 8.0  # of the linear model's penalty
    growth: forest.Growth = forest.Growth()
    seed: int = 7


class Table(Struct):
    """Labels made into numbers."""

    readings: list[Reading]
    groups: list[int]
    targets: Floats  # (labels, 2): weak, strong
    rows: linear.Rows

    def some(self, chosen: Numbers) -> Table:
        return Table([self.readings[i] for i in chosen], [self.groups[i] for i in chosen], self.targets[chosen], self.rows.some(chosen))


def table_of(labels: Sequence[Label]) -> Table:
    readings = [read(label.prompt) for label in labels]
    targets = np.array([[label.weak_correct, label.strong_correct] for label in labels], np.float64)
    return Table(readings, questions(labels), targets, linear.rows_of(readings))


def train(table: Table, about: dict[str, str], recipe: Recipe) -> bytes:
    """The bytes of a model file."""
    inner = folds(table.groups, INNER, recipe.seed)
    scores = np.zeros_like(table.targets)
    for fold in range(INNER):
        learnt = linear.fit(table.rows.some(np.flatnonzero(inner != fold)), table.targets[inner != fold], recipe.strength)
        scores[inner == fold] = learnt.scores(table.rows.some(np.flatnonzero(inner == fold)))
    ridge = linear.fit(table.rows, table.targets, recipe.strength)
    seen = _seen(table.readings)
    numbers = np.array([_numbers(reading, seen, (row[0], row[1])) for reading, row in zip(table.readings, scores, strict=True)])
    gain, weak = table.targets[:, 1] - table.targets[:, 0], table.targets[:, 0]
    held_out = _held_out(numbers, gain, weak, inner, recipe)
    chosen = numbers[:, OPTIONS] > 0
    told = np.stack([held_out[:, 0], numbers[:, GAIN]], axis=1)
    gain_lines = lines(told, gain, chosen)
    predicted = np.clip(np.where(chosen, _on(gain_lines[1], told), _on(gain_lines[0], told)), -1.0, 1.0)
    trees, base = forest.grow(numbers, gain, weak, recipe.growth, recipe.seed)
    packed = [_packed(weights) for weights in ridge.weights]
    stored = Stored(
        format=FORMAT,
        about=about,
        idf=ridge.idf.tobytes(),
        weights=(packed[0][0], packed[1][0]),
        scales=(packed[0][1], packed[1][1]),
        offsets=(float(ridge.offsets[0]), float(ridge.offsets[1])),
        levels=bytes(_levels(seen).tolist()),
        trees=trees,
        base=base,
        gain_lines=gain_lines,
        weak_lines=lines(np.stack([held_out[:, 1], numbers[:, WEAK]], axis=1), weak, chosen),
        gains=tuple(float(value) for value in np.quantile(predicted, np.linspace(0, 1, 101))),
        unseen_most=float(np.quantile(numbers[:, UNSEEN], FAMILIAR)),
    )
    return zlib.compress(msgspec.msgpack.encode(stored), 9)


def judged(model: Model, labels: Sequence[Label]) -> Judged:
    """What the model, as the gateway would run it, says of these prompts; unfamiliar ones first in line for the strong model."""
    verdicts = [model.judge(label.prompt) for label in labels]
    gain = np.array([verdict.gain / MILLION for verdict in verdicts])
    return Judged(
        gain,
        np.interp(gain, model.gains, np.linspace(0.0, 1.0, len(model.gains))),
        np.array([verdict.weak / MILLION for verdict in verdicts]),
        np.array([label.weak_correct for label in labels], np.float64),
        np.array([label.strong_correct for label in labels], np.float64),
        np.array([verdict.familiar for verdict in verdicts]),
    )


def crossed(labels: Sequence[Label], parts: Numbers, recipe: Recipe) -> Judged:
    """Every label judged by a model that was trained without its part (−1: only ever trained on); labels of part −1 are left out."""
    table = table_of(labels)
    found: list[Judged] = []
    places: list[Numbers] = []
    for part in sorted(set(parts.tolist()) - {-1}):
        others, own = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
        model = Model(train(table.some(others), {}, recipe))
        found.append(judged(model, [labels[i] for i in own.tolist()]))
        places.append(own)
    order = np.argsort(np.concatenate(places))
    return Judged(*(np.concatenate([getattr(one, name) for one in found])[order] for name in Judged.__struct_fields__))


def _held_out(numbers: Floats, gain: Floats, weak: Floats, inner: Numbers, recipe: Recipe) -> Floats:
    """(labels, 2): what forests grown without a label's fold say of it."""
    found = np.zeros((len(numbers), 2))
    for fold in range(INNER):
        rest, own = inner != fold, np.flatnonzero(inner == fold)
        grown = Forest(*forest.grow(numbers[rest], gain[rest], weak[rest], recipe.growth, recipe.seed))
        found[own] = [grown.sums(numbers[place].tolist()) for place in own]
    return found


def lines(told: Floats, truth: Floats, chosen: NDArray[np.bool_]) -> tuple[Line, Line]:
    """Least-squares lines from (prompts, 2) of what the forest and the linear scores say to what was true, slopes at least 0. Prompts
    without and with answers to choose from share the slopes; how high either line lies is shrunk to both, so that few of a kind change
    little."""
    centre = told.mean(axis=0)
    slopes = np.maximum(0.0, np.linalg.lstsq(told - centre, truth - truth.mean(), rcond=None)[0])
    forest_slope, linear_slope = float(slopes[0]), float(slopes[1])
    shared = float(truth.mean() - centre @ slopes)
    left = truth - _on((shared, forest_slope, linear_slope), told)
    without, having = (shared + float(left[kind].sum()) / (int(kind.sum()) + SHARED) for kind in (~chosen, chosen))
    return (without, forest_slope, linear_slope), (having, forest_slope, linear_slope)


def _on(line: Line, told: Floats) -> Floats:
    return np.asarray(line[0] + told @ np.array(line[1:]))


def _seen(readings: Sequence[Reading]) -> Numbers:
    """In how many prompts each word's hash occurs."""
    return np.bincount([word for reading in readings for word in set(reading.words)], minlength=1 << WORD_BITS)


def _levels(seen: Numbers) -> Numbers:
    found = np.floor(np.log2(np.maximum(seen, 1))).astype(np.int64) + 1
    return np.where(seen >= LEAST_PROMPTS, np.minimum(found, 15), 0)


def _numbers(reading: Reading, seen: Numbers, scores: tuple[float, float]) -> list[float]:
    """The features of a prompt as if it had not been among those counted."""
    words = reading.words
    own = dict(zip(words, _levels(seen[words] - 1).tolist(), strict=True)) if words else {}
    return features(reading, own, scores)


def _packed(weights: Floats) -> tuple[bytes, float]:
    """Signed bytes and what one of their steps is worth."""
    scale = float(np.abs(weights).max()) / 127 or 1.0
    return np.rint(weights / scale).astype(np.int8).tobytes(), scale
