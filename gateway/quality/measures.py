"""How good a ranking by predicted gain is: what is recovered of the gap between two models, what it saves, whether odds are true."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
KEPT = 0.95  # of the strong model's right answers
BINS = 10
RESAMPLES = 400


class Judged(Struct, frozen=True):
    """Predictions and labels of prompts that the model has not seen, all of one length. place: of the gain
    among those of prompts held out in training, 0 to 1."""

    gain: Floats
    place: Floats
    weak_odds: Floats
    weak: Floats
    strong: Floats
    familiar: NDArray[np.bool_]

    def some(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Judged:
        return Judged(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    @property
    def strong_odds(self) -> Floats:
        return self.weak_odds + self.gain


def curve(judged: Judged) -> Floats:
    """Share of right answers when k prompts go to the strong model, for k from 0 to all: unfamiliar ones, then those of most gain."""
    order = np.lexsort((-judged.gain, judged.familiar))
    gained = np.cumsum((judged.strong - judged.weak)[order])
    return np.asarray(judged.weak.mean() + np.concatenate([[0.0], gained]) / len(judged.gain))


def apgr(judged: Judged) -> float:
    """Performance gap recovered, (right answers - the weak model's) / (the strong model's - the weak model's), averaged over all shares
    of strong calls from 0 to 1 (Ong et al., RouteLLM, 2024). Chance is 0.5."""
    weak, strong = judged.weak.mean(), judged.strong.mean()
    return float("nan") if strong == weak else float(((curve(judged) - weak) / (strong - weak)).mean())


def saved(judged: Judged) -> float:
    """Share of calls that the weak model may take while KEPT of the strong model's right answers are kept: what is saved where the weak
    one costs nothing beside the strong one."""
    enough = curve(judged) >= KEPT * judged.strong.mean() - 1e-12
    return float(1.0 - np.argmax(enough) / len(judged.gain)) if enough.any() else 0.0


def realised(judged: Judged, share: float) -> float:
    """The share of prompts that go to the strong model where `share` is wanted, by the threshold that a gateway starts with."""
    return float(((judged.place > 1.0 - share) | ~judged.familiar).mean())


def lowest(judged: Judged) -> float:
    """The worst of the curve beside the weak model's own share of right answers; below 0: some share of strong calls does harm."""
    return float(curve(judged).min() - judged.weak.mean())


def calibration_error(odds: Floats, truth: Floats) -> float:
    """Expected calibration error over BINS of equally many prompts: by how much the odds are off, on average."""
    order = np.argsort(odds, kind="stable")
    parts = np.array_split(order, min(BINS, len(order)))
    return float(sum(len(part) * abs(odds[part].mean() - truth[part].mean()) for part in parts) / len(order))


def spread(measure: Callable[[Judged], float], judged: Judged, seed: int = 0) -> float:
    """The standard error of a measure by resampling prompts."""
    random = np.random.default_rng(seed)
    count = len(judged.gain)
    return float(np.nanstd([measure(judged.some(random.integers(0, count, count))) for _ in range(RESAMPLES)]))
