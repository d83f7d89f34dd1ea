"""Will the cheap model do? A prompt's chance of a right answer from a weak and from a strong model, and what the strong one gains.

Linear scores over hashed word sequences, then a forest over them and the prompt's shape; standard library only at run time, no prompt is
kept. Made by `tollway quality train` (gateway/quality). Knows no backend and no price.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from math import sqrt
from operator import and_, mul
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.routing.prompt_text import GRAM_BITS, OPTIONS, RARITY, SHAPE, WORD_BITS, Reading, read

FORMAT = 2  # of the file; raised when it or what is read off a prompt changes
DEFAULT = Path(__file__).parent / "data" / "quality.model"
LEAVES = 8  # of a tree, at most: one bit of a byte for each
MILLION = 1_000_000
IDF_STEPS = 16.0  # of the stored byte, per unit

_SQUARES = [byte * byte for byte in range(256)]
_LOWEST = bytes([0] + [(byte & -byte).bit_length() - 1 for byte in range(1, 256)])  # place of a byte's lowest bit


Line = tuple[float, float, float]  # (a, b, c) of a + b × what the forest sums to + c × what the linear scores say


class QualityError(Exception):
    """A model file that cannot be used; the message says which and why."""


class Tree(Struct, array_like=True, frozen=True):
    """splits: (feature, threshold, mask of the leaves that stay when the value is above it). gain, weak: what each leaf adds."""

    splits: tuple[tuple[int, float, int], ...]
    gain: tuple[float, ...]
    weak: tuple[float, ...]


class Stored(Struct, frozen=True, kw_only=True):
    """The file. Pairs are of the weak and the strong model. By hash of a gram: idf, a byte of 1 / IDF_STEPS, and weights, signed bytes of a
    scale. Lines are of prompts without and with answers to choose from."""

    format: int
    about: dict[str, str]  # where it comes from: labels, licence, models, rows, date
    idf: bytes
    weights: tuple[bytes, bytes]
    scales: tuple[float, float]
    offsets: tuple[float, float]
    levels: bytes
    trees: tuple[Tree, ...]
    base: tuple[float, float]
    gain_lines: tuple[Line, Line]
    weak_lines: tuple[Line, Line]
    gains: tuple[float, ...]  # 101 quantiles of the predicted gain on prompts held out
    unseen_most: float  # a prompt with a larger share of words never seen is like nothing that was learnt from


class _Head(Struct):
    format: int


class Verdict(Struct, frozen=True, array_like=True, gc=False):
    """In millionths. gain: how much likelier the strong model is right than the weak one, negative where it is not; weak: P(the weak one
    is right); unseen: share of the prompt's words that no label held."""

    gain: int
    weak: int
    unseen: int
    familiar: bool


class Model:
    """A loaded file; immutable. `version` names its content."""

    def __init__(self, raw: bytes, name: str = "") -> None:
        try:
            content = zlib.decompress(raw)
            if msgspec.msgpack.decode(content, type=_Head).format != FORMAT:
                raise QualityError(f"{name}: was trained by another version of Tollway; train it again.")
            stored = msgspec.msgpack.decode(content, type=Stored)
        except (msgspec.MsgspecError, zlib.error) as error:
            raise QualityError(f"{name}: is not a model of `tollway quality train`: {error}.") from None
        sizes = (len(stored.idf), *map(len, stored.weights), len(stored.levels), len(stored.gains))
        if sizes != (1 << GRAM_BITS, 1 << GRAM_BITS, 1 << GRAM_BITS, 1 << WORD_BITS, 101):
            raise QualityError(f"{name}: was trained by another version of Tollway; train it again.")
        self.version = hashlib.sha256(raw).hexdigest()[:12]
        self.about = stored.about
        self.gains = stored.gains
        self.unseen_most = stored.unseen_most
        self._levels = stored.levels
        self._linear = Linear(stored.idf, stored.weights, stored.scales, stored.offsets)
        self._forest = Forest(stored.trees, stored.base)
        self._lines = tuple(zip(stored.gain_lines, stored.weak_lines, strict=True))

    def judge(self, text: str) -> Verdict:
        """About 0.15 ms and 0.4 ms more per 1,000 characters, up to prompt_text.MOST_CHARS of them."""
        reading = read(text)
        numbers = features(reading, self._levels, self._linear.scores(reading))
        gain, weak = self._forest.sums(numbers)
        (a, b, c), (d, e, f) = self._lines[numbers[OPTIONS] > 0]
        weak = min(1.0, max(0.0, d + e * weak + f * numbers[WEAK]))
        gain = min(1.0 - weak, max(-weak, a + b * gain + c * numbers[GAIN]))
        unseen = numbers[UNSEEN]
        return Verdict(round(gain * MILLION), round(weak * MILLION), round(unseen * MILLION), unseen <= self.unseen_most)


def features(reading: Reading, levels: bytes | Mapping[int, int], scores: tuple[float, float]) -> list[float]:
    """What the forest looks at: shape, rarity of the words, the two linear scores and their difference."""
    return [*reading.shape, *reading.rarity(levels), scores[0], scores[1], scores[1] - scores[0]]


# Places among the features: the share of unseen words, the linear score of the weak model, what the strong one's is above it.
UNSEEN, WEAK, GAIN = SHAPE + 4, SHAPE + RARITY, SHAPE + RARITY + 2


def load(path: Path) -> Model:
    """Raises QualityError for a file that cannot be read or is no model."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise QualityError(f"{path}: cannot be read ({error.strerror}).") from None
    return Model(raw, str(path))


class Linear:
    """Two dot products over the grams of a prompt, each gram counted once, by its idf, the whole at length one."""

    __slots__ = ("_idf", "_offsets", "_scales", "_strong", "_weak")

    def __init__(self, idf: bytes, weights: tuple[bytes, bytes], scales: tuple[float, float], offsets: tuple[float, float]) -> None:
        self._idf = idf
        self._weak, self._strong = (array("h", map(mul, idf, memoryview(one).cast("b"))) for one in weights)
        self._scales = scales
        self._offsets = offsets

    def scores(self, reading: Reading) -> tuple[float, float]:
        """(weak, strong)."""
        grams = reading.grams
        length = sqrt(sum(map(_SQUARES.__getitem__, map(self._idf.__getitem__, grams)))) or 1.0
        weak = sum(map(self._weak.__getitem__, grams)) * self._scales[0] / length
        strong = sum(map(self._strong.__getitem__, grams)) * self._scales[1] / length
        return self._offsets[0] + weak, self._offsets[1] + strong


class Forest:
    """Sums over many small trees at once: each feature's value strikes out leaves of all trees by one `and` of a long integer, and the
    first leaf that is left in a tree's byte is where the prompt falls (the idea of QuickScorer, Lucchese et al., SIGIR 2015)."""

    __slots__ = ("_all", "_base", "_features", "_gain", "_offsets", "_size", "_weak")

    def __init__(self, trees: tuple[Tree, ...], base: tuple[float, float]) -> None:
        self._size = len(trees)
        self._all = (1 << 8 * len(trees)) - 1
        self._base = base
        struck: dict[int, dict[float, int]] = {}
        for place, tree in enumerate(trees):
            for feature, threshold, mask in tree.splits:
                by_threshold = struck.setdefault(feature, {})
                by_threshold[threshold] = by_threshold.get(threshold, self._all) & ~((~mask & 0xFF) << 8 * place)
        self._features = []
        for feature, by_threshold in sorted(struck.items()):
            thresholds = sorted(by_threshold)
            left = list(accumulate([self._all, *(by_threshold[threshold] for threshold in thresholds)], and_))
            self._features.append((feature, thresholds, left))
        self._offsets = range(0, LEAVES * len(trees), LEAVES)
        self._gain = [value for tree in trees for value in _padded(tree.gain)]
        self._weak = [value for tree in trees for value in _padded(tree.weak)]

    def sums(self, numbers: list[float]) -> tuple[float, float]:
        """(gain, weak) before their lines."""
        left = self._all
        for feature, thresholds, masks in self._features:
            left &= masks[bisect_left(thresholds, numbers[feature])]
        leaves = left.to_bytes(self._size, "little").translate(_LOWEST)
        places = [offset + leaf for offset, leaf in zip(self._offsets, leaves, strict=True)]
        return self._base[0] + sum(map(self._gain.__getitem__, places)), self._base[1] + sum(map(self._weak.__getitem__, places))


def _padded(values: tuple[float, ...]) -> tuple[float, ...]:
    return values + (0.0,) * (LEAVES - len(values))
