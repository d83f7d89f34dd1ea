"""The measures on rankings whose value is known."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.quality import measures
from gateway.quality.measures import Judged

WEAK = np.array([0.0, 0.0, 1.0, 1.0])
STRONG = np.array([1.0, 1.0, 1.0, 0.0])


def ranked(*gain: float, familiar: tuple[bool, ...] = (True,) * 4) -> Judged:
    return Judged(np.array(gain), np.array([0.1, 0.4, 0.6, 0.95]), np.full(4, 0.5), WEAK, STRONG, np.array(familiar))


def test_the_curve_goes_from_the_weak_to_the_strong_model() -> None:
    assert measures.curve(ranked(4, 3, 2, 1)).tolist() == [0.5, 0.75, 1.0, 1.0, 0.75]
    assert measures.curve(ranked(1, 2, 3, 4)).tolist() == [0.5, 0.25, 0.25, 0.5, 0.75]
    assert measures.lowest(ranked(4, 3, 2, 1)) == 0.0
    assert measures.lowest(ranked(1, 2, 3, 4)) == -0.25
    unfamiliar = ranked(4, 3, 2, 1, familiar=(True, True, True, False))
    assert measures.curve(unfamiliar).tolist() == [0.5, 0.25, 0.5, 0.75, 0.75], "the unfamiliar one goes first"


def test_what_is_recovered_and_saved() -> None:
    assert measures.apgr(ranked(4, 3, 2, 1)) == pytest.approx(np.mean([0, 1, 2, 2, 1]))
    assert measures.saved(ranked(4, 3, 2, 1)) == 0.75  # one strong call keeps 0.75, all that the strong model has
    assert measures.saved(ranked(1, 2, 3, 4)) == 0.0
    assert np.isnan(measures.apgr(Judged(np.zeros(4), np.zeros(4), WEAK, WEAK, WEAK, np.ones(4, bool))))


def test_the_realised_share_counts_the_unfamiliar() -> None:
    assert [measures.realised(ranked(4, 3, 2, 1), share) for share in (0.0, 0.1, 0.5, 1.0)] == [0.0, 0.25, 0.5, 1.0]
    assert measures.realised(ranked(4, 3, 2, 1, familiar=(False, True, True, True)), 0.1) == 0.5


def test_a_random_order_recovers_half() -> None:
    draw = np.random.default_rng(2)
    weak, strong = (draw.random(20_000) < 0.6).astype(float), (draw.random(20_000) < 0.9).astype(float)
    judged = Judged(draw.random(20_000), weak, weak, weak, strong, np.ones(20_000, bool))
    assert measures.apgr(judged) == pytest.approx(0.5, abs=0.02)
    few = judged.some(np.arange(500))
    assert 0.01 < measures.spread(measures.apgr, few) < 0.1


def test_odds_that_are_true_have_no_error() -> None:
    draw = np.random.default_rng(3)
    odds = draw.random(20_000)
    truth = (draw.random(20_000) < odds).astype(float)
    assert measures.calibration_error(odds, truth) < 0.02
    assert measures.calibration_error(np.clip(odds + 0.2, 0, 2), truth) == pytest.approx(0.2, abs=0.02)
    assert Judged(np.array([0.2]), odds, np.array([0.5]), odds, odds, odds > 2).strong_odds.tolist() == [0.7]
