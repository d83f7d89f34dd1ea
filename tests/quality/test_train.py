"""From labels to a file that the gateway reads: what was put into made-up labels is found, true in its odds, and the same each time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gateway.quality import measures
from gateway.quality.labels import Label, folds, questions
from gateway.quality.train import SHARED, Recipe, crossed, judged, lines, table_of, train
from gateway.routing.quality import MILLION, Model

Make = Callable[..., list[Label]]


@pytest.fixture(scope="module")
def raw(labels: Make, small: Recipe) -> bytes:
    return train(table_of(labels(500)), {"origin": "made up"}, small)


def test_what_is_hard_for_the_weak_model_is_found(labels: Make, raw: bytes) -> None:
    fresh = labels(400, seed=9)
    found = judged(Model(raw), fresh)
    hard = np.array([label.bench == "hard" for label in fresh])
    assert found.gain[hard].mean() == pytest.approx(0.75, abs=0.12)
    assert found.gain[~hard].mean() == pytest.approx(0.0, abs=0.12)
    assert found.weak_odds[hard].mean() == pytest.approx(0.2, abs=0.12)
    assert measures.apgr(found) > 0.7
    assert measures.calibration_error(found.weak_odds, found.weak) < 0.1
    assert measures.lowest(found) >= -0.02
    assert found.familiar.mean() > 0.95


def test_the_file_is_the_same_each_time_and_says_where_it_comes_from(labels: Make, small: Recipe, raw: bytes) -> None:
    assert train(table_of(labels(500)), {"origin": "made up"}, small) == raw
    assert Model(raw).about == {"origin": "made up"}
    assert list(Model(raw).gains) == sorted(Model(raw).gains)


def test_every_label_is_judged_by_a_model_that_has_not_seen_it(labels: Make, small: Recipe) -> None:
    rows = labels(250)
    parts = folds(questions(rows), 2, 0)
    parts[:20] = -1
    found = crossed(rows, parts, small)
    assert len(found.gain) == 230
    assert found.weak.tolist() == [float(row.weak_correct) for row in rows[20:]]
    part = np.flatnonzero(parts == 1)
    alone = judged(Model(train(table_of([rows[i] for i in np.flatnonzero(parts != 1)]), {}, small)), [rows[i] for i in part])
    assert found.gain[part - 20].tolist() == alone.gain.tolist()


def test_a_prompt_in_another_language_is_unfamiliar(raw: bytes) -> None:
    model = Model(raw)
    assert model.judge("please tell me about the capital of thing number 7?").familiar
    foreign = model.judge("Wie spät ist es morgen früh in Buxtehude und wer kocht dort Kaffee")
    assert not foreign.familiar and foreign.unseen > MILLION // 2
    assert not model.judge("").familiar or model.judge("").unseen == MILLION


def test_lines_share_slopes_and_lie_as_high_as_their_kind_of_prompts() -> None:
    random = np.random.default_rng(1)
    told = random.normal(size=(4000, 2))
    chosen = np.arange(4000) % 2 == 0
    truth = np.where(chosen, -0.1, 0.3) + 0.6 * told[:, 0] + 0.2 * told[:, 1]
    without, having = lines(told, truth, chosen)
    assert without[1:] == having[1:] == pytest.approx((0.6, 0.2), abs=0.01)
    shrunk = 0.2 * 2000 / (2000 + SHARED)  # of the 0.2 that either kind lies off the middle, 0.1
    assert (without[0], having[0]) == pytest.approx((0.1 + shrunk, 0.1 - shrunk), abs=0.005)


def test_lines_of_one_kind_alone_of_nothing_told_and_of_what_is_told_the_wrong_way() -> None:
    told = np.random.default_rng(1).normal(size=(500, 2))
    all_of_one = np.zeros(500, bool)
    without, having = lines(told, 0.4 + 0.5 * told[:, 0], all_of_one)
    assert without == pytest.approx((0.4, 0.5, 0.0), abs=1e-9)
    assert having == pytest.approx((0.4, 0.5, 0.0), abs=1e-9)
    assert lines(np.ones((500, 2)), np.full(500, 0.25), all_of_one)[0] == pytest.approx((0.25, 0.0, 0.0), abs=1e-9)
    assert lines(told, 0.4 - 0.5 * told[:, 0], all_of_one)[0][1] == 0.0
